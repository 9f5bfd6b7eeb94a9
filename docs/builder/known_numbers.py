"""Published numbers and ours, by objective: from recipes/, which know both, and from results/."""

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from repository import ROOT

from simgrad.objectives import Objective, objective
from simgrad.runs.recipe import Recipe
from simgrad.studies.papers import beside
from simgrad.studies.plan import Plan, offers_of, read_plan
from simgrad.studies.study_file import Row

SHOWN = ("i2t_r1", "t2i_r1", "rsum")


@dataclass(frozen=True)
class Line:
    """One row of a table."""

    objective: Objective
    source: str  # a link, in Markdown, as seen from objectives/
    label: str
    data: str
    cells: dict[str, str]
    seeds: str = ""


@cache
def published() -> list[Line]:
    """What the papers print, as far as a recipe says which objective a row of theirs is."""
    found = []
    for path in sorted((ROOT / "recipes").glob("*.yaml")):
        for dataset in offers_of(path):
            plan = read_plan(path, dataset)
            for row in plan.rows:
                row_beside = beside(plan.published, row)
                if not set(SHOWN) & set(row_beside.cells):
                    continue
                cells = dict.fromkeys(SHOWN, "") | {
                    m: _with_spread(*c) for m, c in row_beside.cells.items() if m in SHOWN
                }
                link = f"[{path.stem}](../recipes/{path.name})"
                for used in _objectives(plan, row):
                    protocol = row_beside.protocol or dataset
                    found.append(Line(used, link, row.label, protocol, cells))
    return found


def _objectives(plan: Plan, row: Row) -> list[Objective]:
    """What a row was trained with last; of an ensemble, what its rows were."""
    by_label = {each.label: each for each in plan.rows}
    rows = [by_label[label] for label in dict.fromkeys(row.ensemble)] or [row]
    specs = dict.fromkeys(_last(plan.recipe(each, 0)) for each in rows)
    return [objective(spec) for spec in specs]


def _last(recipe: Recipe) -> str:
    return str((recipe.second_round or {}).get("objective", recipe.objective))


@cache
def ours() -> list[Line]:
    """Means over seeds of our runs on Flickr8k."""
    return list(_studies())


def _studies() -> Iterator[Line]:
    """Folders of results/flickr8k that hold the table of a study, each with its page.

    Numbers on drawn scenes are left out: they cannot stand beside those on photos.
    """
    for path in sorted((ROOT / "results/flickr8k").glob("*/table.csv")):
        if path.parent.name == "negatives":
            continue  # of an objective that recipes/top_k.py declares: it has no page
        used = _recipe_beside(path.parent)
        rows: dict[str, dict[str, dict[str, str]]] = {}
        with path.open(encoding="utf-8") as file:
            for line in csv.DictReader(file):
                rows.setdefault(line["label"], {})[line["metric"]] = line
        # A study that searched keeps its trials, a file for each row.
        budget = ", same budget" if any(path.parent.rglob("*.json")) else ""
        link = f"[{path.parent.name}{budget}](../{_page(path.parent)})"
        for label, metrics in rows.items():
            rsum = metrics["rsum"]
            cells = {
                name: _with_spread(float(metrics[name]["mean"]), _number(metrics[name]["std"]))
                for name in SHOWN
            }
            rule = objective(used.get(label, label))
            yield Line(rule, link, label, rsum["group"], cells, rsum["seeds"])


def _recipe_beside(folder: Path) -> dict[str, str]:
    """Of results/flickr8k/sizes: label -> objective, as recipes/flickr8k-sizes.yaml has them."""
    path = ROOT / "recipes" / f"{folder.parent.name}-{folder.name}.yaml"
    if not path.is_file():
        return {}  # its rows are called by their objective
    plan = read_plan(path)
    return {row.label: _last(plan.recipe(row, 0)) for row in plan.rows}


def _page(folder: Path) -> str:
    """Its own page, or that of the folder it lies in."""
    page = next(p for f in (folder, folder.parent) if (p := f / "README.md").is_file())
    return page.relative_to(ROOT).as_posix()


def _number(text: str) -> float | None:
    return float(text) if text else None


def _with_spread(mean: float, spread: float | None) -> str:
    return f"{mean:.1f}" if spread is None else f"{mean:.1f} ± {spread:.1f}"
