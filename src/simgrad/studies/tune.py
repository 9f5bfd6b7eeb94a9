"""`tune` in a study file: how the setting of every row is searched for, and in which ranges.

Every row has the same budget. Where to look for one value is a range, choices, or choices that are
crossed:

    lr: {low: 1e-4, high: 2e-3}         # by factors
    model.dimension: [512, 1024]        # choices, drawn
    first_epochs: {crossed: [0, 1]}     # every drawn point is tried with each of them

A value in the last twentieth of its range lies at its end: a better one may be beyond.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from simgrad.core.spec import Range, print_value
from simgrad.core.typed import Text, Typed


class CrossedRanges(tuple[Any, ...]):
    """Choices that are not drawn: each point is tried with every one of them."""

    __slots__ = ()


Choices = tuple[Any, ...]
Where = Range | Choices
Space = dict[str, Where]  # by field, `objective.PARAMETER` or `model.PARAMETER`
Setting = dict[str, Any]
End = Literal["lower", "upper"]
_EDGE = 0.05  # of a range: closer to its end than that is at its end
_LONGEST = 200  # choices


def _where(value: Any) -> Where | None:
    if value is None or isinstance(value, Range):
        return value
    if isinstance(value, (list, tuple)):
        if not 2 <= len(value) <= _LONGEST:
            raise ValueError(f"is a list of 2 to {_LONGEST} choices, or {{low: .., high: ..}}")
        return value if isinstance(value, CrossedRanges) else tuple(value)
    if isinstance(value, Mapping) and set(value) == {"crossed"}:
        choices = _where(value["crossed"])
        if not isinstance(choices, tuple) or len(set(map(repr, choices))) < len(choices):
            raise ValueError("is crossed with a list of choices, each named once")
        return CrossedRanges(choices)
    known = {field.name for field in fields(Range)}
    if not isinstance(value, Mapping) or not {"low", "high"} <= set(value) <= known:
        raise ValueError(
            "is {low: .., high: .., log: true}, a list of choices, {crossed: [..]}, or null"
        )
    numbers = {key: value[key] for key in ("low", "high")}
    try:
        numbers = {key: float(number) for key, number in numbers.items()}
    except (TypeError, ValueError, OverflowError):
        raise ValueError("has ends that are numbers") from None
    if not all(map(math.isfinite, numbers.values())) or not isinstance(
        value.get("log", True), bool
    ):
        raise ValueError("has ends that are numbers, and log: true or false")
    return Range(numbers["low"], numbers["high"], value.get("log", True))


Searched = Annotated[
    Any,
    BeforeValidator(
        _where, json_schema_input_type=dict[str, float | bool | list[Any]] | list[Any] | None
    ),
]


def plain(where: Where | None) -> Any:
    """As in a study file."""
    if isinstance(where, CrossedRanges):
        return {"crossed": list(where)}
    return asdict(where) if isinstance(where, Range) else list(where) if where else None


def mixes(space: Mapping[str, Where | None]) -> list[Setting]:
    """Every mix of the values that are crossed; one empty mix where none are."""
    crossed = {
        key: where for key, where in sorted(space.items()) if isinstance(where, CrossedRanges)
    }
    return [dict(zip(crossed, mix, strict=True)) for mix in itertools.product(*crossed.values())]


def ends(where: Where) -> Sequence[Any]:
    """The first and the last of these, or more."""
    return (where.low, where.high) if isinstance(where, Range) else where


def around(where: Range, end: End) -> Range:
    """A range of the same width, with that end in its middle."""
    at = where.low if end == "lower" else where.high
    if where.log:
        half = math.sqrt(where.high / where.low)
        return Range(at / half, at * half)
    half = (where.high - where.low) / 2
    return Range(at - half, at + half, log=False)


def rounded(value: Any, whole: bool) -> Any:
    """A value as it is used and shown: three figures are enough."""
    if isinstance(value, float):
        return round(value) if whole else float(f"{value:.3g}")
    return value


def at_edges(space: Space, setting: Setting) -> list[str]:
    """In words, which values lie at an end of their range: a better one may be beyond."""
    told = []
    for key, where in space.items():
        end = end_of(where, setting[key]) if key in setting else None
        if end is not None:
            value = print_value(setting[key])
            shown = where if isinstance(where, Range) else ", ".join(map(print_value, where))
            told.append(f"{key} = {value} is at the {end} end of its range, {shown}")
    return told


def end_of(where: Where, value: Any) -> End | None:
    """Which end of its range a value lies at. A list has ends if it is of three numbers or more."""
    if isinstance(where, Range):
        scale = math.log if where.log else float
        low, high, at = (scale(v) for v in (where.low, where.high, value))
        place = (at - low) / (high - low)
        return "lower" if place <= _EDGE else "upper" if place >= 1 - _EDGE else None
    numbers = [one for one in where if isinstance(one, int | float) and not isinstance(one, bool)]
    if len(numbers) < max(3, len(where)):
        return None
    return "lower" if value == min(numbers) else "upper" if value == max(numbers) else None


class Tune(Typed):
    """How every row of a study is tuned: with the same budget, by validation alone."""

    trials: int = Field(ge=1, le=10_000, description="Settings tried for each row, alike for all")
    space: dict[str, Searched] = Field(
        default_factory=dict,
        description="Where to look, beside the default: fields of the recipe, objective.PARAMETER, "
        "model.PARAMETER; {low, high, log}, a list of choices, {crossed: choices} (each point that "
        "is drawn is tried with every one), or null: not searched",
    )
    search: Literal["tpe", "quasi-random", "grid"] = Field(
        default="tpe", description="tpe: the first half quasi-random, then by Optuna's TPE"
    )
    start: bool = Field(
        default=False,
        description="The first trial of every row has the recipe's own values and the objective's "
        "defaults, so that no row is judged by poor settings alone",
    )
    select: Text | None = Field(
        default=None, description="Validation metric that decides; by default the recipe's"
    )
    finalists: int = Field(
        default=1,
        ge=1,
        description="So many of a row's best settings are trained with more seeds before one is "
        "chosen, by its mean; 1: the best single trial is chosen",
    )
    repeats: int = Field(
        default=2, ge=1, le=100, description="With how many more seeds finalists are trained"
    )
    extend: bool = Field(
        default=False,
        description="Where the best of a row's trials lies at the end of a range, add a quarter "
        "as many trials, from a range of the same width around that end; once",
    )
    replicates: int = Field(
        default=1,
        ge=1,
        le=1000,
        description="Do it all N times: settings, finalists and seeds are drawn anew each time, "
        "so that the luck of the search shows",
    )
    splits: Literal["same", "new"] = Field(
        default="same",
        description="new: each replicate also draws a train, val and test split of its own, as "
        "the recipe's `resplit` says",
    )
    reduction: Literal["mean", "sum", "published"] = Field(
        default="mean", description="How all rows reduce their loss (see the recipe's field)"
    )
    seed: int = Field(
        default=1000,
        ge=0,
        lt=2**31,
        description="Of the search and its trials; no seed of the table",
    )

    @model_validator(mode="before")
    @classmethod
    def _of_today(cls, values: Any) -> Any:
        """Study files of earlier versions name halving even where it is off."""
        if isinstance(values, Mapping) and "halving" in values and values["halving"] is None:
            return {key: value for key, value in values.items() if key != "halving"}
        return values

    @property
    def quasi_random(self) -> int:
        """How many trials come before any that learns from others: a power of two near half."""
        if self.search != "tpe":
            return self.trials
        power: int = 2 ** max(1, round(math.log2(max(1, self.trials / 2))))
        return min(self.trials, power)

    @property
    def further(self) -> int:
        """Trainings of a row's finalists with more seeds, at most."""
        return self.finalists * self.repeats if self.finalists > 1 else 0

    @property
    def trainings(self) -> int:
        """Of a row before its setting is chosen, at most."""
        return self.trials + self.beyond(len(mixes(self.space))) + self.further

    def beyond(self, crossed: int) -> int:
        """How many trials an extended range adds, where each point is tried in so many mixes."""
        return crossed * math.ceil(max(2, self.trials / 4) / crossed) if self.extend else 0

    @property
    def seeds(self) -> range:
        """Of trials and their repetitions."""
        return range(self.seed, self.seed + 1 + (self.repeats if self.further else 0))

    def of_row(self, space: Mapping[str, Where | None]) -> "Tune":
        """The same search with what one row says of where to look."""
        return self.model_copy(update={"space": {**self.space, **space}}) if space else self

    def to_dict(self) -> dict[str, Any]:
        """Plain values that read back."""
        space = {key: plain(where) for key, where in self.space.items()}
        return {**self.model_dump(exclude={"space"}), "space": space}
