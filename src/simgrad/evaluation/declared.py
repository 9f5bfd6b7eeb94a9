"""What a metric is: a value for each query, how the values become one number, how that is read.

A metric is declared once, here or in a file of your own (`simgrad --with FILE.py`), by `metric`;
docs/own.md shows one, `precision{k}`. Everything else follows: `i2t_precision5` and
`t2i_precision5` are computed by every evaluation, in training too, get intervals and paired tests,
and are printed with the declared digits under the declared label.
"""

import inspect
import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, TypeVar

import numpy as np
import numpy.typing as npt

from simgrad.core.errors import InputError
from simgrad.core.spec import Declaration, Parameter, Registry
from simgrad.core.text import did_you_mean, listed, place_of
from simgrad.evaluation.ranks import Positions, Ranks

Floats = npt.NDArray[np.float64]
# Of one direction: a value for each query; None: these positions do not tell.
Each = Callable[..., npt.NDArray[Any] | None]
# What a metric may ask for by name, beside the positions: all ranks of the system (both directions,
# whose caption is whose, ids of images and captions), and which direction this is.
_BY_NAME = ("ranks", "direction")

Function = TypeVar("Function", bound=Callable[..., Any] | None)

# Where a metric is shown. headline: in every table; compared: also where systems are compared;
# table: in evaluate's table of one system; file: in files alone.
Prominence = Literal["headline", "compared", "table", "file"]

DIRECTIONS = {"i2t": "image → text", "t2i": "text → image"}


@dataclass(frozen=True)
class Metric:
    """One number of a system, and how it is read.

    Examples:
        >>> one = simgrad.evaluation.metric_of("t2i_r10")
        >>> one.heading, one.improves(51.0, 50.0)
        ('t2i R@10', True)
    """

    name: str  # r5; in results with its direction: i2t_r5
    label: str  # R@5
    description: str
    each: Each | None = None  # None: it does not come from ranks
    combine: Literal["mean", "median", "total"] = "mean"  # of the queries' values
    both: Literal["sum", "mean"] | None = None  # also one number of both directions
    directions: bool = True  # False: that number alone
    digits: int = 1
    better: Literal["high", "low"] = "high"
    bounds: tuple[float, float] = (0.0, math.inf)
    shown: Prominence = "headline"
    direction: str = ""  # of a name in results: i2t, t2i or neither
    truth: str = ""  # by which truth, where it is not the pairing: crowd, cxc, ...
    asks: tuple[str, ...] = ()  # for `ranks`, for `direction`
    own: str = ""  # where a metric of somebody's own is written

    @property
    def heading(self) -> str:
        """`i2t R@5`: the label with its direction."""
        return " ".join(filter(None, (self.direction, self.truth, self.label)))

    @property
    def title(self) -> str:
        """`image → text R@5`: the same in words."""
        return " ".join(filter(None, (DIRECTIONS.get(self.direction), self.truth, self.label)))

    def format(self, value: float) -> str:
        """A value with its digits; what rounds to nothing has no sign."""
        return "–" if math.isnan(value) else f"{value:z.{self.digits}f}"

    def best(self, values: Iterable[float]) -> float:
        """The best of several systems' values; those that are missing do not count."""
        known = [value for value in values if not math.isnan(value)]
        return (max if self.better == "high" else min)(known, default=math.nan)

    def improves(self, new: float, old: float) -> bool:
        """Whether `new` is the better value."""
        return new > old if self.better == "high" else new < old


METRICS: Registry[Metric] = Registry("metric", "simgrad evaluate --metrics")
"""Every declared metric, ours and yours; `metric` adds one.

Examples:
    >>> simgrad.evaluation.METRICS["rsum"].description
    'sum of R@1, R@5 and R@10 of both directions'
"""


