"""`simgrad choose`: which objective for these data? Tuned, compared, and told in one sentence.

Composed of what is there: a look at the data, features where there are pictures, a tuned study, its
table and report. A probe of some seconds decides how much fits into the time. That plan is written
to choose.json and done to its end, however often it is stopped: from then on no clock is asked.
"""

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Literal

import tyro

from simgrad.cli.answer import answer
from simgrad.cli.features import features as compute_features
from simgrad.cli.study import conclude
from simgrad.core.console import say, say_wrapped
from simgrad.core.cores import cores
from simgrad.core.devices import pick_device
from simgrad.core.errors import InputError
from simgrad.core.files import lock
from simgrad.core.text import counted
from simgrad.core.threads import pinned
from simgrad.data.base import Dataset
from simgrad.data.check import check, portrait
from simgrad.data.opening import EMBEDDED, absolute, embedded, open_dataset
from simgrad.models import models
from simgrad.objectives import objective
from simgrad.runs.recipe import Recipe
from simgrad.studies.choice import CHOICE, Choice
from simgrad.studies.engine import only_diverged, run_local
from simgrad.studies.journal import optuna_or_say
from simgrad.studies.naming import slug
from simgrad.studies.probe import measure
from simgrad.studies.sizing import REPEATS, largest, seconds_of
from simgrad.studies.study import PLAN, Study

# What is compared if nobody names anything; where time is short, the last are left out first.
OBJECTIVES = (
    "nt-xent", "goal(triplet=cir, pair=sig-ms)", "triplet-sh", "siglip",
    "goal(triplet=con, pair=sig)",
)  # fmt: skip
_KEPT = 3  # of these, in any case
_ON_GPU, _ON_CPU = "vse++", "vse++(dimension=256, word_dimension=128)"
_GRID = 7  # cells a side, for models that look at regions
_PROBE, _SHORTEST = 0.01, 3.0  # share of the time, and seconds: how long each objective is timed
_LONGEST = 20.0
_REPORT = 0.1  # share of the time for table and report
# Losses are sums over queries, and nearly every gradient meets the clip: all have the same length,
# the published one of triplet losses. Without a clip rules of the hardest negative begin late in a
# short training (triplet-sh on Flickr8k: 83 to 105, with it 248 to 262); as means with a clip as
# much smaller they lose to the constant in Adam's denominator. They also learn sooner after an
# epoch of all negatives, though not always better: each objective is tried with and without. The
# first trial of each is with it, near the rates that twelve of thirteen objectives chose
# (results/flickr8k/study): with few trials, one may else be judged by poor settings alone.
_RATES, _START, _CLIP, _FIRST_EPOCHS = (2e-4, 4e-3), 2e-3, 2.0, (0, 1)
_REDUCTION: Literal["sum"] = "sum"
_LOCK = ".choose.lock"
_SPLITS = ("train", "val", "test")


