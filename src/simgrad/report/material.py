"""What a report is about: systems, each run with one or several seeds, in comparable groups."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from simgrad.core.errors import InputError
from simgrad.evaluation import Ranks, headlines, metric_of
from simgrad.pages.svg import LIGHT
from simgrad.runs.naming import label_of
from simgrad.runs.outcome import MODEL, has_diverged
from simgrad.runs.recipe import MACHINE, Recipe
from simgrad.runs.run import BEST, INFO, RANKS, RECIPE, Run
from simgrad.studies.papers import beside_rows, timings
from simgrad.studies.study import PLAN, Study

# What may differ between runs of one setting: the seed, and where and how they were run.
_NOT_THE_SETTING = ("seed", *MACHINE)
_MOST_RUNS = 2000
ANSWER = "answer.txt"  # what `simgrad choose` writes


@dataclass(frozen=True)
class System:
    """One setting and its runs, or the mean similarities of other settings' models."""

    label: str
    group: str
    runs: tuple[Run, ...]  # those that have begun, by seed; of an average, its tests
    planned: int
    baseline: bool = False
    published: dict[str, tuple[float, float | None]] = field(default_factory=dict)
    unlike: str = ""  # why the published numbers are not comparable; "" where they are
    tuned: tuple[dict[str, Any], ...] = ()  # what its searches found, where there were any
    timed: Mapping[Path, dict[str, float]] = field(default_factory=dict)  # by run's folder
    average_of: tuple[str, ...] = ()  # an average: it has a test, no recipe and no training
    replicates: tuple[tuple[Run, ...], ...] = ()  # ended runs by replicate, where there are any
    new_images: bool = False  # each replicate was tested on images of its own
    shortened: bool = False  # too short a training to say who is ahead
    looked: tuple[str, ...] = ()  # with how many draws its study was looked at before it got more

    @cached_property
    def finished(self) -> tuple[Run, ...]:
        return tuple(run for run in self.runs if run.finished)

    @cached_property
    def ended(self) -> tuple[Run, ...]:
        """Finished runs, and those that diverged."""
        return tuple(run for run in self.runs if run.finished or has_diverged(run))

    @property
    def draws(self) -> list[list[Run]]:
        """Ended runs by independent draw: by replicate, or each alone."""
        return [list(one) for one in self.replicates] or [[run] for run in self.ended]

    @cached_property
    def tested(self) -> tuple[Run, ...]:
        """Finished runs with numbers on the test split."""
        return tuple(run for run in self.finished if run.test)

    @cached_property
    def ranks(self) -> list[Ranks]:
        """Per-query test ranks, one for each run that kept them."""
        return [run.ranks() for run in self.tested if (run.path / RANKS).is_file()]

    @cached_property
    def histories(self) -> list[list[dict[str, Any]]]:
        """Evaluations of each run that has any."""
        return [history for run in self.runs if (history := run.history)]

    @cached_property
    def recipe(self) -> Recipe | None:
        return self.runs[0].recipe if self.runs and not self.average_of else None

    @cached_property
    def with_checkpoint(self) -> Run | None:
        """A run whose best checkpoint can be asked, a finished one if there is any."""
        runs = (*self.finished, *self.runs)
        return next((run for run in runs if (run.path / BEST).is_dir()), None)

    def values(self, split: str) -> list[dict[str, float]]:
        """The metrics of each run: on the test split, or the best on the validation split."""
        if split == "test":
            return [{**run.test, **self.timed.get(run.path, {})} for run in self.tested]
        found = []
        for run, history in ((run, run.history) for run in self.runs):
            if history:
                values = [entry["val"] for entry in history]
                select = run.recipe.select
                best = metric_of(select).best(v.get(select, math.nan) for v in values)
                found.append(dict(next((v for v in values if v.get(select) == best), values[-1])))
        return found