def metric(
    name: str,
    *,
    label: str,
    description: str,
    paper: str = "",
    at: Sequence[int] = (),
    combine: Literal["mean", "median", "total"] = "mean",
    both: Literal["sum", "mean"] | None = None,
    directions: bool = True,
    digits: int = 1,
    better: Literal["high", "low"] = "high",
    bounds: tuple[float, float] = (0.0, math.inf),
    shown: Prominence = "headline",
) -> Callable[[Function], Function]:
    """Declare a metric: a function from `Positions` to one value for each query.

    `{k}` in name, label and description is a whole number that the function takes as `k`; `at` are
    those that are always computed. `both` makes one number of both directions too, under the name
    alone, and `directions=False` that number only. `shown` says how prominently, see `Prominence`.
    The function's first parameter is called `positions`. One that takes `ranks` is given the
    system's `Ranks` too, with both directions and the ids of images and captions; one that takes
    `direction`, "i2t" or "t2i". Called with None, it declares a number that does not come from
    ranks.

    Examples:
        >>> @simgrad.evaluation.metric(
        ...     "first_{k}", label="first {k}", description="any true one in the first {k}", at=(3,)
        ... )
        ... def first(positions, k):
        ...     return 100.0 * (positions.best <= k)
        ...
        >>> simgrad.evaluate_similarities(torch.eye(5)).i2t_first_3
        100.0
    """
    if not re.fullmatch(r"[a-z][a-z0-9_]*(\{k\}[a-z0-9_]*)?", name) or _split(name)[0]:
        raise InputError(
            f"metric '{name}': a name has small letters, digits, _ and at most one {{k}}, and no "
            "direction (i2t_, t2i_) in front."
        )
    if ("{k}" in name) != bool(at) or not (directions or both):
        raise InputError(
            f"metric '{name}': {{k}} in the name needs at=(...), and the other way round; and "
            "directions=False needs both='sum' or 'mean'."
        )
    if better not in ("high", "low"):
        near = did_you_mean(str(better), ("high", "low"), cutoff=0.5)
        hint = f" Did you mean '{near}'?" if near else ""
        raise InputError(
            f"metric '{name}': better={better!r:.40} is neither 'high' nor 'low'.{hint}"
        )

    def add(function: Function) -> Function:
        own = ""
        asks: tuple[str, ...] = ()
        if function is not None:
            asks = _asked(name, function)
            ours = str(function.__module__).startswith("simgrad.")
            own = "" if ours else place_of(function)

        def make(k: int | None = None) -> Metric:
            each = function if function is None or k is None else partial(function, k=k)
            return Metric(
                name.format(k=k), label.format(k=k), description.replace("{k}", str(k)), each,
                combine, both, directions, digits, better, bounds, shown, asks=asks, own=own,
            )  # fmt: skip

        parameters = (Parameter("k", "int", tuple(at), None, "how far down"),) if at else ()
        METRICS.add(Declaration(name, make, paper, description.replace("{k}", "K"), parameters))
        return function

    return add


def _asked(name: str, function: Callable[..., Any]) -> tuple[str, ...]:
    """What a metric's function takes by name; refuses one that asks for what nobody gives."""
    taken = list(inspect.signature(function).parameters.values())
    given = (*_BY_NAME, *(("k",) if "{k}" in name else ()))
    several = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    needed = [p.name for p in taken[1:] if p.default is p.empty and p.kind not in several]
    unknown = [one for one in needed if one not in given]
    what = f"takes '{unknown[0]}'" if unknown else ""
    if not taken or taken[0].name != "positions":
        what = f"takes '{taken[0].name}' first" if taken else "takes nothing"
    if what:
        raise InputError(
            f"metric '{name}' ({place_of(function)}) {what}: its first parameter is positions, and "
            f"by name it is given, if it takes them, {listed(given, 'and')}."
        )
    return tuple(p.name for p in taken[1:] if p.name in _BY_NAME)


def always(recalls: Iterable[int] = ()) -> list[Metric]:
    """The metrics that every evaluation computes, and R@K for more K."""
    found: dict[str, Metric] = {}
    for declared in METRICS:
        ks = declared.parameters[0].default if declared.parameters else (None,)
        more = recalls if declared.name == RECALL else ()
        for made in map(declared.factory, sorted({*ks, *more})):
            if made.each is not None:
                found[made.name] = made
    return list(found.values())


RECALL = "r{k}"


def headlines() -> tuple[str, ...]:
    """Names, with directions, of what stands in every table: the recalls, their sum, and yours.

    Examples:
        >>> simgrad.evaluation.headlines()[:3]
        ('i2t_r1', 'i2t_r5', 'i2t_r10')
    """
    chosen = [m for m in always() if m.shown == "headline"]
    single = [f"{way}_{m.name}" for way in DIRECTIONS for m in chosen if m.directions]
    return (*single, *(m.name for m in chosen if m.both))


