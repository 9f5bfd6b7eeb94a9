"""`simgrad.choose`: which objective for these data? Tuned, compared, answered.

The steps: look at the data, compute features where there are pictures, run a tuned study, write its
table and report. Before the study, a timing and a pilot decide how much fits into the time. That
plan is written to choose.json. From then on no clock is read: however often it is stopped and
resumed, all of the plan is done.
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Literal, overload

from simgrad.choosing.answer import Answer, answer_alone, answer_of
from simgrad.choosing.choice import CHOICE, Choice
from simgrad.choosing.omitting import FEATURES, LIST
from simgrad.choosing.pilot import PILOT
from simgrad.choosing.planning import TIMING, Wish, decide, estimate, spec
from simgrad.choosing.telling import plan_text
from simgrad.core.console import say_wrapped
from simgrad.core.errors import InputError
from simgrad.core.files import lock
from simgrad.data.base import Dataset, Origin
from simgrad.objectives import Objective, objective
from simgrad.runs.naming import slug
from simgrad.runs.outcome import CHOOSING, still_rising
from simgrad.runs.recipe import Recipe
from simgrad.studies.engine import failures, only_diverged, run_local
from simgrad.studies.study import PLAN, Study
from simgrad.studies.table import build_table, write_tables

_BEFORE = (LIST, FEATURES, PILOT, TIMING)  # what lies in a folder before there is a plan


class PlanText(str):
    """A plan in words, which a notebook or a prompt shows line by line."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


@overload
def choose(
    data: str | Path | Dataset,
    minutes: float = 30.0,
    *,
    objectives: Sequence[str | Objective] = (),
    model: str | None = None,
    features: str | Path | None = None,
    epochs: int | None = None,
    short: bool = False,
    skip: str | Path | None = None,
    output: str | Path | None = None,
    device: str = "auto",
    strict: bool = False,
    quiet: bool = False,
    dry_run: Literal[True],
) -> PlanText: ...


@overload
def choose(
    data: str | Path | Dataset,
    minutes: float = 30.0,
    *,
    objectives: Sequence[str | Objective] = (),
    model: str | None = None,
    features: str | Path | None = None,
    epochs: int | None = None,
    short: bool = False,
    skip: str | Path | None = None,
    output: str | Path | None = None,
    device: str = "auto",
    strict: bool = False,
    quiet: bool = False,
    dry_run: Literal[False] = False,
) -> Answer: ...


def choose(
    data: str | Path | Dataset,
    minutes: float = 30.0,
    *,
    objectives: Sequence[str | Objective] = (),
    model: str | None = None,
    features: str | Path | None = None,
    epochs: int | None = None,
    short: bool = False,
    skip: str | Path | None = None,
    output: str | Path | None = None,
    device: str = "auto",
    strict: bool = False,
    quiet: bool = False,
    dry_run: bool = False,
) -> Answer | PlanText:
    """Compare objectives on your data; to resume, call it again.

    Args:
        data: a folder or file in a known layout, a spec such as 'scenes(train=1000)', or what
            `open_dataset` opened; or the output folder of an earlier call, to resume it or to get
            its answer again.
        minutes: about how long it may take, computing features included.
        objectives: two or more, as specs or objects, the last are left out first; by default
            focused-deviance, nt-xent, a cell of goal, triplet-sh and siglip.
        model: the model to train.
        features: a folder written by `simgrad features`.
        epochs: how long you will train in the end; by default a pilot finds it.
        short: compare trainings shorter than half of that, too; nobody is then called ahead.
        skip: a list written by `simgrad datasets --fix`.
        output: the folder to write (default: choose/DATA).
        device: auto, cpu, cuda, cuda:N or mps.
        strict: refuse missing or broken pictures; by default up to 2 % are left out, and the
            answer says which.
        quiet: print no plan and no progress.
        dry_run: return the plan, a text, estimated from stated rates; nothing is computed or
            written.

    Examples:
        >>> print(simgrad.choose("photos/", minutes=30, dry_run=True))  # doctest: +SKIP
        >>> answer = simgrad.choose("photos/", minutes=30)  # doctest: +SKIP
        >>> print(answer.text)  # doctest: +SKIP
        >>> simgrad.train(answer.recipe, "runs/full")  # doctest: +SKIP
    """
    wish, folder = asked(
        data, minutes, objectives, model, features, epochs, short, skip, output, device, strict
    )
    if dry_run:
        return _planned(wish, folder)
    _refuse_foreign(folder)
    new = [one for one in (folder, *folder.parents) if not one.exists()]
    with (
        _withdrawn(folder, new),
        lock(folder / CHOOSING, wait=False, what=f"the choice {folder}"),
    ):
        choice = Choice.read(folder)
        if choice is None:
            choice = decide(wish, folder, quiet)
            choice.write(folder)
        else:
            _same(choice, folder, wish)
        if not quiet:
            say_wrapped(plan_text(choice, str(folder / CHOICE)), stderr=True)
        if choice.alone:
            return answer_alone(choice, folder, quiet)
        study = _study(choice, folder)
        run_local(study, choice.processes, quiet)
        write_tables(build_table(study), study.path)
        if not only_diverged(study):
            _refuse_unfinished(study)
        return answer_of(choice, _short_if_rising(study), quiet)


