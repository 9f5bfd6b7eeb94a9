"""Where a search looks for one value: a range, choices, or choices that are crossed.

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

from pydantic import BeforeValidator

from simgrad.core.spec import Range, print_value


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