def metric_of(name: str) -> Metric:
    """The record of a name in results: `i2t_r5`, `rsum`, `cxc_t2i_map_at_r`.

    A name that nobody has declared here (a file of results of somebody else's) is described by
    itself.

    Examples:
        >>> one = simgrad.evaluation.metric_of("i2t_r5")
        >>> one.format(51.234), one.better
        ('51.2', 'high')
    """
    way, rest = _split(name)
    parts = rest.split("_")
    for start in range(len(parts)):  # the longest declared name at the end
        known = _declared("_".join(parts[start:]))
        if known is not None:
            truth = " ".join(parts[:start])
            return replace(known, name=name, direction=way, truth=truth)
    return Metric(name, rest.replace("_", " "), "not declared here", digits=3, direction=way)


def check_metric(name: str) -> str:
    """A name as somebody typed it; an error says which there are.

    Examples:
        >>> simgrad.evaluation.check_metric("i2t_r5")
        'i2t_r5'
        >>> simgrad.evaluation.check_metric("i2t_r_5")
        Traceback (most recent call last):
            ...
        simgrad.core.errors.InputError: there is no metric 'i2t_r_5'. Did you mean 'i2t_r5'? ...
    """
    way, rest = _split(name)
    known = _declared(rest)
    if known is None or known.each is None or (not known.directions if way else not known.both):
        names = [*(f"{w}_{m.name}" for m in always() for w in DIRECTIONS if m.directions),
                 *(m.name for m in always() if m.both)]  # fmt: skip
        near = did_you_mean(name, names, cutoff=0.5)
        hint = f" Did you mean '{near}'?" if near else ""
        raise InputError(
            f"there is no metric '{name[:80]}'.{hint} `{METRICS.command}` lists them all; one of "
            "your own needs `simgrad --with FILE.py`."
        )
    return name


class UnknownMetric(InputError, KeyError):
    """A name that is not among results; as a KeyError, `in` and `get` of a mapping work."""

    def __init__(self, name: object, known: Iterable[str]) -> None:
        names = list(known)
        near = did_you_mean(str(name), names, cutoff=0.5)
        hint = f"did you mean '{near}'? " if near else ""
        self.text = f"there is no metric '{name!s:.80}'; {hint}There are: {', '.join(names)}."
        super().__init__(self.text)

    def __str__(self) -> str:
        return self.text


def _split(name: str) -> tuple[str, str]:
    """i2t_r5 -> i2t, r5; cxc_t2i_r5 -> t2i, cxc_r5"""
    parts = name.split("_")
    way = next((part for part in parts if part in DIRECTIONS), "")
    if way:
        parts.remove(way)
    return way, "_".join(parts)


def _declared(name: str) -> Metric | None:
    for declared in METRICS:
        pattern = re.escape(declared.name).replace(r"\{k\}", r"([1-9]\d{0,5})")
        found = re.fullmatch(pattern, name)
        if found:
            return declared.factory(*map(int, found.groups()))
    return None


def per_query(
    positions: Positions, chosen: Iterable[Metric], ranks: Ranks | None = None, way: str = ""
) -> dict[str, Floats]:
    """For each metric the value of each query; left out where these positions do not tell.

    `ranks`, `way`: of which system and direction they are, for metrics that ask.
    """
    found = {}
    for one in chosen:
        if one.each is None or (one.asks and ranks is None):
            continue
        given = {"ranks": ranks, "direction": way}
        try:
            values = one.each(positions, **{name: given[name] for name in one.asks})
        except Exception as error:
            if not one.own:
                raise
            told = f"metric '{one.name}' ({one.own}) raised {type(error).__name__}: {error}"
            raise InputError(told) from error
        if values is not None:
            found[one.name] = _numbers(values, len(positions), one)
    return found


def _numbers(values: Any, queries: int, one: Metric) -> Floats:
    """What a metric gave, as numbers; a tensor's gradient is left behind."""
    numbers, told = np.empty(0), ""
    if hasattr(values, "detach"):
        values = values.detach().cpu()
    try:
        numbers = np.asarray(values, dtype=np.float64)
    except (ValueError, TypeError):
        told = f"{values!r:.60}, which is no number"
    if not told and numbers.shape != (queries,):
        told = f"values of shape {numbers.shape}"
    if not told and not np.isfinite(numbers).all():
        told = f"NaN or infinity for {(~np.isfinite(numbers)).sum()} queries"
    if told:
        where = f" ({one.own})" if one.own else ""
        raise InputError(
            f"metric '{one.name}'{where} gave {told}: one finite number for each of the "
            f"{queries:,} queries is needed."
        )
    return numbers