def _planned(wish: Wish, folder: Path) -> PlanText:
    """The plan in words: the one that was made, else an estimate. Nothing is written."""
    _refuse_foreign(folder)
    choice = Choice.read(folder)
    if choice is None:
        told = (
            "an estimate from stated rates of idle cores: nothing was timed, nothing is written; "
            "where others compute, less fits"
        )
        return PlanText(plan_text(estimate(wish), told))
    _same(choice, folder, wish)
    return PlanText(plan_text(choice, str(folder / CHOICE)))


def asked(
    data: str | Path | Dataset,
    minutes: float,
    objectives: Sequence[str | Objective],
    model: str | None,
    features: str | Path | None,
    epochs: int | None,
    short: bool,
    skip: str | Path | None,
    output: str | Path | None,
    device: str,
    strict: bool = False,
) -> tuple[Wish, Path]:
    """What is asked for, checked, and the folder of it."""
    if isinstance(data, Dataset):
        data, features, skip = _origin(data, features, skip)
    data = str(data)
    folder = Path("choose") / _name(data) if output is None else Path(output).expanduser()
    earlier = Path(data).expanduser()
    if (earlier / CHOICE).is_file():
        folder, data = earlier, ""
    objectives = [objectives] if isinstance(objectives, str | Objective) else objectives
    names = tuple(str(objective(one)) and str(one) for one in objectives)  # an unknown one is named
    if len(names) == 1 or len(set(names)) < len(names):
        raise InputError("`objectives` is a list of two or more, each once.")
    if not isinstance(minutes, int | float) or not 0 < minutes < math.inf:
        raise InputError(f"`minutes` is a number above 0, not {minutes!r:.60}.")
    if epochs is not None and (not isinstance(epochs, int) or epochs < 1):
        raise InputError(f"`epochs` is 1 or more, not {epochs!r:.60}.")
    where = [None if one is None else str(one) for one in (features, skip)]
    wish = Wish(data, minutes, names, model, where[0], epochs, short, where[1], device, strict)
    return wish, folder


def _origin(
    dataset: Dataset, features: str | Path | None, skip: str | Path | None
) -> tuple[str, str | Path | None, str | Path | None]:
    """Where opened data lie: a choice, and whoever resumes it, opens them again."""
    origin = dataset.origin
    if origin is None or origin != Origin(origin.data, origin.features, origin.skip):
        raise InputError(
            f"`data`: of {dataset.name} only what its file or folder holds can be opened again, "
            "and these were put together or cut in Python: give the file or folder."
        )
    return origin.data, features or origin.features, skip or origin.skip


@contextmanager
def _withdrawn(folder: Path, new: list[Path]) -> Iterator[None]:
    """Leave no lock and no new folder behind for a choice that could not begin."""
    try:
        yield
    except InputError:
        with suppress(OSError, InputError):  # another process has it, or a folder is not empty
            if not (folder / CHOICE).exists():
                with lock(folder / CHOOSING, wait=False):
                    (folder / CHOOSING).unlink()
                for one in new:
                    one.rmdir()
        raise


def _refuse_foreign(folder: Path) -> None:
    """A choice has its folder for itself: it replaces what has the names of its parts."""
    if folder.is_dir() and not (folder / CHOICE).exists():
        names = sorted(one.name for one in folder.iterdir() if not one.name.startswith("."))
        if theirs := [name for name in names if name not in _BEFORE]:
            more = ", ..." if len(theirs) > 3 else ""
            raise InputError(
                f"{folder}: holds {', '.join(theirs[:3])}{more} already, and no choice: give "
                "a new or an empty folder."
            )


def _name(data: str) -> str:
    place = Path(data).expanduser()
    return slug(place.resolve().name if place.exists() else data)


def _study(choice: Choice, folder: Path) -> Study:
    """The study of the plan; seeds that somebody added to it later stay."""
    if (folder / PLAN).is_file():
        study = Study.open(folder)
        if choice.short and not study.plan.short:  # of an earlier version
            return Study.create(replace(study.plan, short=True), folder)
        return study
    return Study.create(choice.plan(_name(choice.data)), folder)


def _short_if_rising(study: Study) -> Study:
    """Too short, whatever the plan said, where an objective's validation still rose at the end.

    The study's own plan notes it, so that table, report and lab say the same as the answer.
    """
    rising = any(still_rising(runs) for runs in study.groups.values())
    if study.plan.short or not rising:
        return study
    study = Study.create(replace(study.plan, short=True), study.path)
    write_tables(build_table(study), study.path)
    return study


def _refuse_unfinished(study: Study) -> None:
    broken = failures(study)
    if broken:
        told = "\n".join(f"not finished: {name}: {why}" for name, why in broken[:5])
        raise InputError(
            f"{told}\n{len(broken)} runs did not finish; run the same command again to retry them."
        )


def _same(choice: Choice, folder: Path, wish: Wish) -> None:
    """Refuse to go on with something else than was asked for."""
    named = None if wish.model is None else Recipe(model=wish.model).settled().model
    other = choice.differs(data=spec(wish.data, choice.model) if wish.data else None, model=named)
    if wish.objectives and wish.objectives != (*choice.objectives, *choice.left_out):
        other.append("objectives")
    if wish.epochs not in (None, choice.size.full_epochs):
        other.append("epochs")
    if other:
        raise InputError(
            f"{folder} holds a plan with other {' and '.join(other)}: give another folder."
        )
