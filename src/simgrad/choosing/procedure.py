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

from simgrad.choosing.answer import Answer, answer_alone, answer_of
from simgrad.choosing.choice import CHOICE, Choice
from simgrad.choosing.omitting import FEATURES, LIST
from simgrad.choosing.pilot import PILOT
from simgrad.choosing.planning import Wish, decide, estimate, spec
from simgrad.choosing.telling import plan_text
from simgrad.core.console import say_wrapped
from simgrad.core.errors import InputError
from simgrad.core.files import lock
from simgrad.objectives import objective
from simgrad.runs.naming import slug
from simgrad.runs.outcome import still_rising
from simgrad.runs.recipe import Recipe
from simgrad.studies.engine import failures, only_diverged, run_local
from simgrad.studies.study import PLAN, Study
from simgrad.studies.table import build_table, write_tables

_LOCK = ".choose.lock"
_BEFORE = (LIST, FEATURES, PILOT)  # what lies in a folder before there is a plan


def choose(
    data: str | Path,
    minutes: float = 30.0,
    *,
    objectives: Sequence[str] = (),
    model: str | None = None,
    features: str | Path | None = None,
    epochs: int | None = None,
    short: bool = False,
    skip: str | Path | None = None,
    output: str | Path | None = None,
    device: str = "auto",
    strict: bool = False,
    quiet: bool = False,
) -> Answer:
    """Compare objectives on your data; to resume, call it again.

    Args:
        data: a folder or file in a known layout, or a spec such as 'scenes(train=1000)'; or the
            output folder of an earlier call, to resume it or to get its answer again.
        minutes: about how long it may take, computing features included.
        objectives: two or more objectives, the last are left out first; by default
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

    Examples:
        >>> answer = simgrad.choose("photos/", minutes=30)  # doctest: +SKIP
        >>> print(answer.text)  # doctest: +SKIP
        >>> simgrad.train(answer.recipe, "runs/full")  # doctest: +SKIP
    """
    wish, folder = asked(
        str(data), minutes, objectives, model, features, epochs, short, skip, output, device, strict
    )
    _refuse_foreign(folder)
    new = [one for one in (folder, *folder.parents) if not one.exists()]
    with (
        _withdrawn(folder, new),
        lock(folder / _LOCK, wait=False, what=f"the choice {folder}"),
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


def dry_run(wish: Wish, folder: Path) -> str:
    """The plan in words: the one that was made, else an estimate. Nothing is written."""
    _refuse_foreign(folder)
    choice = Choice.read(folder)
    if choice is None:
        told = (
            "an estimate from stated rates of idle cores: nothing was timed, nothing is written; "
            "where others compute, less fits"
        )
        return plan_text(estimate(wish), told)
    _same(choice, folder, wish)
    return plan_text(choice, str(folder / CHOICE))


def asked(
    data: str,
    minutes: float,
    objectives: Sequence[str],
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
    folder = Path(output) if output is not None else Path("choose") / _name(data)
    if (Path(data) / CHOICE).is_file():
        folder, data = Path(data), ""
    names = tuple(str(objective(one)) and one for one in objectives)  # an unknown one is named
    if len(names) == 1 or len(set(names)) < len(names):
        raise InputError("--objectives: name two or more, each once.")
    if not 0 < minutes < math.inf:
        raise InputError(f"--minutes is more than 0, not {minutes}.")
    if epochs is not None and epochs < 1:
        raise InputError(f"--epochs is 1 or more, not {epochs}.")
    where = [None if one is None else str(one) for one in (features, skip)]
    wish = Wish(data, minutes, names, model, where[0], epochs, short, where[1], device, strict)
    return wish, folder


@contextmanager
def _withdrawn(folder: Path, new: list[Path]) -> Iterator[None]:
    """Leave no lock and no new folder behind for a choice that could not begin."""
    try:
        yield
    except InputError:
        with suppress(OSError, InputError):  # another process has it, or a folder is not empty
            if not (folder / CHOICE).exists():
                with lock(folder / _LOCK, wait=False):
                    (folder / _LOCK).unlink()
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
                "--output a new or an empty folder."
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
            f"{folder} holds a plan with other {' and '.join(other)}: give another --output."
        )
