"""A study folder: the plan, a folder for every run, and the table."""

import dataclasses
import shutil
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

from simgrad.core.derived import read_checked, write_checked
from simgrad.core.errors import InputError
from simgrad.core.extras import bring_back, imported
from simgrad.core.files import atomic_write, lock, sha256
from simgrad.core.typed import read_yaml
from simgrad.pages.drawers import draw
from simgrad.pages.notebook import Shown
from simgrad.runs.outcome import has_diverged
from simgrad.runs.recipe import Recipe, differing
from simgrad.runs.run import LOCK, RECIPE, Run
from simgrad.studies.belonging import own_ensemble, own_run
from simgrad.studies.plan import Plan, plan_from_dict
from simgrad.studies.space import apply, base_of, told_apart
from simgrad.studies.study_file import Row
from simgrad.studies.tuned import TRIALS, Tuning, setting_of

PLAN, RUNS, ENSEMBLES = "study.yaml", "runs", "ensembles"
SEAL = "study.json"  # the plan's hash, and files of one's own that the study was made with


@dataclass(frozen=True)
class Study:
    """A study on disk.

    Examples:
        >>> study = simgrad.Study.open("studies/mine")  # made by `simgrad study mine.yaml`
        >>> [row.label for row in study.plan.rows]
        ['triplet-sh', 'nt-xent']
        >>> study.complete, len(study.runs)
        (False, 0)
    """

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
        """Write the plan into a folder, or a corrected one over it.

        What has been trained is never changed: rows and seeds may be added, and settings of runs
        that failed or have not begun may be corrected; these are then trained again.
        """
        study, plan = Study(Path(path)), plan.settled()
        with lock(study.path / LOCK, what=f"the study {study.path}"):
            if (study.path / PLAN).is_file():
                old = study.plan
                plan = _with_old_names(_with_old_threads(study, plan, old), old)
                _keep_search(study, old, plan)
                _make_way(study, old, plan)
            study._write(plan)
        return Study(study.path)

    def with_threads(self, count: int) -> "Study":
        """This study, where every run computes with `count` threads, or with as many as was decided
        before: sums depend on it, so it is decided once."""
        with lock(self.path / LOCK, what=f"the study {self.path}"):
            study = Study(self.path)  # another command may have been first
            if study.plan.base.threads is None:
                begun = next((run.threads for run in study.runs if run.threads), None)
                study._write(study.plan.with_threads(begun or count))
        return Study(self.path)

    def _write(self, plan: Plan) -> None:
        text = yaml.safe_dump(plan.to_dict(), sort_keys=False, allow_unicode=True)
        if not self._has(text):  # else a command that joins in and is killed would harm others
            (self.path / SEAL).unlink(missing_ok=True)  # it speaks of the plan before
            with atomic_write(self.path / PLAN) as file:
                file.write(text)
            write_checked(self.path / SEAL, self._seal())

    def _seal(self) -> dict[str, Any]:
        return {"files": {PLAN: sha256(self.path / PLAN)}, "with": imported()}

    def _has(self, text: str) -> bool:
        """Whether this plan is there already, and sealed."""
        there = all((self.path / name).is_file() for name in (PLAN, SEAL))
        if not there or (self.path / PLAN).read_text("utf-8") != text:
            return False
        return bool(read_checked(self.path / SEAL) == self._seal())

    @cached_property
    def plan(self) -> Plan:
        seal = self._kept_seal()
        if seal is not None:
            if seal["files"].get(PLAN) != sha256(self.path / PLAN):
                raise InputError(
                    f"{self.path / PLAN}: not what was written: damaged, or edited by hand. If you "
                    f"edited it, delete {SEAL} beside it."
                )
            bring_back(self.path, seal["with"])
        return plan_from_dict(read_yaml(self.path / PLAN), str(self.path / PLAN))

    def bring_back_files(self) -> None:
        """Import the user's own files that this folder remembers, before a plan names what is in
        them."""
        seal = self._kept_seal()
        if seal is not None:
            bring_back(self.path, seal["with"])

    def _kept_seal(self) -> dict[str, Any] | None:
        """What was written beside the plan; None: nothing, as before 0.2.0."""
        path = self.path / SEAL
        if not path.is_file():
            return None
        seal = read_checked(path)
        kinds = {"files": dict, "with": list}
        if not isinstance(seal, dict) or not all(
            isinstance(seal.get(key), kind) for key, kind in kinds.items()
        ):
            raise InputError(
                f"{path}: not what a study writes, so nobody knows whether {PLAN} is whole. Copy "
                f"it again; if {PLAN} is right, delete {SEAL}."
            )
        return seal

    def plot(self) -> Shown:
        """Who leads, and how training went, drawn in a notebook: `simgrad.plot` of this study."""
        return draw("plot", self)

    def __repr__(self) -> str:
        jobs = self.jobs()
        done = sum(Run(path).finished for path, _ in jobs)
        return f"<study {self.path.name}: {done} of {len(jobs)} runs finished>"

    @property
    def title(self) -> str:
        return self.plan.title

    def jobs(self) -> list[tuple[Path, Recipe]]:
        """Every run of the table: where, and what; of a tuned row once its setting is chosen."""
        if self.plan.tune is None:
            return [(self.path / RUNS / name, recipe) for name, _, recipe in self.plan.runs()]
        settings = {}
        for tuning in self.tunings:
            record = tuning.record
            settings[tuning.name] = None if record is None else setting_of(record)
        return [
            (self.path / RUNS / name, apply(base_of(self.plan.tune, recipe), setting))
            for name, row, recipe in self.plan.runs()
            if (setting := settings[row.name]) is not None
        ]

    @cached_property
    def tunings(self) -> list[Tuning]:
        """The search of each row; none where nothing is tuned."""
        plan = self.plan
        if plan.tune is None:
            return []
        recipes = [plan.recipe(row, 0) for row in plan.rows]
        fixed = tuple(told_apart(recipes))
        return [
            Tuning(self.path, row.name, recipe, plan.tune.of_row(row.space), fixed)
            for row, recipe in zip(plan.rows, recipes, strict=True)
        ]

    @property
    def complete(self) -> bool:
        """Whether nothing is left to do; refused if a folder holds another row's run."""
        searched = all(tuning.record is not None for tuning in self.tunings)
        runs = [own_run(*job) for job in self.jobs()]
        return searched and all(run.finished for run in runs)

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
        return [own_run(*job) for job in self.jobs() if (job[0] / RECIPE).is_file()]

    @property
    def groups(self) -> dict[str, list[Run]]:
        """Finished runs by row of the table."""
        return {
            row.label: [run for run in self.runs_of(row) if run.finished] for row in self.plan.rows
        }

    def runs_of(self, row: Row) -> list[Run]:
        """The runs of a row, one for each seed, begun or not; of ensembles, what their test found.

        Refused if one is not the row's own: every number of a study is read from these.
        """
        if row.ensemble:
            several = zip(self.folders(row), self.members(row), strict=True)
            return [own_ensemble(folder, members) for folder, members in several]
        asked = dict(self.jobs())
        return [own_run(p, asked[p]) if p in asked else Run(p) for p in self.folders(row)]

    @property
    def ended(self) -> dict[str, list[Run]]:
        """By row of the table: finished runs, and those that diverged. Both are results."""
        return {
            row.label: [r for r in self.runs_of(row) if r.finished or has_diverged(r)]
            for row in self.plan.rows
        }

    @property
    def draws(self) -> dict[str, list[list[Run]]]:
        """By row of the table: ended runs, those of one independent draw together.

        Each seed is a draw of its own. Draws without an ended run are left out.
        """
        return {label: [[run] for run in runs] for label, runs in self.ended.items()}

    @property
    def new_splits(self) -> bool:
        """Whether each draw is tested on images of its own."""
        return False

    def folders(self, row: Row) -> list[Path]:
        """Where the runs of a row are."""
        if row.ensemble:
            seeds = self.plan.seeds[: row.ensembles(len(self.plan.seeds))]
            return [self.path / ENSEMBLES / row.folder(seed) for seed in seeds]
        return [self.path / RUNS / row.folder(seed) for seed in self.plan.seeds]

    def members(self, row: Row) -> list[list[Run]]:
        """The runs of each ensemble: one for each seed, fewer where a row is named twice."""
        runs = {other.label: self.runs_of(other) for other in self.plan.rows if not other.ensemble}
        times = Counter(row.ensemble)
        found = []
        for number in range(row.ensembles(len(self.plan.seeds))):
            taken: Counter[str] = Counter()
            members = []
            for label in row.ensemble:
                members.append(runs[label][number * times[label] + taken[label]])
                taken[label] += 1
            found.append(members)
        return found