def choose(
    data: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="DATA")],
    *,
    minutes: float = 30.0,
    objectives: tuple[str, ...] = (),
    model: str | None = None,
    features: str | None = None,
    epochs: int | None = None,
    skip: str | None = None,
    output: Path | None = None,
    device: str = "auto",
    dry_run: bool = False,
) -> None:
    """Compare objectives on your data and recommend one. To resume, run it again.

    The command looks at the data, computes features if the data are pictures, and times a few steps
    of each objective. From that it makes a plan: how long to train, how many settings to try for
    each objective, how many seeds. Every objective gets the same budget. Settings are chosen on the
    validation split, and each chosen setting is tested once per seed.

    The output folder then holds a recommendation that says how sure it is, a report, a recipe for a
    full-length training (full-run.yaml) and the best model (model/), ready for `simgrad search`.
    "Not told apart" is an answer too: then take whichever objective you like.

    You may stop at any time. The same command resumes and ends with the same table. The plan is
    kept in choose.json; --minutes is used only when the plan is made.

    Args:
        data: a folder or file in a known layout, or a spec such as 'scenes(train=1000)'; or the
            output folder of an earlier `simgrad choose`, to resume it
        minutes: about how long it may take, computing features included
        objectives: two or more objectives to compare; by default nt-xent, two cells of goal,
            triplet-sh and siglip, as many as the time allows
        model: the model to train; by default vse++, or a narrow vse++ on a machine without a GPU
        features: a folder written by `simgrad features`; by default features of pictures are
            computed into the output folder
        epochs: how long you will train in the end; by default 30 epochs, and at least 3,000 updates
        skip: a list written by `simgrad datasets --fix`
        output: the folder to write (default: choose/DATA)
        device: auto, cpu, cuda, cuda:N or mps
        dry_run: make the plan, write it, print it and stop; the same command without this option
            carries it out
    """
    if (Path(data) / CHOICE).is_file():
        output, data = Path(data), ""
    elif output is None:
        output = Path("choose") / _name(data)
    asked = [str(objective(one)) and one for one in objectives]  # an unknown one is named at once
    if len(asked) == 1 or len(set(asked)) < len(asked):
        raise InputError("--objectives: name two or more, each once.")
    if not 0 < minutes < math.inf:
        raise InputError(f"--minutes is more than 0, not {minutes}.")
    if epochs is not None and epochs < 1:
        raise InputError(f"--epochs is 1 or more, not {epochs}.")
    optuna_or_say()  # before any work
    new = [folder for folder in (output, *output.parents) if not folder.exists()]
    with (
        _withdrawn(output, new),
        lock(output / _LOCK, wait=False, what=f"the choice {output}"),
    ):
        choice = Choice.read(output)
        if choice is None:
            choice = _decide(data, minutes, asked, model, features, epochs, skip, output, device)
            choice.write(output)
        else:
            _same(choice, output, data, asked, model, epochs)
        _tell_plan(choice, output)
        if dry_run:
            return
        study = _study(choice, output)
        run_local(study, choice.processes)
        try:
            conclude(study)
        except InputError:
            if not only_diverged(study):
                raise
        answer(choice, study)


@contextmanager
def _withdrawn(output: Path, new: list[Path]) -> Iterator[None]:
    """Leave no lock and no new folder behind for a choice that could not begin."""
    try:
        yield
    except InputError:
        with suppress(OSError, InputError):  # another process has it, or a folder is not empty
            if not (output / CHOICE).exists():
                with lock(output / _LOCK, wait=False):
                    (output / _LOCK).unlink()
                for folder in new:
                    folder.rmdir()
        raise


def _name(data: str) -> str:
    place = Path(data).expanduser()
    return slug(place.resolve().name if place.exists() else data)


def _study(choice: Choice, folder: Path) -> Study:
    """The study of the plan; seeds that somebody added to it later stay."""
    if (folder / PLAN).is_file():
        return Study.open(folder)
    return Study.create(choice.plan(_name(choice.data)), folder)


def _same(
    choice: Choice,
    folder: Path,
    data: str,
    asked: list[str],
    model: str | None,
    epochs: int | None,
) -> None:
    """Refuse to go on with something else than was asked for."""
    wanted = _spec(data, choice.model) if data else None
    named = None if model is None else Recipe(model=model).settled().model
    other = choice.differs(data=wanted, objectives=asked or None, model=named)
    if epochs not in (None, choice.size.full_epochs):
        other.append("epochs")
    if other:
        raise InputError(
            f"{folder} holds a plan with other {' and '.join(other)}: give another --output."
        )


# -- the plan


