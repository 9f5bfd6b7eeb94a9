"""A study folder: the plan, a folder for every run, and the table."""

import warnings
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from simgrad.core.derived import read_checked, write_checked
from simgrad.core.errors import InputError
from simgrad.core.extras import bring_back, imported
from simgrad.core.files import atomic_write, lock, sha256
from simgrad.core.lazy import ask
from simgrad.core.text import counted, near_path
from simgrad.core.typed import read_yaml
from simgrad.pages.rendering import Shown
from simgrad.runs.outcome import has_diverged
from simgrad.runs.recipe import Recipe
from simgrad.runs.run import LOCK, RECIPE, TEST, Run
from simgrad.studies.belonging import own_ensemble, own_run
from simgrad.studies.correcting import RUNS as RUNS
from simgrad.studies.correcting import corrected
from simgrad.studies.earlier_looks import looks_of, note_look
from simgrad.studies.plan import Plan, plan_from_dict, read_plan
from simgrad.studies.space import apply, base_of, told_apart
from simgrad.studies.study_file import Row
from simgrad.studies.tuned import Tuning, setting_of

if TYPE_CHECKING:
    from simgrad.studies.table import StudyTable

PLAN, ENSEMBLES = "study.yaml", "ensembles"
SEAL = "study.json"  # the plan's hash, and files of one's own that the study was made with
_SHOWN = 5  # runs that a warning names


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

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", Path(self.path))

    def __fspath__(self) -> str:
        """A study stands for its folder wherever a path is taken."""
        return str(self.path)

    @staticmethod
    def open(path: "str | Path | Study") -> "Study":
        """A study folder."""
        if isinstance(path, Study):
            return path
        path = Path(path)
        if not (path / PLAN).is_file():
            if not path.exists():
                raise InputError(f"{path}: no such folder.{near_path(path)}")
            raise InputError(f"{path}: not a study: it has no {PLAN}.")
        return Study(path)

    @staticmethod
    def create(plan: Plan | Mapping[str, Any] | str | Path, path: str | Path) -> "Study":
        """Write the plan into a folder, or a corrected one over it.

        The plan may be a study file, or what stands in one: {"recipe": {...}, "rows": [...]}.

        What has been trained is never changed: rows and seeds may be added, and settings of runs
        that failed or have not begun may be corrected; these are then trained again. Finished runs
        in the folder that are in no row are told.
        """
        if isinstance(plan, str | Path):
            plan = read_plan(plan)
        elif isinstance(plan, Mapping):
            plan = plan_from_dict(plan, Path(path).name)
        study, plan = Study(Path(path)), plan.settled()
        with lock(study.path / LOCK, what=f"the study {study.path}"):
            if (study.path / PLAN).is_file():
                plan = corrected(study, plan)
                note_look(study, plan)
            study._write(plan)
            study._tell_others(plan)
        return Study(study.path)

    def _tell_others(self, plan: Plan) -> None:
        """Warn of finished runs in this folder that no table of the plan has."""
        own = {name for name, _, _ in plan.runs()}
        tested = {path.parent.name for path in (self.path / RUNS).glob(f"*/{TEST}")}
        left = sorted(tested - own)
        if left:
            shown = ", ".join([*left[:_SHOWN], *(["..."] if len(left) > _SHOWN else [])])
            told = f"{counted(len(left), 'finished run', 'are')} in no row of this plan: {shown}"
            warnings.warn(f"{self.path}: {told}.", stacklevel=3)

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

    def train(self, processes: int | None = None, *, quiet: bool = False) -> "Study":
        """Train what is missing, with as many processes as help, and write the tables.

        Stopped and called again, it resumes. Runs that fail do not stop the others; the table
        names how many seeds each row has.
        """
        ask("train_study", self, processes, quiet)
        return Study(self.path)

    def table(self) -> "StudyTable":
        """A row for each setting: mean and deviation over seeds, differences from the baseline."""
        made: StudyTable = ask("build_table", self)
        return made

    def to_frame(self) -> Any:
        """The table as a pandas DataFrame, one line for each row and metric."""
        return self.table().to_frame()

    def plot(self) -> Shown:
        """Who leads, and how training went, drawn in a notebook: `simgrad.plot` of this study."""
        shown: Shown = ask("plot", self)
        return shown

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
        """The search of each row in each replicate; none where nothing is tuned."""
        plan = self.plan
        if plan.tune is None:
            return []
        fixed = tuple(told_apart([plan.recipe(row, 0) for row in plan.rows]))
        return [
            Tuning(self.path, row.name, one.recipe(row, 0), one.tune.of_row(row.space), fixed)
            for one in plan.replicates
            for row in one.rows
            if one.tune is not None
        ]

    def tunings_of(self, row: Row) -> list[Tuning]:
        """The searches of a row: one for each replicate."""
        own = {one.name for one in self._replicates_of(row)}
        return [tuning for tuning in self.tunings if tuning.name in own]

    def _replicates_of(self, row: Row) -> list[Row]:
        """A row as each replicate has it."""
        place = [one.label for one in self.plan.rows].index(row.label)
        return [one.rows[place] for one in self.plan.replicates]

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
        told = first.to_dict()
        if told["resplit"] is None:  # folders of before are called so
            del told["resplit"]
        return self.path / "round1" / sha256(repr(told))[:12]

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
        """The runs of a row, one for each seed of each replicate, begun or not; of ensembles, what
        their test found.

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

        A replicate is a draw; without replicates each seed is one. Draws without an ended run are
        left out; the seeds in the runs' recipes tell which is which.
        """
        if len(self.plan.replicates) == 1:
            return {label: [[run] for run in runs] for label, runs in self.ended.items()}
        seeds = [set(one.seeds) for one in self.plan.replicates]
        found: dict[str, list[list[Run]]] = {}
        for label, runs in self.ended.items():
            draws = [[run for run in runs if run.recipe.seed in own] for own in seeds]
            found[label] = [draw for draw in draws if draw]
        return found

    @property
    def looked(self) -> tuple[str, ...]:
        """With how many draws it was looked at before it got more."""
        return looks_of(self.path)

    @property
    def new_splits(self) -> bool:
        """Whether each draw is tested on images of its own."""
        return self.plan.tune is not None and self.plan.tune.splits == "new"

    def folders(self, row: Row) -> list[Path]:
        """Where the runs of a row are."""
        if row.ensemble:
            seeds = self.plan.seeds[: row.ensembles(len(self.plan.seeds))]
            return [self.path / ENSEMBLES / row.folder(seed) for seed in seeds]
        own = zip(self._replicates_of(row), self.plan.replicates, strict=True)
        return [self.path / RUNS / r.folder(seed) for r, one in own for seed in one.seeds]

    def members(self, row: Row) -> list[list[Run]]:
        """The runs of each ensemble: one for each seed, fewer where a row is named twice."""
        runs = {o.label: self.runs_of(o) for o in self.plan.rows if o.label in row.ensemble}
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