@dataclass(frozen=True)
class Material:
    """Everything a report is made from."""

    title: str
    claim: str
    systems: tuple[System, ...]
    metrics: tuple[str, ...]
    targets: tuple[Path, ...]
    source: str = "as printed"  # where published numbers are from
    answer: tuple[str, ...] = ()  # what `simgrad choose` said of it, where it did
    compared: bool = True  # False: of a choice that had no time for two objectives

    @cached_property
    def split(self) -> str:
        """`test` where any run has test numbers, else `val`; "" before the first evaluation."""
        if any(system.tested for system in self.systems):
            return "test"
        return "val" if any(system.histories for system in self.systems) else ""

    @cached_property
    def groups(self) -> dict[str, list[System]]:
        """Systems that may be compared with each other."""
        found: dict[str, list[System]] = {}
        for system in self.systems:
            found.setdefault(system.group, []).append(system)
        return found

    @cached_property
    def runs(self) -> list[tuple[System, Run]]:
        """What was trained."""
        return [(s, run) for s in self.systems if not s.average_of for run in s.runs]

    @cached_property
    def colours(self) -> dict[str, int | None]:
        """A colour for each system; where there are too many, for the best and the baselines."""
        labels = [system.label for system in self.systems]
        if len(labels) > len(LIGHT):

            def merit(system: System) -> float:
                values = [v.get("rsum", 0.0) for v in system.values(self.split)]
                return 1e6 * system.baseline + (sum(values) / len(values) if values else -1.0)

            chosen = sorted(self.systems, key=merit, reverse=True)[: len(LIGHT)]
            labels = [system.label for system in self.systems if system in chosen]
        return {label: i for i, label in enumerate(labels)}

    def colour(self, system: System) -> int | None:
        return self.colours.get(system.label)

    @cached_property
    def missing(self) -> list[str]:
        """What is not there yet, in words."""
        lines = []
        for system in self.systems:
            waiting = system.planned - len(system.runs)
            if waiting:
                words = (
                    "averages wait for their models" if system.average_of else "runs have not begun"
                )
                lines.append(f"{system.label}: {waiting} of {system.planned} {words}.")
            for run in system.runs:
                if not run.finished and not has_diverged(run):
                    lines.append(f"{system.label}, {_state(run)}")
        return lines


def _state(run: Run) -> str:
    info, history = run.info, run.history
    status = {"running": "not finished", "waiting": "not begun"}.get(
        str(info.get("status")), str(info.get("status"))
    )
    if not history:
        return f"seed {run.recipe.seed}: {status}, before its first evaluation."
    last = history[-1]
    return (
        f"seed {run.recipe.seed}: {status} at step {last['step']:,} "
        f"(epoch {last['epoch']:.1f} of {run.recipe.epochs + run.recipe.finetune_epochs})."
    )


def collect(targets: Sequence[str | Path]) -> Material:
    """Open studies and runs; an error names what is neither."""
    if not targets:
        raise InputError("there is nothing to draw or report: give a study's folder, or some runs.")
    paths = tuple(Path(target).expanduser() for target in targets)
    studies = [Study.open(path) for path in paths if (path / PLAN).is_file()]
    runs = [run for path in paths if not (path / PLAN).is_file() for run in _runs_in(path)]
    systems = [s for study in studies for s in _of_study(study, len(studies) > 1)]
    systems += _of_runs(runs)
    titles = [study.title for study in studies]
    if not titles:
        titles = [runs[0].name if len(runs) == 1 else f"{len(runs)} runs"]
    claim = studies[0].plan.claim if len(studies) == 1 and not runs else ""
    metrics = studies[0].plan.metrics if len(studies) == 1 else headlines()
    found = Material(" · ".join(titles), claim, tuple(_distinct(systems)), metrics, paths)
    if len(studies) == 1 and not runs:
        found = replace(found, answer=_answer(studies[0].path / ANSWER))
    alone = runs[0].path.parent if len(runs) == 1 and not studies else None
    if alone is not None and runs[0].name == MODEL and not (alone / PLAN).is_file():
        title = f"Which objective for {alone.resolve().name}?"
        if answer := _answer(alone / ANSWER):  # of a choice that had no time to compare
            found = replace(found, answer=answer, title=title, compared=False)
    if len(studies) == 1 and studies[0].plan.published:
        found = replace(found, source=_source(studies[0].plan.published))
    return found


