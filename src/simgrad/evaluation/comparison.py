"""Whether two systems differ: paired over the same images, with an interval and p.

- Several seeds of each: seeds and images are both drawn (`crossed.py`).
- One run of each: images alone are drawn, so nothing is said of other seeds.
- Many comparisons with one system: Holm's correction. Comparisons with the best are another matter,
  because the best is chosen from the data: `standing.py`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from simgrad.core.errors import InputError
from simgrad.evaluation.crossed import Crossed, Sureness, paired_sureness, runs_of, shares, sureness
from simgrad.evaluation.declared import Floats
from simgrad.evaluation.differences import Comparison, Difference
from simgrad.evaluation.metrics import Metrics
from simgrad.evaluation.ranks import Ranks
from simgrad.evaluation.uncertainty import LEVEL, check_level


class Ranked(Protocol):
    """What has ranks: metrics, a run, or a retriever that was tested."""

    @property
    def ranks(self) -> Any: ...


Runs = Ranks | Ranked | Sequence[Ranks] | Sequence[Ranked]
Draws = Sequence[Ranks] | Sequence[Sequence[Ranks]]  # runs, or replicates of several runs


def compare(
    first: Runs,
    second: Runs,
    *,
    names: tuple[str, str] | None = None,
    level: float = LEVEL,
) -> Comparison:
    """Every metric of two systems on the same queries: difference, interval, p.

    Each is a `Run`, or what `evaluate` gave (or its `ranks`), or a list of these, one for each
    seed. By default runs are called as their folders are.

    Examples:
        >>> images, texts = torch.eye(20), torch.eye(20)
        >>> first = simgrad.evaluate(images, texts, range(20))
        >>> second = simgrad.evaluate(images, texts.roll(1, 0), range(20))  # all captions wrong
        >>> result = simgrad.compare(first, second)
        >>> result["i2t_r1"].difference, result["i2t_r1"].p < 0.001
        (-100.0, True)
    """
    a, b = _ranks(first), _ranks(second)
    check_level(level)
    found = _crossed(a, b, level)
    names = names or (_name(first, "A"), _name(second, "B"))
    return Comparison(found, names, level=level, seeds=(len(a), len(b)))


def _ranks(runs: Runs) -> list[Ranks]:
    found = [_ranks_of(run) for run in _listed(runs)]
    if not found or not all(isinstance(run, Ranks) for run in found):
        raise InputError(
            "compare what? Give two runs (or their folders, `simgrad.compare`) or results of "
            "simgrad.evaluate, or two lists of them, one for each seed."
        )
    return found


def _listed(runs: Runs) -> list[Any]:
    several = isinstance(runs, Iterable) and not isinstance(runs, Ranks | Metrics | str)
    return list(runs) if several else [runs]  # type: ignore[arg-type]


def _ranks_of(run: Any) -> Any:
    """Of metrics, of a run (which reads them when it is asked), of a retriever."""
    if isinstance(run, Ranks):
        return run
    kept = getattr(run, "ranks", None)
    return kept() if callable(kept) else kept


def _name(runs: Runs, otherwise: str) -> str:
    """The name of a single run's folder, else `otherwise`."""
    listed = _listed(runs)
    name = getattr(listed[0], "name", None) if len(listed) == 1 else None
    return name if isinstance(name, str) and name else otherwise


def _differences(
    names: Sequence[str], first: Floats, second: Floats, sure: Sureness, level: float
) -> dict[str, Difference]:
    difference, reach = second - first, sure.reach(level)
    ends = difference - reach, difference + reach
    columns = (first, second, difference, *ends, sure.p(difference), sure.image_error)
    rows = zip(names, *columns, strict=True)
    return {name: Difference(name, *(float(v) for v in row)) for name, *row in rows}


def compare_with(
    systems: Mapping[str, Runs], baseline: str, *, level: float = LEVEL
) -> dict[str, Comparison]:
    """Each system against one of them; p corrected by Holm for the number of comparisons.

    With one run of each the test is over images, with several over seeds and images.

    Examples:
        >>> systems = {n: simgrad.evaluate_similarities(torch.rand(20, 20)) for n in "abc"}
        >>> found = simgrad.evaluation.compare_with(systems, "a")
        >>> [name for name, one in found.items() if one["rsum"].corrected < 0.05]
        []
    """
    if baseline not in systems or len(systems) < 2:
        raise InputError(f"there is nothing to compare with '{baseline}'.")
    found = {
        name: compare(systems[baseline], runs, names=(baseline, name), level=level)
        for name, runs in systems.items()
        if name != baseline
    }
    if len(found) == 1:
        return found
    for metric in next(iter(found.values())):
        corrected = holm([one[metric].p for one in found.values()])
        for one, p in zip(found.values(), corrected, strict=True):
            one.found[metric] = replace(one[metric], p_holm=p)
    return found


