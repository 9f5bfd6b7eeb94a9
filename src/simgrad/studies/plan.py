"""A study file: which runs make one table.

    title: Which objective for VSE++?
    recipe: {data: scenes, epochs: 10}        # shared by all runs
    grid: {objective: [triplet, triplet-sh], model: [vse++]}
    seeds: 3                                  # or a list
    baseline: triplet                         # what the others are compared with

Instead of a grid, or beside it, `rows` may list settings one by one, each with its label, group,
changes to the recipe and the published row that belongs beside it.
"""

import dataclasses
import itertools
import math
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from simgrad.core.errors import InputError
from simgrad.data.transforms import named
from simgrad.evaluation import headlines
from simgrad.models import ModelConfig, models
from simgrad.objectives import objective
from simgrad.runs.recipe import Recipe, from_dict, read_yaml

_MOST = 10_000  # rows of a table
_KEYS = (
    "title", "claim", "recipe", "rows", "grid", "seeds", "baseline", "published", "metrics",
)  # fmt: skip


@dataclass(frozen=True)
class Row:
    """One setting, run with every seed: one row of the table."""

    label: str
    group: str  # rows of a group are compared with its baseline
    changes: dict[str, Any]
    baseline: bool = False
    published: dict[str, str] = field(default_factory=dict)  # columns of the published table