def _answer(path: Path) -> tuple[str, ...]:
    if not path.is_file():
        return ()
    return tuple(path.read_text(encoding="utf-8", errors="replace").splitlines())


def _source(published: dict[str, Any]) -> str:
    """`from goal_table3.csv (dataset coco, split test5k)`"""
    where = ", ".join(f"{key} {value}" for key, value in published.get("where", {}).items())
    return f"from {published.get('table')}" + (f" ({where})" if where else "")


def _runs_in(path: Path) -> list[Run]:
    """A run, or the runs in a folder of them."""
    if path.is_dir() and not (path / RECIPE).is_file():
        inside = sorted(p.parent for p in path.glob(f"*/{RECIPE}"))[:_MOST_RUNS]
        if inside:
            return [Run(folder) for folder in inside]
        raise InputError(f"{path}: neither a study ({PLAN}) nor a run ({RECIPE}).")
    return [Run.open(path)]


def _of_study(study: Study, several: bool) -> list[System]:
    systems = []
    published, timed = beside_rows(study.plan.published, study.plan.rows), timings(study)
    for row in study.plan.rows:
        planned, begun = study.runs_of(row), INFO if row.ensemble else RECIPE
        runs = tuple(run for run in planned if (run.path / begun).is_file())
        group = f"{study.title}: {row.group}".rstrip(": ") if several else row.group
        paper, recipe = published[row.label], study.plan.recipe(row, 0)
        unlike = "" if paper.comparable(recipe) else f"{paper.dataset}, {paper.protocol}"
        systems.append(
            System(
                row.label,
                group,
                runs,
                len(planned),
                row.baseline,
                paper.cells,
                unlike,
                tuple(r for tuning in study.tunings_of(row) if (r := tuning.record) is not None),
                timed,
                tuple(row.ensemble),
                tuple(map(tuple, study.draws[row.label])) if len(study.plan.replicates) > 1 else (),
                study.new_splits,
                study.plan.short,
                study.looked,
            )
        )
    return systems


def _of_runs(runs: Sequence[Run]) -> list[System]:
    """Runs that differ in their seed alone are one system; its label says what else differs."""
    settings: dict[str, list[Run]] = {}
    for run in runs:
        values = {k: v for k, v in run.recipe.to_dict().items() if k not in _NOT_THE_SETTING}
        settings.setdefault(repr(values), []).append(run)
    recipes = [group[0].recipe.to_dict() for group in settings.values()]
    varied = [
        key
        for key in (recipes[0] if recipes else {})
        if key not in _NOT_THE_SETTING and len({repr(recipe[key]) for recipe in recipes}) > 1
    ]
    systems = []
    for recipe, group in zip(recipes, settings.values(), strict=True):
        group.sort(key=lambda run: run.recipe.seed)
        parts = [label_of(str(recipe["objective"]))] if "objective" in varied or not varied else []
        parts += [f"{key}={recipe[key]}" for key in varied if key not in ("objective", "data")]
        data = str(recipe["data"]) if "data" in varied else ""
        label = ", ".join(parts) or label_of(str(recipe["objective"]))
        systems.append(System(label, data, tuple(group), len(group)))
    return systems


def _distinct(systems: Sequence[System]) -> list[System]:
    """Labels that name one system each."""
    labels = [system.label for system in systems]
    found, seen = [], set()
    for system in systems:
        label = system.label
        if labels.count(label) > 1 and system.group:
            label = f"{label} ({system.group})"
        number = 2
        while label in seen:
            label, number = f"{system.label} [{number}]", number + 1
        seen.add(label)
        found.append(replace(system, label=label))
    return found
