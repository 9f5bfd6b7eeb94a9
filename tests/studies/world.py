"""Fake trees as studies see them: recipes on them, and short runs of their rows."""

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from simgrad.data import open_dataset
from simgrad.data.base import Dataset
from simgrad.studies.ensembles import complete_ensembles
from simgrad.studies.placing import placed, places
from simgrad.studies.plan import Plan
from simgrad.studies.study import Study
from simgrad.studies.study_file import Row
from simgrad.studies.worker import work
from tests.studies.test_settings import TABLES


@dataclass
class World:
    """A tree and what has been opened of it."""

    root: Path
    opened: dict[str, Dataset] = field(default_factory=dict)

    def dataset(self, path: str) -> Dataset:
        if path not in self.opened:
            self.opened[path] = open_dataset(path)
        return self.opened[path]


_TINY = {"dimension": 4, "word_dimension": 4, "captioner_dimension": 4, "layers": 1}
_AGAIN = {"epochs": 1, "depth": 20}  # of a second round


def narrow(plan: Plan, model: dict[str, Any], **changes: Any) -> Plan:
    """With models so small that a CPU goes through all training captions in a minute."""

    def narrower(row: Row) -> Row:
        if row.ensemble:
            return row
        config = plan.model(row)
        known = {each.name for each in dataclasses.fields(config)}
        tiny: Any = {name: value for name, value in _TINY.items() if name in known} | model
        if plan.recipe(row, 0).start_from is not None:
            tiny = {}  # the checkpoint's are small
        found = {"model": str(dataclasses.replace(config, **tiny)), **changes}
        again = plan.recipe(row, 0).second_round
        if again is not None:
            found["second_round"] = {**again, **_AGAIN}
        return row.with_changes(**found)

    return dataclasses.replace(plan, rows=tuple(map(narrower, plan.rows)))


def run_short(
    world: World,
    stem: str,
    name: str,
    folder: Path,
    *labels: str,
    seeds: tuple[int, ...] = (0, 1),
    features: str | None = None,
    model: dict[str, Any] | None = None,
    **more: Any,
) -> Study:
    """A few steps of some rows of a table on a tree, and their tests."""
    path = next(p for p in TABLES if p.stem == stem)
    (place,) = places((name,), str(world.root), features=features, only=name)
    plan = placed(path, place)
    rows = tuple(row for row in plan.rows if row.label in labels)
    assert len(rows) == len(labels)
    changes = {"epochs": 1, "device": "cpu", "workers": 0, **more}
    plan = narrow(dataclasses.replace(plan, rows=rows, seeds=seeds), model or {}, **changes)
    study = Study.create(plan, folder)
    assert work(study) == 0
    assert complete_ensembles(study, "cpu") == []
    return study