def _keep_search(study: "Study", old: Plan, new: Plan) -> None:
    """More trials are welcome before a run of the table has begun; nothing else may change."""
    spaces = {row.name: row.space for row in old.rows}
    alike = all(spaces.get(row.name, row.space) == row.space for row in new.rows)
    if old.tune == new.tune and alike:
        return
    only_longer = (
        alike
        and old.tune is not None
        and new.tune is not None
        and old.tune.to_dict() == {**new.tune.to_dict(), "trials": old.tune.trials}
        and new.tune.trials >= old.tune.trials
    )
    begun = any(path.is_dir() for path, _ in study.jobs())
    if begun or (not only_longer and (study.path / TRIALS).is_dir()):
        raise InputError(
            f"{study.path} holds a study whose search settings differ from these and whose "
            f"{'runs' if begun else 'trials'} have begun: choose another --output."
        )
    for tuning in study.tunings:
        tuning.path.unlink(missing_ok=True)  # to be chosen anew, with the trials to come


def _with_old_threads(study: "Study", plan: Plan, old: Plan) -> Plan:
    """What was decided about threads stays; another number is refused once it was used."""
    asked, before = plan.base.threads, old.base.threads
    if asked is None:
        return plan.with_threads(before)
    used = bool(study.runs) or (study.path / TRIALS).is_dir()
    if before not in (None, asked) and used:
        raise InputError(
            f"{study.path} holds a study that has begun with --threads {before}, and sums depend "
            "on it: leave the number as it was, or choose another --output."
        )
    return plan


