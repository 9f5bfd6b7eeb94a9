"""How it was run: commands, versions, seeds, data, recipes and warnings."""

from pathlib import Path
from typing import Any

import yaml

from simgrad.core.text import duration
from simgrad.evaluation import metric_of
from simgrad.pages.blocks import (
    Block,
    BodyRow,
    Callout,
    Cell,
    Code,
    Column,
    Details,
    Listing,
    Paragraph,
    Section,
    Table,
)
from simgrad.report.material import Material, System
from simgrad.runs.outcome import outcome_of
from simgrad.runs.run import Run

_MOST_WARNINGS = 20


def provenance(material: Material) -> Section:
    """Everything needed to run it again, or to check it."""
    blocks: list[Block] = []
    warned = _warnings(material)
    if warned:
        shown = warned[:_MOST_WARNINGS]
        more = len(warned) - len(shown)
        blocks.append(
            Callout("Warnings while training", [*shown, *([f"and {more} more."] if more else [])])
        )
    infos = [run.info for _, run in material.runs]
    blocks.append(Paragraph(["Everything needed to run it again, or to check it."]))
    blocks.append(_facts(material, infos))
    if material.runs:
        blocks.append(Details("Every run", [_runs(material)]))
        blocks.append(Details("Recipe", _recipes(material)))
        blocks.append(Details("Commands", [Listing("\n".join(_commands(material, infos)))]))
    return Section("provenance", "How it was run", "How it was run", blocks)


def _warnings(material: Material) -> list[str]:
    return [
        f"{system.label}, seed {run.recipe.seed}, step {warning.get('step', '?')}: "
        f"{warning.get('text', warning)}"
        for system, run in material.runs
        for warning in run.info.get("warnings", [])
        if isinstance(warning, dict)
    ]


def _facts(material: Material, infos: list[dict[str, Any]]) -> Table:
    seeds = sorted({run.recipe.seed for _, run in material.runs})
    seconds = sum(float(info.get("seconds", 0)) for info in infos)
    runs = f"{len(infos)} run" + ("s" if len(infos) != 1 else "")
    facts = {
        "folder": [str(path) for path in material.targets],
        "data": _each(run.recipe.data for _, run in material.runs),
        "hash of the data": _each(str(i.get("data_fingerprint", "unknown"))[:16] for i in infos),
        "model": _each(run.recipe.model for _, run in material.runs),
        "seeds": [", ".join(map(str, seeds))],
        "versions": _each(_versions(info) for info in infos),
        "simgrad's commit": _each(str(info.get("git") or "not a checkout") for info in infos),
        "device": _each(_device(info) for info in infos),
        "machines": _each(name for info in infos for name in info.get("hosts", [])),
        "training time": [f"{runs}, {duration(seconds)} in all"],
    }
    rows = [
        BodyRow([Cell(name), Cell(" · ".join(found))])
        for name, found in facts.items()
        if any(found)
    ]
    columns = [Column("", numeric=False), Column("", numeric=False)]
    return Table("Facts", columns, rows)


def _each(values: Any) -> list[str]:
    return list(dict.fromkeys(str(value) for value in values))


def _versions(info: dict[str, Any]) -> str:
    versions = info.get("versions") or {}
    return ", ".join(
        f"{name} {number}" for name, number in versions.items() if number and name != "gpu"
    )


def _device(info: dict[str, Any]) -> str:
    gpu = (info.get("versions") or {}).get("gpu")
    device = str(info.get("device", "unknown"))
    return f"{device} ({gpu})" if gpu and device.startswith("cuda") else device


def _runs(material: Material) -> Table:
    columns = [Column("", numeric=False), Column("folder", numeric=False), Column("seed")]
    columns += [Column("ended", numeric=False), Column("steps"), Column("best at"), Column("best")]
    columns += [Column("time")]
    rows = [_run(system, run, material) for system, run in material.runs]
    return Table(
        "Every run", columns, rows, "Best: the validation metric that chose the checkpoint."
    )


def _run(system: System, run: Run, material: Material) -> BodyRow:
    info = run.info
    best = info.get("best") or {}
    score, metric = best.get(run.recipe.select, -1.0), metric_of(run.recipe.select)
    return BodyRow(
        [
            Cell(system.label, key=True, colour=material.colour(system)),
            Cell(run.name),
            Cell(str(run.recipe.seed)),
            Cell(outcome_of(run) or str(info.get("status", "waiting"))),
            Cell(f"{info.get('steps', 0):,}"),
            Cell(f"step {best['step']:,}" if best.get("step") else "–"),
            Cell(f"{metric.title} {metric.format(score)}" if score >= 0 else "–"),
            Cell(duration(float(info.get("seconds", 0)))),
        ]
    )


def _recipes(material: Material) -> list[Block]:
    """The fields that all share, then for each system those that differ."""
    recipes = {s.label: s.recipe.to_dict() for s in material.systems if s.recipe is not None}
    for recipe in recipes.values():
        recipe.pop("seed")
    first = next(iter(recipes.values()))
    shared = {k: v for k, v in first.items() if all(r[k] == v for r in recipes.values())}
    blocks: list[Block] = [Listing(_yaml(shared))]
    for label, recipe in recipes.items():
        own = {k: v for k, v in recipe.items() if k not in shared}
        if own:
            blocks += [Paragraph([Code(label)]), Listing(_yaml(own))]
    return blocks


def _yaml(values: dict[str, Any]) -> str:
    text: str = yaml.safe_dump(values, sort_keys=False, allow_unicode=True, width=100)
    return text.rstrip()


def _commands(material: Material, infos: list[dict[str, Any]]) -> list[str]:
    commands = _each(info["command"] for info in infos if info.get("command"))
    shown = " ".join(_quoted(path) for path in material.targets)
    return [*commands, f"simgrad report {shown}"]


def _quoted(path: Path) -> str:
    import shlex

    return shlex.quote(str(path))
