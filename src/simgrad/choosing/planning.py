"""The plan of `choose`: look at the data, time a few steps, and take what fits into the time.

`decide` does that. `estimate` answers in seconds, for a dry run: it computes and times nothing.
"""

import json
import math
import platform
import shlex
import shutil
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from simgrad.choosing import stated
from simgrad.choosing.choice import Choice
from simgrad.choosing.omitting import FEATURES, Looked, left_out_before, look_through
from simgrad.choosing.pilot import PILOT, full_length, least_seconds
from simgrad.choosing.probe import Pace, measure
from simgrad.choosing.sizing import largest, usual_length
from simgrad.core.console import reporting, say, say_wrapped
from simgrad.core.derived import read_checked, write_checked
from simgrad.core.devices import pick_device
from simgrad.core.errors import InputError
from simgrad.core.text import counted, listed
from simgrad.core.threads import cores, pinned
from simgrad.data.arrays import read_header
from simgrad.data.base import Dataset
from simgrad.data.check import check, portrait
from simgrad.data.log import Log
from simgrad.data.opening import EMBEDDED, absolute, embedded, open_dataset, open_logged
from simgrad.models import models
from simgrad.models.networks.backbones import backbone
from simgrad.runs.feature_files import TooSlow, write_features
from simgrad.runs.features import make_job
from simgrad.runs.recipe import Recipe

# What is compared if nobody names objectives. Where time is short, the last are left out first.
# The first is also what is trained where there is no time for two: over the 13 searches of
# results/generalise no objective is told apart above it, and at rates up to 4e-3 all its trials
# learned, with a first epoch of all negatives and without. The second is the loss that everybody
# knows.
OBJECTIVES = (
    "focused-deviance", "nt-xent", "goal(triplet=nca, pair=sig)", "triplet-sh", "siglip",
)  # fmt: skip
# The model, if nobody names one. Without a GPU it is `light`: with focused-deviance no
# difference from VSE++ shows on Flickr8k, but it orders objectives differently (results/light).
ON_GPU, WITHOUT_GPU = "vse++", "light"
ON_VECTORS = "light(text=vectors)"  # where the data bring vectors of both sides
NETWORK = "efficientnet-lite0"  # what computes features of pictures
_GRID = 7  # cells a side, for models that look at regions
_PROBE, _SHORTEST, _LONGEST = 0.01, 3.0, 20.0  # share of the time, seconds: timing of an objective
_TIMING = 0.1  # share of the time, after which no more objectives are timed
_PILOT = 0.2  # share of the time
_PREPARE = 0.3  # share of the time for timing and pilot together
_LOOKS = 30  # of a pilot at the validation split, as a rule
_FEW = 100  # pictures, of which a split by names may leave val or test empty
_REPORT = 0.1  # share of the time for table and report
# What all objectives share, and why.
# - Losses are sums over queries. Their gradients are longer than the published clip of triplet
#   losses, so nearly all are cut to that length, whatever the objective.
# - Without a clip, rules of the hardest negative learn late in a short training (triplet-sh on
#   Flickr8k: rsum 83 to 105, with it 248 to 262). Means with a smaller clip are no way out: such
#   small gradients vanish beside the constant in Adam's denominator.
# - These rules also learn sooner, though not always better, after a first epoch of all negatives:
#   each objective is tried with one and without.
# - The first trial of each objective has such an epoch, and a rate near those that twelve of
#   thirteen objectives chose (results/flickr8k/study). Otherwise, with few trials, an objective may
#   be judged by poor settings alone.
_RATES, _START, _CLIP, _FIRST_EPOCHS = (2e-4, 4e-3), 2e-3, 2.0, (0, 1)
_REDUCTION: Literal["sum"] = "sum"
_SPLITS = ("train", "val", "test")
TIMING = "timing.json"  # how long steps take, until there is a plan