def compare_many(
    systems: Mapping[str, Draws], baseline: str, metric: str = "rsum", *, new_images: bool = False
) -> dict[str, Difference]:
    """`compare_with` in one metric, of runs or replicates.

    `new_images`: each draw has test images of its own, and the first draw of one system is paired
    with the first of the other, and so on.

    Examples:
        >>> names = "abc"
        >>> systems = {n: [simgrad.evaluate_similarities(torch.rand(20, 20)).ranks] for n in names}
        >>> found = simgrad.evaluation.compare_many(systems, "a")
        >>> list(found)
        ['b', 'c']
    """
    if baseline not in systems or len(systems) < 2:
        raise InputError(f"there is nothing to compare with '{baseline}'.")
    base, found = systems[baseline], {}
    for name, draws in systems.items():
        if name == baseline:
            continue
        table = _paired(base, draws) if new_images else _crossed(base, draws, LEVEL)
        if metric not in table:
            known = ", ".join(table)
            raise InputError(f"there is no metric '{metric}' to compare; there are: {known}")
        found[name] = table[metric]
    if len(found) == 1:
        return found
    corrected = holm([one.p for one in found.values()])
    return {
        name: replace(one, p_holm=p)
        for (name, one), p in zip(found.items(), corrected, strict=True)
    }


def _crossed(first: Draws, second: Draws, level: float) -> dict[str, Difference]:
    if (len(first) == 1) != (len(second) == 1):
        raise InputError("to tell seeds from systems, each system needs runs of two seeds or more.")
    check_same_queries([run for draw in [*first, *second] for run in runs_of(draw)])
    one, other = Crossed.of(first), Crossed.of(second)
    return _differences(one.names, one.mean, other.mean, sureness(one, other), level)


def _paired(first: Draws, second: Draws) -> dict[str, Difference]:
    means = [
        [np.mean([shares(run).totals for run in runs_of(draw)], axis=0) for draw in draws]
        for draws in (first, second)
    ]
    one, other = (np.stack(each) for each in means)
    sure = paired_sureness(one, other)
    names = shares(runs_of(first[0])[0]).names
    return _differences(names, one.mean(axis=0), other.mean(axis=0), sure, LEVEL)


def with_spread(systems: Mapping[str, Sequence[Any]]) -> dict[str, Sequence[Any]]:
    """The systems that can be compared with each other: where any has several runs, those that do.

    How much seeds differ cannot be told from one run. So systems with one run are left out where
    others have several.
    """
    done = {label: runs for label, runs in systems.items() if runs}
    several = {label: runs for label, runs in done.items() if len(runs) > 1}
    return several or done


def holm(p: Sequence[float]) -> list[float]:
    """Holm's step-down correction: the chance of any false finding stays at the stated level.

    Examples:
        >>> [round(p, 3) for p in simgrad.evaluation.holm([0.01, 0.04, 0.03])]
        [0.03, 0.06, 0.06]
    """
    order = np.argsort(p)
    corrected = np.maximum.accumulate(np.asarray(p)[order] * (len(p) - np.arange(len(p))))
    result = np.empty(len(p))
    result[order] = np.minimum(corrected, 1.0)
    return [float(value) for value in result]


def check_same_queries(runs: Sequence[Ranks]) -> None:
    """Paired tests need the same queries in the same order."""
    for run in runs[1:]:
        same = (
            np.array_equal(run.image_of_caption, runs[0].image_of_caption)
            and np.array_equal(run.fold, runs[0].fold)
            and _same_names(run.image_ids, runs[0].image_ids)
            and _same_names(run.caption_ids, runs[0].caption_ids)
        )
        if not same:
            raise InputError(
                f"these runs were not ranked on the same queries ({len(runs[0].i2t):,} images and "
                f"{len(runs[0].t2i):,} captions against {len(run.i2t):,} and {len(run.t2i):,}): "
                "evaluate both with one protocol on one split."
            )


def _same_names(first: tuple[str, ...], second: tuple[str, ...]) -> bool:
    """Equal; or one of them has no names, but the numbers of rows."""
    numbers = tuple(map(str, range(len(first))))
    return first == second or (len(first) == len(second) and numbers in (first, second))
