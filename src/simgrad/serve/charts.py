"""Line charts as SVG that the server draws; a script only adds what shows on hovering."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

WIDTH, HEIGHT = 560, 260
_LEFT, _RIGHT, _TOP, _BOTTOM = 48, 12, 12, 32

Points = list[tuple[float, float]]


@dataclass(frozen=True)
class Line:
    """One line: its label, and points by rising x."""

    label: str
    points: Points


@dataclass(frozen=True)
class Chart:
    """What the template draws."""

    title: str
    x_label: str
    lines: list[dict[str, Any]]  # label, path, colour
    x_ticks: list[tuple[float, str]]
    y_ticks: list[tuple[float, str]]
    hover: str  # JSON for the script
    summary: str  # for those who cannot see it
    width: int = WIDTH
    height: int = HEIGHT
    left: int = _LEFT
    right: int = WIDTH - _RIGHT
    top: int = _TOP
    bottom: int = HEIGHT - _BOTTOM


def chart(title: str, x_label: str, lines: Sequence[Line]) -> Chart | None:
    """A chart of these lines; None where there is nothing to draw."""
    lines = [line for line in lines if line.points]
    if not lines:
        return None
    xs = [x for line in lines for x, _ in line.points]
    ys = [y for line in lines for _, y in line.points]
    x_ticks, y_ticks = ticks(min(0.0, *xs), max(xs)), ticks(min(ys), max(ys))
    x_low, x_high = min(min(xs), x_ticks[0]), max(max(xs), x_ticks[-1])
    y_low, y_high = min(min(ys), y_ticks[0]), max(max(ys), y_ticks[-1])

    def across(x: float) -> float:
        return round(_LEFT + (x - x_low) / (x_high - x_low) * (WIDTH - _LEFT - _RIGHT), 1)

    def down(y: float) -> float:
        return round(
            HEIGHT - _BOTTOM - (y - y_low) / (y_high - y_low) * (HEIGHT - _TOP - _BOTTOM), 1
        )

    drawn = [
        {
            "label": line.label,
            "colour": k % 8,
            "path": "M" + "L".join(f"{across(x)} {down(y)}" for x, y in line.points),
            "points": [(across(x), down(y)) for x, y in line.points]
            if len(line.points) <= 40
            else [],
        }
        for k, line in enumerate(lines)
    ]
    hover = [
        {
            "label": line.label,
            "colour": k % 8,
            "points": [(across(x), down(y), x, y) for x, y in line.points],
        }
        for k, line in enumerate(lines)
    ]
    ends = "; ".join(f"{line.label} ends at {line.points[-1][1]:.4g}" for line in lines[:12])
    return Chart(
        title,
        x_label,
        drawn,
        [(across(x), tick_text(x)) for x in x_ticks],
        [(down(y), tick_text(y)) for y in y_ticks],
        json.dumps(hover),
        f"{title} by {x_label}: {ends}.",
    )


def ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Round numbers from about `low` to about `high`."""
    if not high > low:
        low, high = low - max(0.5, abs(low) / 10), high + max(0.5, abs(high) / 10)
    rough = (high - low) / count
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * m for m in (1, 2, 2.5, 5, 10) if power * m >= rough * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [k * step for k in range(first, last + 1)]


def tick_text(value: float) -> str:
    """A short figure."""
    return f"{value:.4g}" if abs(value) < 1e5 else f"{value:.0e}"


def curve(history: Sequence[dict[str, Any]], *keys: str) -> Points:
    """The value under nested keys over epochs."""
    found = []
    for entry in history:
        value: Any = entry
        for key in keys:
            value = value.get(key) if isinstance(value, dict) else None
        x = entry.get("epoch")
        if isinstance(value, int | float) and isinstance(x, int | float) and math.isfinite(value):
            found.append((float(x), float(value)))
    return found


def mean_curve(curves: Sequence[Points]) -> Points:
    """The mean of several seeds, as far as all of them have come."""
    curves = [points for points in curves if points]
    if not curves:
        return []
    length = min(len(points) for points in curves)
    return [(curves[0][k][0], fmean(points[k][1] for points in curves)) for k in range(length)]
