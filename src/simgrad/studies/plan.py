"""A study file: which runs make one table.

    title: Which objective for VSE++?
    recipe: {data: scenes, epochs: 10}        # shared by all runs
    grid: {objective: [triplet, triplet-sh], model: [vse++]}
    seeds: 3                                  # or a list
    baseline: triplet                         # what the others are compared with

Instead of a grid, or beside it, `rows` may list settings one by one, each with its label, group,
changes to the recipe and the published row that belongs beside it. docs/training.md has examples;
`simgrad study --schema` prints a JSON schema.
"""

import dataclasses
import itertools
import math
import warnings
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from simgrad.core.errors import InputError
from simgrad.core.typed import checked, read_yaml
from simgrad.data.opening import embedded
from simgrad.data.resplit import with_draw
from simgrad.evaluation import headlines
from simgrad.models import ModelConfig, models
from simgrad.models.base import Usual
from simgrad.runs import naming
from simgrad.runs.recipe import (
    Recipe,
    absolute,
    earlier_names,
    unsaid,
    up_to_date,
    with_specs,
    with_usual,
    without_a_first_epoch,
)
from simgrad.runs.recipe_names import wrong_names
from simgrad.studies.fast import fast_changes
from simgrad.studies.space import SEEDS_APART, check_tuning
from simgrad.studies.study_file import Row, StudyFile, for_dataset, offered
from simgrad.studies.tune import Tune

_MOST = 10_000  # rows of a table
_TOLD = 5  # mistakes told at once


