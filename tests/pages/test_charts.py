"""Charts: round ticks, labels apart, and nothing that a browser could not draw."""

import itertools
import json
import math
import re
from xml.etree import ElementTree

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from simgrad.pages.charts import (
    WIDTH,
    Curve,
    Interval,
    interval_chart,
    line_chart,
    mean_curve,
    share_chart,
    shorten,
)
from simgrad.pages.fields import Phase, field_chart
from simgrad.pages.svg import printed, spread, standalone, ticks


@given(st.floats(-1e6, 1e6), st.floats(1e-6, 1e6))
@settings(deadline=None)  # a busy machine is no mistake
def test_ticks_are_round_and_inside(low: float, width: float) -> None:
    high = low + width
    if high <= low:
        return
    found = ticks(low, high, 4)
    slack = 1e-6 * max(abs(low), abs(high), width) + 1e-9
    assert all(low - slack <= value <= high + slack for value in found)
    assert 1 <= len(found) <= 11 or width < 1e-4 * abs(low)


def test_printed_ticks() -> None:
    assert [printed(x) for x in (0.0, 1200.0, -0.25, 0.5, 1e-6)] == [
        "0", "1,200", "−0.25", "0.5", "1e−06"
    ]  # fmt: skip


@given(st.lists(st.floats(0, 100), max_size=8))
@settings(deadline=None)  # a busy machine is no mistake
def test_labels_are_moved_apart_in_order(positions: list[float]) -> None:
    placed = spread(positions, 12, 0, 100)
    order = sorted(range(len(positions)), key=lambda i: positions[i])
    gaps = [placed[b] - placed[a] for a, b in itertools.pairwise(order)]
    assert all(gap >= 12 - 1e-9 for gap in gaps)
    if len(positions) == 1:
        assert placed == positions


def test_labels_are_shortened() -> None:
    assert shorten("goal cir sig-ms", 9) == "goal cir…"
    assert shorten("goal", 9) == "goal"


def test_the_mean_curve_stops_where_the_shortest_run_does() -> None:
    mean = mean_curve([[(1, 0.0), (2, 10.0), (3, 20.0)], [(1, 10.0), (2, 20.0)]])
    assert mean == [(1, 5.0), (2, 15.0)]
    assert mean_curve([]) == []


def test_charts_bear_what_training_throws_at_them() -> None:
    curve = Curve("a <b>", 0, [[(1.0, math.nan), (2.0, 3.0)]], [(1.0, math.nan), (2.0, 3.0)])
    svg = line_chart([curve, Curve("empty", None, [], [])], "loss")
    assert "nan" not in svg
    assert "<b>" not in svg
    same = interval_chart([Interval("x", 1, 5.0, None, None)], "one value")
    assert "nan" not in same
    assert "inf" not in same
    shares = share_chart([("x", 0, [1.0, 0.0])], ["1", ">200"], "t")
    assert "100%" in shares
    points = np.array([[0.2, 0.4], [0.3, 0.5]])
    field = field_chart(np.zeros((4, 4)), (0, 1), "t", [Phase("late", 1, points, True)])
    assert "data:image/png" in field
    assert 'xmlns="http://www.w3.org/2000/svg"' in standalone(field)


def test_a_field_rises_upwards() -> None:
    """The weight of a high s- is at the top of the picture."""
    import base64
    import io

    from PIL import Image

    weights = np.zeros((4, 4))
    weights[3, 0] = 1.0  # s- high, s+ low
    svg = field_chart(weights, (0, 1), "t", [])
    data = re.search(r'base64,([^"]+)"', svg)
    assert data is not None
    alpha = np.asarray(Image.open(io.BytesIO(base64.b64decode(data[1]))))[..., 3]
    assert alpha[0, 0] > 0
    assert alpha.sum() == alpha[0, 0]


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=3, max_size=3))
@settings(deadline=None)  # a busy machine is no mistake
@example([(0.22, 0.22), (0.33, 0.24), (0.37, 0.24)])
@example([(0.1, 0.5), (0.28, 0.5), (0.4, 0.5)])
@example([(0.7, 0.5), (0.76, 0.5), (0.8, 0.5)])
def test_no_dot_of_a_phase_lies_under_a_name(middles: list[tuple[float, float]]) -> None:
    names = ("early", "middle", "late")
    phases = [
        Phase(n, i, np.array([m]), False)
        for i, (n, m) in enumerate(zip(names, middles, strict=True))
    ]
    svg = field_chart(np.zeros((2, 2)), (0, 1), "t", phases)
    root = ElementTree.fromstring(standalone(svg))
    dots = [(float(c.attrib["cx"]), float(c.attrib["cy"])) for c in root.iter() if "cx" in c.attrib]
    assert len(dots) == 3
    for text in (one for one in root.iter() if one.text in names):
        x, y = float(text.attrib["x"]), float(text.attrib["y"]) - 4
        far = -45 if text.get("text-anchor") == "end" else 45  # at most so long
        left, right = min(x, x + far), max(x, x + far)
        assert 0 < left < right < WIDTH
        assert not [d for d in dots if left - 5 < d[0] < right and abs(d[1] - y) < 9], text.text


@given(st.text(max_size=20), st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=5))
@settings(deadline=None)  # a busy machine is no mistake
def test_a_chart_carries_its_values_and_is_well_formed(label: str, values: list[float]) -> None:
    label = "".join(c for c in label if c.isprintable())  # XML holds no control characters
    points = [(float(i), value) for i, value in enumerate(values)]
    svg = line_chart([Curve.of(label, 0, [points])], label, values=True)
    root = ElementTree.fromstring(standalone(svg))
    (name, colour, drawn), *rest = json.loads(root.attrib["data-lines"])
    assert not rest
    assert (name, colour) == (label, "0")
    assert [float(f"{y:.5g}") for y in values] == [point[3] for point in drawn]


def test_labels_of_axes_stay_inside() -> None:
    svg = interval_chart([Interval("a", 0, 5.0, -100.0, 99.0)], "gap", zero=True)
    for text in ElementTree.fromstring(standalone(svg)).iter("{http://www.w3.org/2000/svg}text"):
        if text.attrib.get("text-anchor") == "middle":
            half = 4 * len(text.text or "")
            assert half <= float(text.attrib["x"]) <= 340 - half
