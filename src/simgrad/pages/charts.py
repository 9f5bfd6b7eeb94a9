"""Charts of numbers as SVG: lines over epochs, intervals, shares."""

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from simgrad.pages.svg import colour_class, drawing, element, group, number, printed, spread, ticks

Points = Sequence[tuple[float, float]]
Place = Callable[[float, float], tuple[float, float]]
Scale = Callable[[float], float]
WIDTH = 340.0
_HEIGHT = 214.0  # of lines
LETTER = 6.8  # pixels of an average letter
_BOLD = 8.2  # of a bold one, in the widest of the fonts that readers have
_MOST_LETTERS = 17  # of a label at the end of a line
_MOST_POINTS = 160  # along one line: more cannot be seen


@dataclass(frozen=True)
class Curve:
    """One system: each of its runs thin, their mean thick."""

    label: str
    colour: int | None  # None: grey and without a label, one of the rest
    runs: Sequence[Points]
    mean: Points

    @staticmethod
    def of(label: str, colour: int | None, runs: Sequence[Points]) -> "Curve":
        """The curve of some runs; those without a point are left out."""
        shown = [thinned(run) for run in runs if run]
        return Curve(label, colour, shown, mean_curve(shown))


@dataclass(frozen=True)
class Interval:
    """One system on a scale: its mean, its interval, its seeds, what a paper printed."""

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


def thinned(points: Points) -> Points:
    """Few enough points for a line, the first and the last among them."""
    if len(points) <= _MOST_POINTS:
        return points
    return [points[i] for i in np.linspace(0, len(points) - 1, _MOST_POINTS).astype(int)]


def mean_curve(runs: Sequence[Points]) -> Points:
    """The mean over runs, as far as all of them have come."""
    if len(runs) < 2:
        return list(runs[0]) if runs else []
    first, last = max(run[0][0] for run in runs), min(run[-1][0] for run in runs)
    places = sorted({x for run in runs for x, _ in run if first <= x <= last})
    columns = [np.interp(places, [x for x, _ in run], [y for _, y in run]) for run in runs]
    return [(x, float(y)) for x, y in zip(places, np.mean(columns, axis=0), strict=True)]


@dataclass(frozen=True)
class _Box:
    """Where the lines are: the edges on paper, and the values they stand for."""

    left: float
    right: float
    top: float
    bottom: float
    x_high: float
    y_low: float
    y_high: float

    def place(self, x: float, y: float) -> tuple[float, float]:
        across = (self.right - self.left) * x / self.x_high
        up = (self.bottom - self.top) * (y - self.y_low) / (self.y_high - self.y_low)
        return self.left + across, self.bottom - up


def line_chart(
    curves: Sequence[Curve],
    title: str,
    x_label: str = "epoch",
    *,
    values: bool = False,
    from_zero: bool = True,
) -> str:
    """Values from 0 or below upwards, with labels at the ends of the lines.

    `from_zero` false: from just below the least, where lines lie close together far from 0.

    `values`: the drawing carries its numbers, so that a page's script can show them.
    """
    named = [c for c in curves if c.colour is not None and c.mean] if len(curves) > 1 else []
    letters = max((len(shorten(c.label, _MOST_LETTERS)) for c in named), default=0)
    points = [p for c in curves for run in (*c.runs, c.mean) for p in run]
    finite = [y for _, y in points if math.isfinite(y)] or [0.0, 1.0]
    y_low, y_high = min([*finite, 0.0] if from_zero else finite), max(finite)
    y_low -= 0.0 if from_zero else 0.1 * (y_high - y_low)
    y_high += 0.04 * (y_high - y_low) or 1.0
    x_high = max((x for x, _ in points), default=1.0) or 1.0
    box = _Box(40, WIDTH - 10 - _BOLD * letters, 26, _HEIGHT - 34, x_high, y_low, y_high)
    parts = [_frame(title, x_label, box)]
    for curve in sorted(curves, key=lambda c: c.colour is not None):  # the rest lies underneath
        kind = f"s{colour_class(curve.colour)}"
        faint = 0.35 if curve.colour is not None else 0.2
        if len(curve.runs) > 1:
            parts += [_path(run, box.place, kind, 0.9, faint) for run in curve.runs]
        thick = 2.2 if curve.colour is not None else 1.0
        parts.append(_path(curve.mean, box.place, kind, thick, 1))
    ends = [box.place(*c.mean[-1]) for c in named]
    heights = spread([y for _, y in ends], 13, box.top + 2, box.bottom)
    for curve, (x, y), label_y in zip(named, ends, heights, strict=True):
        kind, text = f"f{colour_class(curve.colour)}", shorten(curve.label, _MOST_LETTERS)
        parts.append(element("circle", cx=x, cy=y, r=2.6, class_=kind))
        parts.append(element("text", text, x=box.right + 8, y=label_y + 4, class_=kind))
    if not values:
        return drawing(WIDTH, _HEIGHT, parts)
    lines = _values(curves, box.place)
    return drawing(WIDTH, _HEIGHT, parts, data_x=x_label, data_lines=lines)


