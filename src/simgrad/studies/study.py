"""A study folder: the plan, a folder for every run, and the table."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

from simgrad.core.errors import InputError
from simgrad.core.files import atomic_write, sha256
from simgrad.core.typed import read_yaml
from simgrad.runs.recipe import Recipe
from simgrad.runs.run import Run
from simgrad.studies.papers import published_for
from simgrad.studies.plan import Plan, Row, plan_from_dict

PLAN, RUNS = "study.yaml", "runs"


@dataclass(frozen=True)
class Study:
    """A study on disk."""

    path: Path

    @staticmethod
    def open(path: "str | Path | Study") -> "Study":
        """A study folder."""
        if isinstance(path, Study):
            return path
        path = Path(path)
        if not (path / PLAN).is_file():
            what = "no such folder" if not path.exists() else f"not a study: it has no {PLAN}"
            raise InputError(f"{path}: {what}.")
        return Study(path)

    @staticmethod
    def create(plan: Plan, path: str | Path) -> "Study":
        """Write the plan; a folder that has one is extended, never changed in what was run."""
        path = Path(path)
        study = Study(path)
        if (path / PLAN).is_file():
            old = study.plan
            before = {name: recipe for name, _, recipe in old.runs()}
            for name, _, recipe in plan.runs():
                if name in before and before[name] != recipe:
                    changed = [
                        k for k, v in recipe.to_dict().items() if before[name].to_dict()[k] != v
                    ]
                    raise InputError(
                        f"{path} holds a study in which {name} has another recipe "
                        f"({', '.join(changed)} differ): give another --output."
                    )
        with atomic_write(path / PLAN) as file:
            yaml.safe_dump(to_dict(plan), file, sort_keys=False, allow_unicode=True)
        return Study(path)

    @cached_property
    def plan(self) -> Plan:
        return plan_from_dict(read_yaml(self.path / PLAN), str(self.path / PLAN))

    @property
    def title(self) -> str:
        return self.plan.title

    def jobs(self) -> list[tuple[Path, Recipe]]:
        """Every run: where, and what."""
        return [(self.path / RUNS / name, recipe) for name, _, recipe in self.plan.runs()]

    def round_one(self, recipe: Recipe) -> Path | None:
        """Where the first of two rounds is trained: once for all rows that begin the same way."""
        if recipe.second_round is None:
            return None
        first = recipe.replace(second_round=None)
        for path, other in self.jobs():
            if other == first:
                return path
        return self.path / "round1" / sha256(repr(first.to_dict()))[:12]

    @property
    def runs(self) -> list[Run]:
        """The runs that have begun."""
        return [Run(path) for path, _ in self.jobs() if (path / "recipe.yaml").is_file()]

    @property
    def groups(self) -> dict[str, list[Run]]:
        """Finished runs by row of the table."""
        found: dict[str, list[Run]] = {}
        for row in self.plan.rows:
            found[row.label] = [Run(p) for p in self.folders(row) if Run(p).finished]
        return found

    def folders(self, row: Row) -> list[Path]:
        """Where the runs of a row are, one for each seed."""
        return [self.path / RUNS / row.folder(seed) for seed in self.plan.seeds]

    @property
    def published(self) -> dict[str, dict[str, tuple[float, float | None]]]:
        """label -> metric -> (mean, std) as published."""

        return {row.label: published_for(self.plan.published, row) for row in self.plan.rows}


def to_dict(plan: Plan) -> dict[str, Any]:
    """A plan as plain values that read back."""
    return {
        "title": plan.title,
        "claim": plan.claim,
        "recipe": plan.base.to_dict(),
        "rows": [row.model_dump(by_alias=True) for row in plan.rows],
        "seeds": list(plan.seeds),
        "published": plan.published,
        "metrics": list(plan.metrics),
    }