@dataclass(frozen=True)
class Plan:
    """Everything a study file says."""

    title: str
    base: Recipe
    rows: tuple[Row, ...]
    seeds: tuple[int, ...]
    metrics: tuple[str, ...] = dataclasses.field(default_factory=headlines)
    claim: str = ""  # what the paper says about it, in one sentence
    published: dict[str, Any] = field(default_factory=dict)  # {table: file, where: {column: value}}

    def recipe(self, row: Row, seed: int) -> Recipe:
        """The recipe of one run."""
        return self.base.replace(**{**row.changes, "seed": seed})

    def runs(self) -> list[tuple[str, Row, Recipe]]:
        """(folder name, row, recipe) of every run, seeds outermost: a table fills evenly."""
        return [
            (f"{slug(row.label)}-s{seed}", row, self.recipe(row, seed))
            for seed in self.seeds
            for row in self.rows
        ]

    def changed(self, **changes: Any) -> "Plan":
        """The same study with a few fields of the recipe changed for all rows."""
        rows = tuple(
            dataclasses.replace(
                row, changes={k: v for k, v in row.changes.items() if k not in changes}
            )
            for row in self.rows
        )
        return dataclasses.replace(self, base=self.base.replace(**changes), rows=rows)

    def on_data(self, data: str, features: str | None = None, regions: str | None = None) -> "Plan":
        """The same study on another data set.

        Models that read one vector per image get `features`, models that read several get
        `regions` (a folder written by `simgrad features --grid`, or a data set of its own), and
        models that run an image network themselves get the pictures.
        """
        rows = []
        for row in self.rows:
            reads = self.model(row).reads
            place: dict[str, Any] = {"data": data, "features": features}
            if reads == "regions" and regions is not None:
                written = (Path(regions) / "features.json").is_file()
                place = {"features": regions} if written else {"data": regions, "features": None}
                place = {"data": data, **place}
            elif reads == "pixels":
                place["features"] = None
            rows.append(dataclasses.replace(row, changes={**row.changes, **place}))
        return dataclasses.replace(self, rows=tuple(rows))

    def on_scenes(self, **sizes: int) -> "Plan":
        """The same study on the embedded world, with what each model can read.

        Pretrained parts that are not on this machine are left out: an image network gives way to
        the world's features, a text network to an untrained one.
        """
        rows = []
        for row in self.rows:
            model = self.model(row).offline()
            settings = {"features": model.reads, **sizes}
            spec = ", ".join(f"{k}={v}" for k, v in settings.items())
            place: dict[str, Any] = {"data": f"scenes({spec})", "features": None, "skip": None}
            place["model"] = str(model)
            if not model.trains_backbone:  # nothing to freeze or to fine-tune later
                place |= {"freeze_epochs": 0, "finetune_epochs": 0}
            changes = {**row.changes, **place}
            rows.append(dataclasses.replace(row, changes=changes))
        return dataclasses.replace(self, rows=tuple(rows))

    def model(self, row: Row) -> ModelConfig:
        """The settings of a row's model."""
        return models.parse(str(row.changes.get("model", self.base.model)))

    def fast(self) -> "Plan":
        """A small version for a quick look: narrow models, few epochs, two seeds.

        Half the batch: in so short a run the number of steps counts.
        """
        rows = []
        for row in self.rows:
            recipe = self.recipe(row, 0)
            share = max(1, recipe.epochs // 4)
            first = max(1, recipe.first_epochs)
            changes: dict[str, Any] = {
                "model": str(self.model(row).narrow()), "lr": 1e-3,
                "freeze_epochs": 0, "finetune_epochs": 0, "batch": max(2, recipe.batch // 2),
                # At least one epoch with the objective that the row is about.
                "epochs": max(first + 1, recipe.epochs // 10), "decay_every": share,
                "first_objective": recipe.first_objective or "triplet", "first_epochs": first,
            }  # fmt: skip
            if recipe.second_round:
                second = dict(recipe.second_round)
                second["epochs"] = max(1, int(second.get("epochs", recipe.epochs)) // 10)
                # One epoch from scratch would show nothing: it goes on from the first round.
                second |= {"depth": 60, "first_epochs": 0, "from_round_one": True}
                changes["second_round"] = second
            rows.append(dataclasses.replace(row, changes={**row.changes, **changes}))
        title = f"{self.title} (fast: narrow models, a tenth of the epochs)"
        return dataclasses.replace(self, title=title, rows=tuple(rows), seeds=self.seeds[:2])


def read_plan(path: str | Path) -> Plan:
    """A study file; what does not fit is named."""
    return plan_from_dict(read_yaml(path), str(path))


def plan_from_dict(values: Mapping[str, Any], where: str) -> Plan:
    """A study from plain values."""
    for key in values:
        if key not in _KEYS:
            raise InputError(f"{where}: a study has no '{key}' (it has: {', '.join(_KEYS)}).")
    base = from_dict(_mapping(values.get("recipe", {}), f"{where}: recipe"), f"{where}: recipe")
    rows = [
        *_listed(values.get("rows", []), where),
        *_gridded(
            _mapping(values.get("grid", {}), f"{where}: grid"), values.get("baseline"), where
        ),
    ]
    if not rows:
        raise InputError(f"{where}: a study needs `rows` or a `grid`.")
    for label, count in Counter(row.label for row in rows).items():
        if count > 1:
            raise InputError(f"{where}: two rows are called '{label[:80]}'.")
    published = _mapping(values.get("published", {}), f"{where}: published")
    _mapping(published.get("where", {}), f"{where}: published: where")
    metrics = values.get("metrics", headlines())
    if not isinstance(metrics, (list, tuple)) or not all(isinstance(m, str) for m in metrics):
        raise InputError(f"{where}: metrics is a list of names.")
    plan = Plan(
        title=str(values.get("title", Path(where).stem)),
        base=base,
        rows=tuple(rows),
        seeds=_seeds(values.get("seeds", 1), where),
        metrics=tuple(metrics),
        claim=str(values.get("claim", "")),
        published=published,
    )
    for row in rows:  # every run must be possible before the first one starts
        recipe = plan.recipe(row, 0)
        objective(recipe.objective)
        models.parse(recipe.model)
        if recipe.augment is not None:
            named(recipe.augment, train=True, size=224)
        if recipe.second_round:
            recipe.replace(second_round=None, **_second(recipe.second_round))
    return plan


def _second(changes: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in changes.items() if k != "from_round_one"}


def _listed(rows: Any, where: str) -> list[Row]:
    if not isinstance(rows, list):
        raise InputError(f"{where}: rows is a list.")
    found = []
    for number, row in enumerate(rows, 1):
        here = f"{where}: row {number}"
        row = _mapping(row, here)
        unknown = set(row) - {"label", "group", "set", "baseline", "published"}
        if unknown or "label" not in row:
            raise InputError(f"{here} has label, group, set, baseline, published; not {unknown}.")
        published = {k: str(v) for k, v in _mapping(row.get("published", {}), here).items()}
        found.append(
            Row(
                str(row["label"]),
                str(row.get("group", "")),
                _mapping(row.get("set", {}), here),
                bool(row.get("baseline", False)),
                published,
            )
        )
    return found


def _gridded(grid: dict[str, Any], baseline: Any, where: str) -> list[Row]:
    if not grid:
        return []
    for key, choices in grid.items():
        if not isinstance(choices, list) or not choices:
            raise InputError(f"{where}: grid: {key} is a list of choices.")
    if math.prod(map(len, grid.values())) > _MOST:
        raise InputError(f"{where}: the grid has more than {_MOST:,} rows.")
    varied = [key for key, choices in grid.items() if len(choices) > 1] or ["objective"]
    rows = []
    for choice in itertools.product(*grid.values()):
        changes = dict(zip(grid, choice, strict=True))
        label = " ".join(str(changes[key]) for key in varied if key in changes)
        group = " ".join(str(changes[k]) for k in varied if k != "objective" and k in changes)
        rows.append(Row(label, group, changes, changes.get("objective") == baseline))
    return rows


def _seeds(seeds: Any, where: str) -> tuple[int, ...]:
    if isinstance(seeds, int) and not isinstance(seeds, bool) and 1 <= seeds <= 1000:
        return tuple(range(seeds))
    if isinstance(seeds, list) and seeds and all(type(s) is int and abs(s) < 2**31 for s in seeds):
        return tuple(seeds)
    raise InputError(f"{where}: seeds is a number of seeds (to 1000) or a list below 2^31.")


def _mapping(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InputError(f"{where} takes fields and values, not {value!r:.60}.")
    return value


def slug(text: str) -> str:
    """A label as a folder name."""
    return re.sub(r"[^A-Za-z0-9+.=]+", "-", text).strip("-").lower()[:120] or "run"
