"""A folder of several known data sets: what is there, and what is missing for which table."""

import os
from pathlib import Path
from typing import Any

from simgrad.core.console import print_table, say, say_wrapped
from simgrad.data.arrays import open_features
from simgrad.data.benchmarks import BENCHMARKS, IN_TREES, Benchmark, Tree
from simgrad.studies.plan import Plan, offers_of, read_plan
from simgrad.studies.study_file import Row


def describe_tree(tree: Tree, recipes: Path) -> dict[str, Any]:
    """Forms of every data set, and what each table of the recipes' folder still needs."""
    forms = [form for name in IN_TREES for form in _forms(tree, name)]
    tables = {}
    for file in sorted(recipes.glob("*.yaml")):
        offers = offers_of(file)
        for name in offers:
            told = _table(tree, read_plan(file, name), name)
            tables[f"{file.stem} --only {name}" if offers[1:] else file.stem] = told
    return {"root": str(tree.root), "data": forms, "tables": tables}


def print_tree(told: dict[str, Any], recipes: Path) -> None:
    """As text."""
    rows = [(form["data"], form["form"], form["place"], form["holds"]) for form in told["data"]]
    print_table(("data", "form", "where", "what is there"), rows, title=f"{told['root']}")
    if not told["tables"]:
        say(f"\n{recipes}: no recipes there; --recipes names the folder of the papers' tables.")
        return
    say("")
    lines = [
        (name, f"{one['ready']} of {one['rows']}", "; ".join(one["blocked_by"]) or "nothing")
        for name, one in told["tables"].items()
    ]
    print_table(("table", "rows ready", "others blocked by"), lines)
    built = dict.fromkeys(name for one in told["tables"].values() for name in one["built"])
    if built:
        say_wrapped(f"\nNot there, so made from the training captions: {', '.join(built)}.")
    say_wrapped(
        "\nPretrained networks (ResNet, ViT, BERT, WSL) lie elsewhere: `simgrad study RECIPE --data"
        f" {told['root']} --dry-run` names those that are missing, and where to put them."
    )


def _forms(tree: Tree, name: str) -> list[dict[str, str]]:
    known = BENCHMARKS[name]
    file, folder = tree.expected(name, "pictures"), tree.expected(name, "regions")
    found = [
        ("captions and splits", file, "there" if file.is_file() else "missing"),
        ("pictures", file.parent / known.folder, _pictures(file.parent / known.folder, known)),
        ("regions", folder, _regions(folder)),
    ]
    return [
        {"data": known.title, "form": form, "place": _short(place, tree), "holds": holds}
        for form, place, holds in found
    ]


def _pictures(folder: Path, known: Benchmark) -> str:
    if not folder.is_dir():
        return "missing"
    count = sum(
        name.lower().endswith((".jpg", ".jpeg", ".png"))
        for _, _, names in os.walk(folder)
        for name in names
    )
    whole = "" if count == known.pictures else f", not {known.pictures:,}"
    return f"{count:,} pictures{whole}"


def _regions(folder: Path) -> str:
    arrays = sorted(folder.glob("*_ims.npy"))
    if not arrays:
        return "missing"
    shapes = [f"{f.name.removesuffix('_ims.npy')} {open_features(f).shape}" for f in arrays]
    return ", ".join(shapes)


def _short(place: Path, tree: Tree) -> str:
    return str(place.relative_to(tree.root)) if place.is_relative_to(tree.root) else str(place)


def _table(tree: Tree, plan: Plan, name: str) -> dict[str, Any]:
    """How many rows of a table have all their files, what the others lack, what would be built."""
    needed = [_needed(tree, plan, row, name) for row in plan.rows if not row.ensemble]
    words = [plan.recipe(row, 0).vocabulary for row in plan.rows if not row.ensemble]
    built = {told for told in words if told is not None and not (tree.root / told).exists()}
    return {
        "rows": len(needed),
        "ready": sum(not gone for gone in needed),
        "blocked_by": list(dict.fromkeys(file for gone in needed for file in gone)),
        "built": sorted(built),
    }


def _needed(tree: Tree, plan: Plan, row: Row, name: str) -> list[str]:
    """Files that a row cannot do without, and that are not there."""
    recipe, regions = plan.recipe(row, 0), plan.model(row).reads == "regions"
    gone = []
    place = tree.expected(name, "regions" if regions else "pictures")
    if not place.exists():
        gone.append(_short(place, tree))
    pictures = place.parent / BENCHMARKS[name].folder
    if not regions and not pictures.is_dir():
        gone.append(_short(pictures, tree))
    if recipe.start_from is not None and not (tree.root / recipe.start_from).exists():
        gone.append(recipe.start_from)
    return gone
