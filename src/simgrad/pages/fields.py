"""Charts of fields as SVG: how hard a triplet is pulled or pushed, and where real triplets lay."""

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from simgrad.pages.charts import WIDTH
from simgrad.pages.svg import drawing, element, group, number, printed, spread, ticks

Array = npt.NDArray[np.float64]
_HEAT = (0, 104, 168)  # the first colour; how opaque it is tells the weight
_DOTS = 220  # of each phase: more hide what lies beneath
_NAME = 60.0  # room for the name of a phase
_PHASE_COLOURS = {"early": 4, "middle": 2, "late": 1}


@dataclass(frozen=True)
class Phase:
    """Where triplets lay in one part of the training."""

    name: str
    colour: int
    points: Array  # (triplets, 2): s+, s-
    drawn: bool  # each point, not only their median


def training_phases(points: dict[str, Array]) -> list[Phase]:
    """Some triplets of each phase; of the middle the median alone: it would hide the others."""
    random = np.random.default_rng(0)
    found = []
    for name, each in points.items():
        chosen = np.asarray(each[random.permutation(len(each))[:_DOTS]], dtype=float)
        found.append(Phase(name, _PHASE_COLOURS.get(name, 3), chosen, drawn=name != "middle"))
    return found


class _Square:
    """The square of a field: similarities to places."""

    left, right, top = 34.0, WIDTH - 4, 36.0
    bottom = top + right - left

    def __init__(self, low: float, high: float) -> None:
        self.low, self.high = low, high

    def x(self, value: float) -> float:
        return self.left + (self.right - self.left) * (value - self.low) / (self.high - self.low)

    def y(self, value: float) -> float:
        return self.bottom - (self.bottom - self.top) * (value - self.low) / (self.high - self.low)


def field_chart(
    weights: Array,
    bounds: tuple[float, float],
    title: str,
    phases: Sequence[Phase] = (),
    source: str | None = None,
) -> str:
    """A triplet's weight over s+ and s-, with where real triplets lay in each phase of training.

    `source`: where a page's script finds the values; "" if it has them.
    """
    low, high = bounds
    at = _Square(low, high)
    side = at.right - at.left
    parts = [
        element("text", title, x=2, y=12, class_="strong"),
        element("text", "↑ similarity of the hardest negative", x=2, y=28),
        element("image", x=at.left, y=at.top, width=side, height=side, href=_picture(weights),
                preserveAspectRatio="none", class_="heat"),
        element("rect", x=at.left, y=at.top, width=side, height=side, fill="none", class_="axis"),
        element("line", x1=at.x(low), y1=at.y(low), x2=at.x(high), y2=at.y(high), class_="zero"),
    ]  # fmt: skip
    for value in ticks(low, high, 4):
        text, y = printed(value), at.y(value) + 4
        parts.append(element("text", text, x=at.left - 5, y=y, text_anchor="end"))
        anchor = "end" if value == high else "middle"
        parts.append(element("text", text, x=at.x(value), y=at.bottom + 15, text_anchor=anchor))
    label = "similarity of the positive →"
    parts.append(element("text", label, x=at.right, y=at.bottom + 31, text_anchor="end"))
    parts += [_dots(phase, at) for phase in phases if phase.drawn]
    parts.append(_trail([phase for phase in phases if phase.name], at))
    # What a page's script needs to tell the place of the pointer.
    square = f"{number(at.left)} {number(at.top)} {number(side)}"
    more = {} if source is None else {"data_square": square, "data_source": source}
    return drawing(WIDTH, at.bottom + 36, parts, **more)


def _dots(phase: Phase, at: _Square) -> str:
    dots = "".join(f"M{number(at.x(p))} {number(at.y(n))}h0" for p, n in phase.points)
    few = len(phase.points) < 100
    return element(
        "path", d=dots, class_=f"s{phase.colour}", stroke_width=5.5 if few else 2.8,
        stroke_linecap="round", opacity=0.85 if few else 0.6,
    )  # fmt: skip


def _trail(phases: Sequence[Phase], at: _Square) -> str:
    """The median of each phase, one after another, each with its name."""
    centres = [np.median(phase.points, axis=0) for phase in phases]
    places = [(at.x(float(c[0])), at.y(float(c[1]))) for c in centres]
    heights = spread([y for _, y in places], 14, at.top + 8, at.bottom - 4)
    way = "".join(f"{'L' if i else 'M'}{number(x)} {number(y)}" for i, (x, y) in enumerate(places))
    parts = [element("path", d=way, class_="sx", stroke_width=1.6)] if len(places) > 1 else []
    for phase, (x, y), label_y in zip(phases, places, heights, strict=True):
        kind = f"f{phase.colour} halo"
        parts.append(element("circle", cx=x, cy=y, r=5.0, class_=kind))
        dots = [px for px, py in places if abs(py - label_y) < 12]
        start = _beyond(x, dots)
        at_edge = start > 0.75 * WIDTH
        if at_edge:
            start = -_beyond(-x, [-dot for dot in dots])
        parts.append(
            element("text", phase.name, x=start - 10 if at_edge else start + 10, y=label_y + 4,
                    text_anchor="end" if at_edge else None, class_=kind)
        )  # fmt: skip
    return group(parts)


def _beyond(x: float, dots: Sequence[float]) -> float:
    """The last dot of a row that begins at x: a name to the right of it covers none."""
    for dot in sorted(dots):
        if x <= dot < x + _NAME:
            x = dot
    return x


def _picture(weights: Array) -> str:
    """Weights as how opaque one colour is, so that the page's own paper shows through zero."""
    from PIL import Image

    largest = float(np.abs(weights).max()) or 1.0
    pixels = np.zeros((*weights.shape, 4), dtype=np.uint8)
    pixels[..., :3] = _HEAT
    pixels[..., 3] = np.round(135 * np.clip(np.abs(weights) / largest, 0, 1))
    file = io.BytesIO()
    Image.fromarray(pixels[::-1]).save(file, "PNG", optimize=True)  # s- rises upwards
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()
