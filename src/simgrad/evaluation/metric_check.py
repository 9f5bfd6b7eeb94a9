"""Is a metric of one's own right? It is tried on lists of which the answer is known."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from simgrad.core.errors import InputError
from simgrad.evaluation.declared import METRICS, Metric, per_query
from simgrad.evaluation.evaluator import evaluate_similarities
from simgrad.evaluation.ranks import Positions, Ranks

_QUERIES, _CANDIDATES, _TRUE = 50, 200, 5


@dataclass(frozen=True)
class MetricCheck:
    """What a metric says of perfect, random and worst lists, and what is wrong with it.

    Examples:
        >>> found = simgrad.evaluation.check("medr")
        >>> found.ok, found.values["perfect"]
        (True, 1.0)
    """

    name: str
    values: dict[str, float]
    problems: tuple[str, ...]

    @property
    def ok(self) -> bool:
        return not self.problems

    def __str__(self) -> str:
        told = ", ".join(f"{name} {value:.4g}" for name, value in self.values.items())
        return "\n".join([f"{self.name}: {told}", *(f"  WRONG: {one}" for one in self.problems)])


def check(name: str) -> MetricCheck:
    """Try a declared metric on lists of 200 in which one true item or five stand first, anywhere or
    last.

    It must give one finite number for each query, within its bounds, tell a perfect order from the
    worst, and never prefer a random one. A metric that asks for `ranks` is tried on those of
    images with one caption, or five. A name with {k} is tried with the `k` that it declares.

    Examples:
        >>> print(simgrad.evaluation.check("r{k}"))
        r1: perfect 100, random 2, worst 0
    """
    declared = METRICS[name]
    ks = declared.parameters[0].default if declared.parameters else (None,)
    one = declared.factory(ks[0])
    if one.each is None:
        raise InputError(f"metric '{name}' does not come from ranks: there is nothing to try.")
    values: dict[str, float] = {}
    problems: list[str] = []
    blind = True
    for count in (1, _TRUE):
        orders = _ranked(count) if one.asks else _orders(count)
        found = {order: _values(one, *lists) for order, *lists in orders}
        problems += _outside(one, np.concatenate(list(found.values())))
        means = {order: float(each.mean()) for order, each in found.items()}
        values = values or means
        if one.improves(means["random"], means["perfect"]):
            problems.append(
                f"with {count} true, a random order ({means['random']:.4g}) is better than a "
                f"perfect one ({means['perfect']:.4g}), and better={one.better!r}"
            )
        blind = blind and found["perfect"].tolist() == found["worst"].tolist()
    if blind:
        problems.append("a perfect order and the worst give the same: it tells no systems apart")
    return MetricCheck(one.name, values, tuple(dict.fromkeys(problems)))


def _orders(count: int) -> Iterator[tuple[str, Positions]]:
    random = np.random.default_rng(0)
    first = np.arange(1, count + 1)
    drawn = [np.sort(random.choice(_CANDIDATES, count, False)) + 1 for _ in range(_QUERIES)]
    query = np.repeat(np.arange(_QUERIES), count)
    yield "perfect", Positions.of(query, np.tile(first, _QUERIES))
    yield "random", Positions.of(query, np.concatenate(drawn))
    yield "worst", Positions.of(query, np.tile(first + _CANDIDATES - count, _QUERIES))


def _ranked(count: int) -> Iterator[tuple[str, Positions, Ranks, str]]:
    """The same of ranks, those of images with so many captions; images ask."""
    owner = np.repeat(np.arange(_CANDIDATES // count), count)
    own = (owner[None] == np.arange(_CANDIDATES // count)[:, None]).astype(float)
    drawn = np.random.default_rng(0).random(own.shape)
    for order, scores in (("perfect", own), ("random", drawn), ("worst", -own)):
        ranks = evaluate_similarities(scores, owner).ranks
        yield order, ranks.positions["i2t"], ranks, "i2t"


def _values(
    one: Metric, lists: Positions, ranks: Ranks | None = None, way: str = ""
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    found = per_query(lists, [one], ranks, way)
    if one.name not in found:
        where = f" ({one.own})" if one.own else ""
        raise InputError(
            f"metric '{one.name}'{where} gave nothing for lists with their true items."
        )
    return found[one.name]


def _outside(one: Metric, values: np.ndarray[tuple[int], np.dtype[np.float64]]) -> list[str]:
    low, high = one.bounds
    least, most = float(values.min()), float(values.max())
    if low <= least and most <= high:
        return []
    ends = f"{low:g} to {high:g}"
    return [f"{least:.4g} to {most:.4g} lies outside its bounds, {ends}: declare others (bounds=)"]