def _decide(
    data: str,
    minutes: float,
    asked: list[str],
    model: str | None,
    features: str | None,
    epochs: int | None,
    skip: str | None,
    folder: Path,
    device: str,
) -> Choice:
    """Look at the data, time a few steps, and take the largest comparison that fits."""
    begun = time.monotonic()
    kind = pick_device(device).type
    on_gpu = kind != "cpu"
    precision: Literal["float32", "bf16"] = "bf16" if kind == "cuda" else "float32"
    model = model or (_ON_GPU if on_gpu else _ON_CPU)
    data = _spec(data, model)
    dataset = _look(data, features, skip)
    if features is None:
        features = _features(dataset, data, model, skip, folder, device)
    objectives = asked or list(OBJECTIVES)
    base = Recipe(data=data, features=features, skip=skip, model=model, device=device,
                  precision=precision, reduction=_REDUCTION, clip=_CLIP).settled()  # fmt: skip
    steps = math.ceil(dataset.split("train").num_captions / base.batch)
    processes = _processes(device)
    seconds = min(_LONGEST, max(_SHORTEST, _PROBE * 60 * minutes))
    say(f"timing {len(objectives)} objectives, {seconds:.0f} s each ...", stderr=True)
    recipes = {one: base.replace(objective=one) for one in objectives}
    threads = pinned() or max(1, cores() // processes)
    paces = measure(recipes, processes, threads, seconds, on_gpu)
    spent = time.monotonic() - begun
    left = max(15 * minutes, 60 * minutes - spent) * (1 - _REPORT)
    keep = len(asked) or _KEPT
    names, size = largest(paces, steps, processes, left, keep, epochs)
    expected = seconds_of(size, {name: paces[name] for name in names}, steps, processes)
    return Choice(
        data=base.data,
        features=base.features,
        skip=base.skip,
        model=base.model,
        objectives=tuple(names),
        device=device,
        size=size,
        steps=steps,
        processes=processes,
        minutes=minutes,
        expected=round((spent + expected) / 60, 2),
        left_out=tuple(one for one in objectives if one not in names),
        threads=None if on_gpu else threads,
        rates=_RATES,
        start=_START,
        clip=_CLIP,
        reduction=_REDUCTION,
        precision=precision,
        first_epochs=_FIRST_EPOCHS if size.epochs > 1 else (0,),
    )


def _spec(data: str, model: str) -> str:
    """The data as recipes name them; of the embedded world what the model reads."""
    return embedded(models.parse(model).reads) if data == EMBEDDED else absolute(data)


def _look(data: str, features: str | None, skip: str | None) -> Dataset:
    """Open and check the data; say what they hold."""
    dataset = open_dataset(data, features=features, skip=skip)
    missing = [name for name in _SPLITS if name not in dataset.splits]
    if missing:
        raise InputError(
            f"{data}: no split '{missing[0]}'. Settings are chosen on val and compared on test; "
            "`simgrad datasets` shows what the data hold."
        )
    for name in _SPLITS:
        say(f"{name}: {dataset.splits[name].summary()}", stderr=True)
    found = check(dataset)
    for line in portrait(dataset.splits, found.shared["train"]):
        say_wrapped(line, stderr=True)
    problems = found.problems
    if problems:
        say_wrapped(
            f"{counted(len(problems), 'problem')}, the first: {problems[0]}\n"
            f"`simgrad datasets '{data}' --fix` writes a list of what to leave out, for --skip.",
            stderr=True,
        )
    return dataset


def _features(
    dataset: Dataset, data: str, model: str, skip: str | None, folder: Path, device: str
) -> str | None:
    """Where the model's features are; computed where the data hold pictures alone."""
    reads, train = models.parse(model).reads, dataset.split("train")
    if reads == "pixels" or train.features is not None or train.pictures is None:
        return None
    target = folder / "features"
    listed = Path(skip) if skip else None
    grid = _GRID if reads == "regions" else None
    compute_features(data, grid=grid, device=device, output=target, skip=listed)
    return str(target)


def _processes(device: str) -> int:
    """Runs side by side: one for each core, on a GPU not more than it has room for."""
    import torch

    if pick_device(device).type == "cpu":
        return cores()
    return max(1, min(cores(), 16 * torch.cuda.device_count()))


def _tell_plan(choice: Choice, folder: Path) -> None:
    size = choice.size
    length = f"{size.epochs} of {size.full_epochs} epochs"
    given = f"{choice.minutes:g} {'was' if choice.minutes == 1 else 'were'} given"
    several = f" (the best {size.finalists} with {REPEATS} more seeds)"
    say_wrapped(
        f"plan ({folder / CHOICE}): {', '.join(choice.objectives)}\n"
        f"  {choice.model}; for each objective {size.trials} settings"
        f"{several if size.finalists > 1 else ''} and {size.seeds} seeds, "
        f"{length} ({size.epochs * choice.steps:,} steps)\n"
        f"  about {max(1, round(choice.expected))} min here; {given}",
        stderr=True,
    )
    if choice.left_out:
        say_wrapped(f"  no time for: {', '.join(choice.left_out)}", stderr=True)
    if choice.expected > 1.2 * choice.minutes:
        say_wrapped("  this is the smallest plan; fewer objectives or a smaller model take less",
                    stderr=True)  # fmt: skip
