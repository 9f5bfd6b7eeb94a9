"""Published numbers, from the CSV files beside this one, and the ratios of times that AOQ gives."""

import csv
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from simgrad.core.errors import InputError
from simgrad.runs.recipe import Recipe
from simgrad.studies.study import Study
from simgrad.studies.study_file import Row


@cache
def published_table(name: str) -> tuple[dict[str, str], ...]:
    """The lines of a published table."""
    tables = {path.name: path for path in (files("simgrad.studies") / "published").iterdir()}
    if name not in tables:  # nor is any other file read, wherever `name` may lead
        known = ", ".join(sorted(tables))
        raise InputError(f"there is no published table '{name[:80]}' (there are: {known}).")
    return tuple(csv.DictReader(tables[name].read_text(encoding="utf-8").splitlines()))


SECONDS, RATIO = "seconds_per_batch", "seconds_ratio"
_NAMES = {
    "map5": "map5_hits",
    "map10": "map10_hits",
    "avg_recall": "average_recall",
    "sec_per_batch": SECONDS,
}
# What a published table calls a test, by data set: our protocol.
_PROTOCOLS = {
    ("f30k", "test1k"): "flickr30k-1k",
    ("coco", "test5k"): "coco-5k",
    ("coco", "test1k-5fold"): "coco-1k",
}


def metric_name(direction: str, metric: str) -> str:
    """Our name of a published metric: i2t, R@1 -> i2t_r1."""
    name = metric.lower().replace("@", "")
    name = _NAMES.get(name, name)
    return name if direction in ("", "both") else f"{direction}_{name}"


@dataclass(frozen=True)
class Beside:
    """The published row that belongs beside one of ours."""

    cells: dict[str, tuple[float, float | None]]  # metric -> mean, and deviation where printed
    dataset: str = ""  # f30k, coco
    protocol: str | None = None  # of ours; None: not of a test, e.g. seconds

    def __bool__(self) -> bool:
        return bool(self.cells)

    def comparable(self, recipe: Recipe) -> bool:
        """Whether a run of this recipe is tested as the published one was."""
        return self.protocol is None or recipe.protocol == self.protocol

    def name(self, recipe: Recipe) -> str:
        """What the row is called in a table beside ours."""
        if self.comparable(recipe):
            return "published"
        return f"published, NOT like ours: {self.protocol}"


def beside_rows(published: dict[str, Any], rows: Sequence[Row]) -> dict[str, Beside]:
    """The published row beside each of ours, by label; seconds also over the baseline's."""
    found = {row.label: beside(published, row) for row in rows}
    base = {row.group: found[row.label].cells.get(SECONDS) for row in rows if row.baseline}
    for row in rows:
        own, first = found[row.label].cells.get(SECONDS), base.get(row.group)
        if own is not None and first is not None:
            found[row.label].cells[RATIO] = (own[0] / first[0], None)
    return found


def beside(published: dict[str, Any], row: Row) -> Beside:
    """The published row that belongs beside one of ours; one data set and one test, or an error."""
    if not published.get("table") or not row.published:
        return Beside({})
    wanted = {**published.get("where", {}), **row.published}
    table = str(wanted.pop("table", published["table"]))  # a row's own, where it names one
    lines = [
        line
        for line in published_table(table)
        if all(line.get(key) == str(value) for key, value in wanted.items()) and line["mean"]
    ]
    kinds = {(line["dataset"], line["split"]) for line in lines}
    if len(kinds) > 1:
        told = "; ".join(" ".join(kind) for kind in sorted(kinds))
        raise InputError(
            f"row '{row.label[:80]}': {table} has several published rows for {wanted}: {told}. "
            "Say in `where` which dataset and split."
        )
    found: dict[str, tuple[float, float | None]] = {}
    for line in lines:
        std = float(line["std"]) if line["std"] else None
        found[metric_name(line["direction"], line["metric"])] = (float(line["mean"]), std)
    recalls = [f"{way}_r{k}" for way in ("i2t", "t2i") for k in (1, 5, 10)]
    if "rsum" not in found and all(name in found for name in recalls):
        found["rsum"] = (math.fsum(found[name][0] for name in recalls), None)
    dataset, split = next(iter(kinds), ("", ""))
    return Beside(found, dataset, _PROTOCOLS.get((dataset, split)))


def timings(study: Study) -> dict[Path, dict[str, float]]:
    """By run folder, where the study asks for it and the run has measured it.

    Machines differ: a ratio can be compared with a published one, seconds cannot.
    """
    plan, found = study.plan, {}
    if not {SECONDS, RATIO} & set(plan.metrics):
        return {}
    seconds = {
        label: {run.path: value for run in runs if (value := run.seconds_per_batch) is not None}
        for label, runs in study.groups.items()
    }
    baselines = {row.group: seconds[row.label].values() for row in plan.rows if row.baseline}
    for row in plan.rows:
        base = baselines.get(row.group)
        for path, value in seconds[row.label].items():
            found[path] = {SECONDS: value}
            if base:
                found[path][RATIO] = value / (math.fsum(base) / len(base))
    return found