@dataclass(frozen=True)
class Wish:
    """What somebody asks for."""

    data: str
    minutes: float
    objectives: tuple[str, ...] = ()
    model: str | None = None
    features: str | None = None
    epochs: int | None = None
    short: bool = False
    skip: str | None = None
    device: str = "auto"
    strict: bool = False

    @property
    def kind(self) -> str:
        """cpu, cuda or mps"""
        return pick_device(self.device).type

    @property
    def named(self) -> tuple[str, ...]:
        """The objectives, first the one that is kept in any case."""
        return self.objectives or OBJECTIVES

    def base(self, features: str | None) -> Recipe:
        """What all runs share, but for their length."""
        model = self.model or (WITHOUT_GPU if self.kind == "cpu" else ON_GPU)
        precision: Literal["float32", "bf16"] = "bf16" if self.kind == "cuda" else "float32"
        return Recipe(data=spec(self.data, model), features=features, skip=self.skip, model=model,
                      device=self.device, precision=precision, reduction=_REDUCTION, clip=_CLIP,
                      lr=_START).settled()  # fmt: skip


def spec(data: str, model: str) -> str:
    """The data as recipes name them; of the embedded world what the model reads."""
    return embedded(models.parse(model).reads) if data == EMBEDDED else absolute(data)


def decide(wish: Wish, folder: Path, quiet: bool = False) -> Choice:
    """Look at the data, time a few steps, train a pilot, and take the most that fits."""
    begun = time.monotonic()
    base = wish.base(wish.features)
    looked = _look_at(base, wish, folder)
    dataset, base = looked.dataset, base.replace(skip=looked.skip)
    base = _for_vectors(wish, base, dataset)
    seconds = 60 * wish.minutes

    def left() -> float:
        return seconds - (time.monotonic() - begun)

    if wish.features is None:
        base = base.replace(features=_features(wish, dataset, base, folder, left()))
    kept = wish.features is None and base.features is not None
    if left() <= 0:
        took = f"{(seconds - left()) / 60:.1f} minutes"
        raise _too_little(wish, kept, f"reading the data and its features took {took}")
    recipes = {one: base.replace(objective=one) for one in wish.named}
    before = left()
    processes = _processes(wish.device)
    each = min(_LONGEST, max(_SHORTEST, _PROBE * seconds))
    threads = pinned() or max(1, cores() // processes)
    about = {
        "machine": platform.node(),
        "processes": processes,
        "threads": threads,
        "recipes": {name: recipe.to_dict() for name, recipe in recipes.items()},
    }
    timed = _kept_timing(folder, about)
    if timed is None:
        if not quiet:
            say(f"timing {len(recipes)} objectives, {each:.0f} s each ...", stderr=True)
        with nullcontext(_silent) if quiet else reporting("timing") as report:
            timed = measure(
                recipes, processes, threads, each, wish.kind != "cpu", _TIMING * seconds, report
            )
        told = {name: asdict(pace) for name, pace in timed.items()}
        write_checked(folder / TIMING, {"about": about, "paces": told})
    elif not quiet:
        say(f"objectives were timed before: {folder / TIMING}", stderr=True)
    paces = _all_of(timed, wish.named)
    steps, length, found = _steps(dataset, base), wish.epochs, "epochs"
    if length is None:
        found = "pilot"
        given = _for_pilot(seconds, left(), before - left())
        fits = wish.short or least_seconds(paces, steps, processes) <= left()
        if given > 0 and fits:
            first = recipes[wish.named[0]].replace(lr=_RATES[0])
            length = full_length(first, steps, folder, given, quiet)
    choice = _choice(
        wish, base, dataset, paces, length, found, seconds - left(),
        None if wish.kind != "cpu" else threads, looked.omitted,
    )  # fmt: skip
    shutil.rmtree(folder / PILOT, ignore_errors=True)
    (folder / TIMING).unlink(missing_ok=True)
    return choice


def _kept_timing(folder: Path, about: dict[str, Any]) -> dict[str, Pace] | None:
    """What a call that had too little time has timed, of the same runs on the same machine."""
    kept: Any = None
    with suppress(InputError):  # none, or a damaged one: timed again
        kept = read_checked(folder / TIMING)
    if not isinstance(kept, dict) or kept.get("about") != json.loads(json.dumps(about)):
        return None
    if len(kept["paces"]) < len(about["recipes"]):
        return None
    return {name: Pace(**pace) for name, pace in kept["paces"].items()}


def _silent(done: int, total: int | None) -> None:
    """Tells nobody how far it is."""


def _for_pilot(seconds: float, left: float, timing: float) -> float:
    """How long a pilot may take: what is spent here is missing for what was asked for."""
    return max(0.0, min(_PILOT * seconds, left / 2, _PREPARE * seconds - timing))


def _all_of(timed: Mapping[str, Pace], names: Sequence[str]) -> dict[str, Pace]:
    """The pace of each objective; those that were not timed count as the slowest that was."""
    slowest = max(timed.values(), key=lambda pace: pace.step)
    return {name: timed.get(name, slowest) for name in names}


def estimate(wish: Wish) -> Choice:
    """The plan by the rates in `stated.py`: nothing is computed, timed or written."""
    base = wish.base(wish.features)
    dataset = open_dataset(base.data, features=wish.features, skip=wish.skip)
    _say_splits(dataset, base.data)
    base = _for_vectors(wish, base, dataset)
    on_gpu = wish.kind != "cpu"
    pace = stated.pace_of(base.model, on_gpu)
    if pace is None:
        raise InputError(
            f"`dry_run`: nobody has measured how quickly '{base.model}' trains, so there is no "
            "estimate; without it, training is timed first."
        )
    spent = 0.0
    if wish.features is None and _needs_features(dataset, base.model):
        pictures = sum(split.num_images for split in dataset.splits.values())
        spent = pictures / stated.pictures_per_second(on_gpu, cores())
    steps = _steps(dataset, base)
    whole = pace.seconds(usual_length(steps) * steps, _LOOKS)
    seconds = 60 * wish.minutes
    rounds = math.ceil(len(wish.named) / _processes(wish.device))  # each process times its share
    timing = pace.start + rounds * min(_LONGEST, max(_SHORTEST, _PROBE * seconds))
    given = _for_pilot(seconds, seconds - spent - timing, timing)
    pilot = 0.0 if wish.epochs else min(whole, given)
    paces = dict.fromkeys(wish.named, pace)
    found = "epochs" if wish.epochs else "usual"
    return _choice(wish, base, dataset, paces, wish.epochs, found, spent + pilot + timing, None)


def _choice(
    wish: Wish,
    base: Recipe,
    dataset: Dataset,
    paces: Mapping[str, Pace],
    length: int | None,
    found: str,
    spent: float,
    threads: int | None,
    omitted: str = "",
) -> Choice:
    """The most that fits into what is left of the time."""
    steps, processes = _steps(dataset, base), _processes(wish.device)
    full = length or usual_length(steps)
    left = max(0.0, 60 * wish.minutes - spent)
    start = max(pace.start for pace in paces.values())  # a report reads and opens as much
    fit = largest(paces, steps, processes, left - max(_REPORT * left, start), full, wish.short)

    def minutes(seconds: float) -> float:
        return round((spent + max(seconds / (1 - _REPORT), seconds + start)) / 60, 2)

    if len(fit.names) == 1 and minutes(fit.seconds) > wish.minutes + 0.01:
        kept = wish.features is None and base.features is not None
        why = (
            f"what comes before takes {spent / 60:.1f} minutes, with an epoch of {fit.names[0]} "
            f"and the report it is {minutes(fit.seconds):.1f}; to compare two objectives, give "
            f"about `minutes={math.ceil(minutes(fit.for_two))}`{_less(wish)}"
        )
        raise _too_little(wish, kept, why)
    return Choice(
        data=base.data,
        features=base.features,
        skip=base.skip,
        model=base.model,
        objectives=fit.names,
        device=wish.device,
        size=fit.size,
        steps=steps,
        processes=processes,
        minutes=wish.minutes,
        expected=minutes(fit.seconds),
        before=round(spent / 60, 2),
        left_out=tuple(one for one in wish.named if one not in fit.names),
        threads=threads,
        rates=_RATES,
        start=_START,
        clip=_CLIP,
        reduction=_REDUCTION,
        precision=base.precision,  # type: ignore[arg-type]
        first_epochs=_FIRST_EPOCHS if fit.size.epochs > 1 else (0,),
        crossed=True,
        length_from="usual" if length is None else found,  # type: ignore[arg-type]
        images=dataset.split("test").num_images,
        seen_by=_seen_by(dataset, base),
        for_two=minutes(fit.for_two),
        for_all=minutes(fit.for_all),
        omitted=omitted,
    )


def _less(wish: Wish) -> str:
    """What takes less than all that was asked for, but for what is done already."""
    ways = [
        ("no pilot", "`epochs`", wish.epochs is None),
        ("fewer to time", "two `objectives`", len(wish.named) > 2),
        ("shorter trainings", "`short=True`", not wish.short),
    ]
    told = [f"{option} ({why})" for why, option, new in ways if new]
    return f". Less time is needed with {listed(told, 'or')}" if told else ""


def _too_little(wish: Wish, kept: bool, why: str) -> InputError:
    """The error that not even one training fits; `kept`: computed features stay for a next call."""
    again = " Features are kept: the same call goes on with them." if kept else ""
    return InputError(f"`minutes={wish.minutes:g}` is too little to train anything: {why}.{again}")


def _steps(dataset: Dataset, base: Recipe) -> int:
    return math.ceil(dataset.split("train").num_captions / base.batch)


def _look_at(base: Recipe, wish: Wish, folder: Path) -> Looked:
    """Look at every caption and picture, say what there is, and leave out what cannot be used.

    Features that were given go with the pictures that they were computed from.
    """
    if wish.features is None:
        looked = look_through(base.data, wish.skip, folder, wish.strict)
    else:
        given = open_dataset(base.data, features=wish.features, skip=wish.skip)
        omitted = left_out_before(wish.features, folder)
        looked = Looked(given, check(given), wish.skip, omitted)
    _say_splits(looked.dataset, base.data)
    if looked.omitted:
        say_wrapped(f"left out: {looked.omitted}", stderr=True)
    for line in portrait(looked.dataset.splits, looked.found.shared["train"]):
        say_wrapped(line, stderr=True)
    if problems := looked.found.problems:
        say_wrapped(
            f"{counted(len(problems), 'problem')}, the first: {problems[0]}\n"
            f"`simgrad datasets {shlex.quote(base.data)}` shows all.",
            stderr=True,
        )
    return looked


def _say_splits(dataset: Dataset, data: str) -> None:
    missing = [name for name in _SPLITS if name not in dataset.splits]
    pictures = sum(split.num_images for split in dataset.splits.values())
    if missing and pictures < _FEW:
        raise InputError(
            f"{data}: {counted(pictures, 'picture')} are too few: there is none for "
            f"{listed(missing, 'and')}. Give some hundred; a tenth each is kept for val and test."
        )
    if missing:
        raise InputError(
            f"{data}: no split '{missing[0]}'. Settings are chosen on val and compared on test; "
            "`simgrad datasets` shows what the data hold."
        )
    for name in _SPLITS:
        say(f"{name}: {dataset.splits[name].summary()}", stderr=True)


def _for_vectors(wish: Wish, base: Recipe, dataset: Dataset) -> Recipe:
    """Where both sides are vectors already, heads on them are what is trained."""
    if wish.model is not None or dataset.split("train").caption_vectors is None:
        return base
    return base.replace(model=ON_VECTORS)


def _seen_by(dataset: Dataset, base: Recipe) -> str:
    """What the pictures are seen by."""
    if models.parse(base.model).reads == "pixels":
        return "the model's own network"
    if base.features is not None:
        return str(read_header(Path(base.features)).get("backbone") or base.features)
    return NETWORK if _needs_features(dataset, base.model) else "the features of the data"


def _needs_features(dataset: Dataset, model: str) -> bool:
    """Whether the model reads features, and the data hold pictures alone."""
    train = dataset.split("train")
    pixels = models.parse(model).reads == "pixels"
    return not pixels and train.features is None and train.pictures is not None


def _features(wish: Wish, dataset: Dataset, base: Recipe, folder: Path, left: float) -> str | None:
    """Where the model's features are; computed where the data hold pictures alone."""
    if not _needs_features(dataset, base.model):
        return None
    target, log = folder / FEATURES, Log.read(base.skip)
    grid = _GRID if models.parse(base.model).reads == "regions" else None
    job = make_job(backbone(NETWORK), grid=grid, device=base.device)
    say(f"features of pictures, by {NETWORK}, into {target} ...", stderr=True)
    try:
        write_features(open_logged(base.data, log), log, base.data, job, target, within=left)
    except TooSlow as late:
        why = (
            f"features of the pictures alone take about {_minutes(late.seconds)} here; "
            "`dry_run` with other `minutes` shows what fits"
        )
        raise _too_little(wish, True, why) from None
    return str(target.resolve())


def _minutes(seconds: float) -> str:
    return f"{math.ceil(10 * seconds / 60) / 10:.1f} minutes"


def _processes(device: str) -> int:
    """Runs side by side: one for each core, on a GPU not more than it has room for."""
    import torch

    if pick_device(device).type == "cpu":
        return cores()
    return max(1, min(cores(), 16 * torch.cuda.device_count()))