def _with_old_names(plan: Plan, old: Plan) -> Plan:
    """Rows that were there before keep the names of their folders."""
    known = {_key(old.recipe(row, 0)): row.name for row in old.rows if not row.ensemble}
    rows = [
        row if row.ensemble else row.renamed(known.get(_key(plan.recipe(row, 0)), row.name))
        for row in plan.rows
    ]
    return dataclasses.replace(plan, rows=tuple(rows))


def _key(recipe: Recipe) -> str:
    return repr(recipe.to_dict())


def _make_way(study: "Study", old: Plan, new: Plan) -> None:
    """Remove failed runs whose settings were corrected; refuse to change what was trained."""
    before = {name: recipe for name, _, recipe in old.runs()}
    gone = [study.path / RUNS / name for name in before.keys() - {n for n, _, _ in new.runs()}]
    stale, kept = [folder for folder in gone if _never_began(folder)], {}
    for name, _, recipe in new.runs():
        changed = differing(before.get(name, recipe), recipe)
        folder = study.path / RUNS / name
        if not changed or not folder.exists():
            continue
        if Run(folder).info.get("status") in ("waiting", "failed"):
            stale.append(folder)
        else:
            kept[name] = changed
    if kept:
        fields = ", ".join(sorted({field for changed in kept.values() for field in changed}))
        raise InputError(
            f"{study.path} holds a study in which {', '.join(kept)} were trained with another "
            f"recipe ({fields} differ): give another --output, or remove their folders."
        )
    for folder in stale:
        if folder.is_symlink():
            raise InputError(
                f"{folder}: a link to another folder, from which nothing is removed. Its run has "
                "other settings now: remove the link, or choose another --output."
            )
        with lock(folder / LOCK, wait=False, what=f"the run {folder}"):
            for part in folder.iterdir():
                if part.name != LOCK:
                    linked = part.is_symlink()
                    shutil.rmtree(part) if part.is_dir() and not linked else part.unlink()
    for folder in set(stale) & set(gone):
        shutil.rmtree(folder, ignore_errors=True)


def _never_began(folder: Path) -> bool:
    """A run that failed before its first step: nothing of it is worth keeping."""
    info = Run(folder).info
    return info.get("status") == "failed" and "steps" not in info