def _values(curves: Sequence[Curve], place: Place) -> str:
    """Label, colour and (place, place, value, value) of each line, as JSON."""
    lines = []
    for curve in curves:
        points = [(*place(x, y), x, y) for x, y in curve.mean if math.isfinite(y)]
        short = [
            [round(a, 1), round(b, 1), round(x, 4), float(f"{y:.5g}")] for a, b, x, y in points
        ]
        lines.append([curve.label, colour_class(curve.colour), short])
    return json.dumps(lines, ensure_ascii=False, separators=(",", ":"))


def _frame(title: str, x_label: str, box: _Box) -> str:
    parts = [element("text", title, x=2, y=12, class_="strong")]
    for value in ticks(box.y_low, box.y_high, 4):
        y = box.place(0, value)[1]
        parts.append(element("line", x1=box.left, x2=box.right, y1=y, y2=y, class_="axis"))
        parts.append(element("text", printed(value), x=box.left - 6, y=y + 4, text_anchor="end"))
    for value in ticks(0, box.x_high, 3 if box.right - box.left < 230 else 4):
        x = box.place(value, 0)[0]
        parts.append(element("text", printed(value), x=x, y=box.bottom + 16, text_anchor="middle"))
    middle = (box.left + box.right) / 2
    parts.append(element("text", x_label, x=middle, y=box.bottom + 31, text_anchor="middle"))
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
    known = [v for v in values if v is not None and math.isfinite(v)] or [0.0]
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
        reach = 2 + _BOLD * len(label) / 2  # a label at an edge is moved inside
        place = min(max(x, reach), WIDTH - reach)
        parts.append(element("text", label, x=place, y=bottom + 12, text_anchor="middle"))
    for i, row in enumerate(rows):
        parts.append(_interval(row, top + step * i, left, right, at))
    return drawing(WIDTH, bottom + 18, parts)


def _interval(row: Interval, top: float, left: float, right: float, at: Scale) -> str:
    kind, y = colour_class(row.colour), top + 27
    label = shorten(row.label, int((right - left) / LETTER) - len(row.note) - 2)
    parts = [
        element("text", label, x=left, y=top + 14, class_=f"f{kind} halo"),
        element("text", row.note, x=right, y=top + 14, text_anchor="end", class_="strong halo"),
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


def share_chart(
    rows: Sequence[tuple[str, int | None, Sequence[float]]], names: Sequence[str], title: str
) -> str:
    """Shares that add up to one, a bar for each system: darkest is best."""
    left, right, step, top = 4.0, WIDTH - 4, 42.0, 42.0
    shades = [1 - 0.88 * i / max(1, len(names) - 1) for i in range(len(names))]
    parts = [element("text", title, x=2, y=12, class_="strong")]
    x = left
    for name, shade in zip(names, shades, strict=True):
        parts.append(
            element("rect", x=x, y=22.0, width=9, height=9, rx=2, class_="f0", opacity=shade)
        )
        parts.append(element("text", name, x=x + 13, y=30.5))
        x += 24 + LETTER * len(name)
    for i, (label, colour, shares) in enumerate(rows):
        y = top + step * i
        parts.append(element("text", label, x=left, y=y + 12, class_=f"f{colour_class(colour)}"))
        parts += _bar(shares, shades, left, right, y)
    return drawing(WIDTH, top + step * len(rows), parts)


def _bar(
    shares: Sequence[float], shades: Sequence[float], left: float, right: float, y: float
) -> list[str]:
    parts, x = [], left
    for shade, share in zip(shades, shares, strict=True):
        size = (right - left) * share
        parts.append(
            element("rect", x=x, y=y + 18, width=max(0.0, size - 0.8), height=16, class_="f0",
                    opacity=shade)
        )  # fmt: skip
        if size > 28:
            kind, text = "on-dark" if shade > 0.7 else "strong", f"{100 * share:.0f}%"
            middle = x + size / 2
            parts.append(
                element("text", text, x=middle, y=y + 30, text_anchor="middle", class_=kind)
            )
        x += size
    return parts