@dataclass(frozen=True)
class Plan:
    """The study as it will be run: rows with complete settings, for one data set."""

    title: str
    base: Recipe
    rows: tuple[Row, ...]
    seeds: tuple[int, ...]
    metrics: tuple[str, ...] = field(default_factory=headlines)
    claim: str = ""  # what the paper says about it, in one sentence
    published: dict[str, Any] = field(default_factory=dict)  # {table: file, where: {column: value}}
    dataset: str | None = None  # whose settings and published numbers these are: f30k, coco
    offers: tuple[str, ...] = ()  # the data sets that the file has settings for
    tune: Tune | None = None
    short: bool = False  # too short a training to say who is ahead

    def recipe(self, row: Row, seed: int) -> Recipe:
        """The recipe of one run."""
        return self.base.replace(**{**row.changes, "seed": seed})

    def runs(self) -> list[tuple[str, Row, Recipe]]:
        """(folder name, row, recipe) of every run, seeds outermost: a table fills evenly."""
        return [
            (row.folder(seed), row, one.recipe(row, seed))
            for one in self.replicates
            for seed in one.seeds
            for row in one.rows
            if not row.ensemble
        ]

    @property
    def trainings(self) -> int:
        """How many runs come before settings are chosen, at most."""
        rows = len(self.rows) * len(self.replicates)
        return 0 if self.tune is None else rows * self.tune.trainings

    @cached_property
    def replicates(self) -> "tuple[Plan, ...]":
        """The studies that this one consists of: itself, or its replicates.

        A replicate has rows and seeds of its own: `ROW-r2`, and numbers that are further on by
        SEEDS_APART. So has its search; with `splits: new` its data, too.
        """
        tune = self.tune
        if tune is None or tune.replicates == 1:
            return (self,)
        return tuple(self._replicate(tune, number) for number in range(1, tune.replicates + 1))

    def _replicate(self, tune: Tune, number: int) -> "Plan":
        ahead = SEEDS_APART * (number - 1)
        rows = [row.renamed(f"{row.name}-r{number}") for row in self.rows]
        if tune.splits == "new":
            rows = [
                row.with_changes(resplit=with_draw(self.recipe(row, 0).resplit, number))
                for row in rows
            ]
        return dataclasses.replace(
            self,
            rows=tuple(rows),
            seeds=tuple(seed + ahead for seed in self.seeds),
            tune=tune.model_copy(update={"seed": tune.seed + ahead, "replicates": 1}),
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain values that read back."""
        return {
            "title": self.title,
            "dataset": self.dataset,
            "claim": self.claim,
            "recipe": self.base.to_dict(),
            "rows": [row.model_dump(by_alias=True) for row in self.rows],
            "seeds": list(self.seeds),
            "published": self.published,
            "metrics": list(self.metrics),
            "tune": None if self.tune is None else self.tune.to_dict(),
            **({"short": True} if self.short else {}),
        }

    def settled(self) -> "Plan":
        """The same study from anywhere: paths that are there become absolute."""
        rows = (row.model_copy(update={"changes": absolute(row.changes)}) for row in self.rows)
        return dataclasses.replace(self, base=self.base.settled(), rows=tuple(rows))

    def changed(self, **changes: Any) -> "Plan":
        """The same study with a few fields of the recipe changed for all rows."""
        rows = (row.with_changes(**changes) for row in self.rows)
        return dataclasses.replace(self, base=self.base.replace(**changes), rows=tuple(rows))

    def with_threads(self, count: int | None) -> "Plan":
        """The same study with so many threads for each run, where a row says nothing else."""
        return dataclasses.replace(self, base=self.base.replace(threads=count))

    def on_data(self, data: str, features: str | None = None, regions: str | None = None) -> "Plan":
        """The same study on another data set.

        Models that read one vector per image get `features`, models that read several get
        `regions` (a folder written by `simgrad features DATA --grid 7`, or a data set of its own),
        and models that run an image network themselves get the pictures.
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
            elif reads == "global" and features is not None:
                place["augment"] = None  # features are of the pictures as they are
            rows.append(row.with_changes(**place))
        return dataclasses.replace(self, rows=tuple(rows))

    def on_embedded(self, **sizes: int) -> "Plan":
        """The same study on the embedded world, with what each model can read.

        Pretrained parts that are not on this machine are left out: an image network gives way to
        the world's features, a text network to an untrained one.
        """
        rows = []
        for row in self.rows:
            model = self.model(row).without_downloads()
            changes: dict[str, Any] = {"data": embedded(model.reads, **sizes), "model": str(model)}
            changes |= {"features": None, "skip": None, "train_images": None, "also": None}
            changes |= {"vocabulary": None, "start_from": None, "resplit": None}
            changes |= {"protocol": "all", "test_split": None}
            if model.reads != "pixels":  # nothing to vary
                changes["augment"] = None
            if not model.ready:  # nothing is pretrained: it has to be trained, from one end alone
                changes |= {"wise": 0, "epochs": max(1, self.recipe(row, 0).epochs)}
            if not model.trains_backbone:  # nothing to freeze or to fine-tune later
                changes |= {"freeze_epochs": 0, "finetune_epochs": 0}
            rows.append(row.with_changes(**changes))
        return dataclasses.replace(self, rows=tuple(rows))

    def model(self, row: Row) -> ModelConfig:
        """The settings of a row's model."""
        return models.parse(str(row.changes.get("model", self.base.model)))

    def fast(self) -> "Plan":
        """A small version for a quick look: narrow models, few epochs, two seeds."""
        trained = [row for row in self.rows if not row.ensemble]
        small, words = fast_changes([self.recipe(row, 0) for row in trained])
        changes = {row.name: one for row, one in zip(trained, small, strict=True)}
        rows = tuple(row.with_changes(**changes.get(row.name, {})) for row in self.rows)
        title = f"{self.title} (fast: {words})" if words else f"{self.title} (fast)"
        return dataclasses.replace(self, title=title, rows=rows, seeds=self.seeds[:2])


def read_plan(path: str | Path, dataset: str | None = None) -> Plan:
    """A study file, for one of the data sets it is about; what does not fit is named."""
    values = read_yaml(path)
    plan = plan_from_dict(values, str(path), dataset)
    told = earlier_names(values.get("recipe") or {})
    told += [
        f"row '{row.label}': {text}" for row in plan.rows for text in earlier_names(row.changes)
    ]
    for text in told + _left_open(plan, for_dataset(values, dataset, str(path))):
        warnings.warn(f"{path}: {text}.", stacklevel=2)
    return plan


def _left_open(plan: Plan, values: Mapping[str, Any]) -> list[str]:
    """What neither the recipe nor all rows name, and a search does not choose."""
    trained = [row for row in values.get("rows") or [] if not row.get("ensemble")]
    changed = [row.get("set") or {} for row in trained]
    changed += [values["grid"]] if values.get("grid") else []
    said = {name for name in Usual._fields if all(name in one for one in changed)}
    said |= {"lr"} if plan.tune is not None else set()
    named = {**dict.fromkeys(said), **(values.get("recipe") or {})}
    told = unsaid(named, plan.base)
    if "lr" not in named:
        rows = [plan.recipe(row, 0) for row in plan.rows if not row.ensemble]
        told += [text for row in rows for text in without_a_first_epoch(row)]
    return list(dict.fromkeys(told))


def offers_of(path: str | Path) -> tuple[str, ...]:
    """The data sets that a study file is about, before its objectives and models are looked up."""
    values = read_yaml(path)
    checked(StudyFile, values, str(path))
    return offered(values)


def plan_from_dict(values: Mapping[str, Any], where: str, dataset: str | None = None) -> Plan:
    """A study from plain values; objectives may be objects."""
    values = with_specs(values)
    checked(StudyFile, values, where)
    told = checked(StudyFile, for_dataset(values, dataset, where), where)
    rows = _named([*told.rows, *_gridded(told, where)])
    rows = [_usual(row, for_dataset(values, dataset, where).get("recipe") or {}) for row in rows]
    if not rows:
        raise InputError(f"{where}: a study needs `rows` or a `grid`.")
    for label, count in Counter(row.label for row in rows).items():
        if count > 1:
            raise InputError(f"{where}: two rows are called '{label[:80]}'.")
    if told.baseline is not None and not any(row.baseline for row in rows):
        rows = [row.model_copy(update={"baseline": row.label == told.baseline}) for row in rows]
    plan = Plan(
        title=told.title or Path(where).stem,
        base=told.recipe,
        rows=tuple(rows),
        seeds=told.seeds,
        metrics=tuple(told.metrics),
        claim=told.claim,
        published=told.published.model_dump(exclude_defaults=True),
        dataset=told.dataset,
        offers=offered(values),
        tune=told.tune,
        short=told.short,
    )
    wrong = []  # every run must be possible before the first one starts
    for row in rows:
        if not row.ensemble:
            place = f"{where}: row '{row.label[:80]}'"
            recipe = checked(Recipe, {**plan.base.to_dict(), **up_to_date(row.changes)}, place)
            wrong += wrong_names(recipe, place)
    if wrong:
        more = [f"{where}: and {len(wrong) - _TOLD} more."] if len(wrong) > _TOLD else []
        raise InputError("\n".join([*wrong[:_TOLD], *more]))
    check_tuning(plan, where)
    return plan


def _usual(row: Row, base: Mapping[str, Any]) -> Row:
    """A row of another model has that model's objective and rate, where nobody names them."""
    if "model" not in row.changes:
        return row
    known = {**base, **row.changes}
    own = with_usual({**base, "model": row.changes["model"]})  # one rate for all of its objectives
    return row.with_changes(**{k: own[k] for k in Usual._fields if k in own and k not in known})


def _gridded(told: StudyFile, where: str) -> list[Row]:
    grid = told.grid
    if not grid:
        return []
    for key, choices in grid.items():
        if not choices:
            raise InputError(f"{where}: grid: {key} is a list of choices, and has none.")
    if math.prod(map(len, grid.values())) > _MOST:
        raise InputError(f"{where}: the grid has more than {_MOST:,} rows.")
    several = [key for key, choices in grid.items() if len(choices) > 1]
    varied = several or [key for key in grid if key == "objective"] or list(grid)
    settings = [dict(zip(grid, mix, strict=True)) for mix in itertools.product(*grid.values())]
    others = [key for key in varied if key != "objective"]
    groups = naming.labels(settings, others) if others else [""] * len(settings)
    return [
        Row(
            label=label,
            name=name,
            group=group,
            set=changes,
            baseline=told.baseline is not None and changes.get("objective") == told.baseline,
        )
        for label, name, group, changes in zip(
            naming.labels(settings, varied),
            naming.names(settings, varied),
            groups,
            settings,
            strict=True,
        )
    ]


def _named(rows: list[Row]) -> list[Row]:
    """Every row with a name of its own for its folders."""
    names = naming.apart([row.name or naming.slug(row.label) for row in rows])
    return [row.renamed(name) for row, name in zip(rows, names, strict=True)]
