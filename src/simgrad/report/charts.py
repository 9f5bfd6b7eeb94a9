"""Charts of numbers: lines over steps, and intervals."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from simgrad.report.svg import colour_class, drawing, element, group, number, printed, spread, ticks

Points = Sequence[tuple[float, float]]
Place = Callable[[float, float], tuple[float, float]]
Scale = Callable[[float], float]
WIDTH = 340.0
LETTER = 6.8  # pixels of an average letter
BOLD = 8.2  # of a bold one, in the widest of the fonts that readers have


@dataclass(frozen=True)
class Curve:
    """One system: each of its runs thin, their mean thick."""

    label: str
    colour: int | None
    runs: Sequence[Points]
    mean: Points


@dataclass(frozen=True)
class Interval:
    """One system on a scale: its mean, its interval, its seeds, what was published."""

    label: str
    colour: int | None
    mean: float
    low: float | None
    high: float | None
    values: Sequence[float] = ()
    published: float | None = None
    note: str = ""


def shorten(text: str, most: int) -> str:
    """No longer than `most` letters."""
    return text if len(text) <= most else text[: most - 1].rstrip(" (,-") + "…"


def line_chart(
    curves: Sequence[Curve], y_label: str, *, height: float = 214, least: float = 0.0
) -> str:
    """Values over training steps, with labels at the ends of the lines."""
    named = [c for c in curves if c.colour is not None] if len(curves) > 1 else []
    letters = max((len(shorten(c.label, 16)) for c in named), default=0)
    left, right, top, bottom = 40.0, WIDTH - 10 - BOLD * letters, 26.0, height - 34
    points = [p for c in curves for run in (*c.runs, c.mean) for p in run]
    finite = [y for _, y in points if math.isfinite(y)] or [0.0, 1.0]
    x_high = max((x for x, _ in points), default=1.0) or 1.0
    y_low, y_high = min([*finite, 0.0]), max(finite)
    y_high += 0.04 * (y_high - y_low) or 1.0

    def place(x: float, y: float) -> tuple[float, float]:
        return (
            left + (right - left) * x / x_high,
            bottom - (bottom - top) * (y - y_low) / (y_high - y_low),
        )

    parts = [_frame(y_label, (left, right, top, bottom), (0.0, x_high), (y_low, y_high), "steps")]
    ordered = sorted(curves, key=lambda c: c.colour is not None)  # the rest lies underneath
    for curve in ordered:
        kind = f"s{colour_class(curve.colour)}"
        faint = 0.35 if curve.colour is not None else 0.2
        if len(curve.runs) > 1:
            parts += [_path(run, place, kind, 0.9, faint) for run in curve.runs]
        parts.append(_path(curve.mean, place, kind, 2.2 if curve.colour is not None else 1, 1))
    ends = [place(*c.mean[-1]) for c in named if c.mean]
    heights = spread([y for _, y in ends], 13, top + 2, bottom)
    for curve, (x, y), label_y in zip([c for c in named if c.mean], ends, heights, strict=True):
        kind = colour_class(curve.colour)
        parts.append(element("circle", cx=x, cy=y, r=2.6, class_=f"f{kind}"))
        parts.append(
            element("text", shorten(curve.label, 16), x=right + 8, y=label_y + 4, class_=f"f{kind}")
        )
    return drawing(WIDTH, height, parts)


def _frame(
    y_label: str,
    box: tuple[float, float, float, float],
    x_range: tuple[float, float],
    y_range: tuple[float, float],
    x_label: str,
) -> str:
    left, right, top, bottom = box
    parts = [element("text", y_label, x=2, y=12, class_="strong")]
    for value in ticks(*y_range, 4):
        y = bottom - (bottom - top) * (value - y_range[0]) / (y_range[1] - y_range[0])
        parts.append(element("line", x1=left, x2=right, y1=y, y2=y, class_="axis"))
        parts.append(element("text", printed(value), x=left - 6, y=y + 4, text_anchor="end"))
    for value in ticks(*x_range, 3 if right - left < 230 else 4):
        x = left + (right - left) * (value - x_range[0]) / (x_range[1] - x_range[0])
        parts.append(element("text", printed(value), x=x, y=bottom + 16, text_anchor="middle"))
    parts.append(
        element("text", x_label, x=(left + right) / 2, y=bottom + 31, text_anchor="middle")
    )
    return group(parts)


def _path(points: Points, place: Place, kind: str, width: float, opacity: float) -> str:
    steps, pen = [], "M"
    for x, y in points:
        if not math.isfinite(y):
            pen = "M"
            continue
        at = place(x, y)
        steps.append(f"{pen}{number(at[0])} {number(at[1])}")
        pen = "L"
    return element(
        "path", d="".join(steps), class_=kind, stroke_width=width, stroke_linejoin="round",
        stroke_linecap="round", opacity=None if opacity == 1 else opacity,
    )  # fmt: skip


def interval_chart(rows: Sequence[Interval], title: str, *, zero: bool = False) -> str:
    """Means with intervals, one row each; seeds are strokes, published values diamonds."""
    values = [v for r in rows for v in (r.mean, r.low, r.high, r.published, *r.values)]
    known = [v for v in values if v is not None and math.isfinite(v)]
    low, high = min(known), max(known)
    if zero:
        low, high = min(low, 0.0), max(high, 0.0)
    room = 0.06 * (high - low) or 1.0
    low, high = low - room, high + room
    left, right, step, top = 8.0, WIDTH - 8, 38.0, 26.0
    bottom = top + step * len(rows) + 4

    def at(value: float) -> float:
        return left + (right - left) * (value - low) / (high - low)

    parts = [element("text", title, x=2, y=12, class_="strong")]
    for value in ticks(low, high, 4):
        x = at(value)
        kind = "zero" if zero and value == 0 else "axis"
        # Only where the intervals are: the labels between them stay free of lines.
        bands = "".join(f"M{number(x)} {number(top + step * i + 19)}v16" for i in range(len(rows)))
        parts.append(element("path", d=bands, class_=kind))
        label = ("+" if zero and value > 0 else "") + printed(value)
        parts.append(element("text", label, x=x, y=bottom + 12, text_anchor="middle"))
    for i, row in enumerate(rows):
        parts.append(_interval(row, top + step * i, left, right, at))
    return drawing(WIDTH, bottom + 18, parts)


def _interval(row: Interval, top: float, left: float, right: float, at: Scale) -> str:
    kind, y = colour_class(row.colour), top + 27
    note = row.note
    label = shorten(row.label, int((right - left) / LETTER) - len(note) - 2)
    parts = [
        element("text", label, x=left, y=top + 14, class_=f"f{kind} halo"),
        element("text", note, x=right, y=top + 14, text_anchor="end", class_="strong halo"),
    ]
    if row.low is not None and row.high is not None:
        x1, x2 = at(row.low), at(row.high)
        parts.append(
            element("line", x1=x1, x2=x2, y1=y, y2=y, class_=f"s{kind}", stroke_width=2.4,
                    stroke_linecap="round")
        )  # fmt: skip
    if len(row.values) > 1:
        strokes = "".join(f"M{number(at(v))} {number(y - 5)}v10" for v in row.values)
        parts.append(element("path", d=strokes, class_=f"s{kind}", stroke_width=1.5))
    if row.published is not None:
        x = at(row.published)
        parts.append(
            element("path", d=f"M{number(x)} {number(y - 6)}l5 6-5 6-5-6z", class_=f"s{kind}",
                    stroke_width=1.6)
        )  # fmt: skip
    parts.append(element("circle", cx=at(row.mean), cy=y, r=5.0, class_=f"f{kind} halo"))
    return group(parts)
