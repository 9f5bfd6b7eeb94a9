"""How many true pairs have which cross-retrieval rank: figure 1 of AOQ's supplement."""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from simgrad.analysis.drawing import STYLE
from simgrad.core.errors import InputError
from simgrad.evaluation.ranks import Ranks
from simgrad.evaluation.retrieval import cross_ranks, histogram

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Panels = Mapping[str, Mapping[str, Sequence[Ranks]]]  # title -> label -> one for each seed
_HATCHES = ("", "//", "..", "xx", "\\\\", "++")
_COLUMNS = 2
_SEEDS = "means over seeds, lines from the smallest to the largest"
_NUMBERED = 6  # bars side by side that have room for their numbers


def cross_rank_diagram(panels: Panels) -> "Figure":
    """A panel for each model, bars for each interval of ranks, one for each of its settings.

    Bars are means over seeds; a line goes from the smallest seed to the largest. The same setting
    has the same colour and hatch in every panel, and all panels have one scale.

    Examples:
        >>> import torch
        >>> from simgrad.analysis.cross_drawing import cross_rank_diagram
        >>> seeds = [simgrad.evaluate_similarities(torch.randn(4, 4)).ranks for _ in range(2)]
        >>> figure = cross_rank_diagram({"VSRN": {"online": seeds, "off-quin": seeds}})
        >>> len(figure.axes)
        1
    """
    shown = {title: {k: v for k, v in rows.items() if v} for title, rows in panels.items()}
    shown = {title: rows for title, rows in shown.items() if rows}
    if not shown:
        raise InputError("no run has kept ranks yet: nothing to draw.")
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    labels = list(dict.fromkeys(label for rows in shown.values() for label in rows))
    columns = min(_COLUMNS, len(shown))
    lines = math.ceil(len(shown) / columns)
    most = max(map(len, shown.values()))
    size = (columns * max(4.4, 1.6 + 0.75 * most), 0.5 + 2.5 * lines)
    with rc_context(STYLE):
        figure = Figure(figsize=size, layout="constrained")
        axes = figure.subplots(lines, columns, squeeze=False, sharey=True).flatten()
        for axis, (title, rows) in zip(axes, shown.items(), strict=False):
            _panel(axis, rows, labels)
            axis.set_title(title)
        for axis in axes[len(shown) :]:
            axis.remove()
        drawn: dict[Any, Any] = {
            bars.get_label(): bars for axis in figure.axes for bars in axis.containers
        }
        several = any(len(seeds) > 1 for rows in shown.values() for seeds in rows.values())
        figure.legend(
            [drawn[label] for label in labels], labels, loc="outside lower center",
            ncols=min(len(labels), 2 * columns), frameon=False, fontsize=7, title_fontsize=7,
            title=_SEEDS if several else None,
        )  # fmt: skip
    return figure


def _panel(axis: Any, rows: Mapping[str, Sequence[Ranks]], labels: list[str]) -> None:
    from matplotlib import colormaps

    counts = {k: [histogram(cross_ranks(r)) for r in ranks] for k, ranks in rows.items()}
    names = list(next(iter(counts.values()))[0])
    colours = colormaps["cividis"](np.linspace(0.1, 0.9, max(2, len(labels))))
    width = 0.8 / len(counts)
    for number, (label, found) in enumerate(counts.items()):
        each = np.array([[c[name] for name in names] for c in found], dtype=float)
        means = each.mean(axis=0)
        ends = np.stack([means - each.min(axis=0), each.max(axis=0) - means])
        place, own = np.arange(len(names)) + width * (number + 0.5) - 0.4, labels.index(label)
        hatch = _HATCHES[own % len(_HATCHES)]  # also told apart without colour
        axis.bar(place, means, width, color=colours[own], hatch=hatch, label=label)
        if len(found) > 1:
            axis.errorbar(place, means, ends, fmt="none", ecolor="black", elinewidth=0.7, label="_")
        if len(counts) <= _NUMBERED:
            for x, mean, top in zip(place, means, each.max(axis=0), strict=True):
                axis.annotate(f"{mean:,.0f}", (x, top), (0, 3), textcoords="offset points",
                              ha="center", va="bottom", fontsize=6, rotation=90)  # fmt: skip
    axis.set_xticks(np.arange(len(names)), names)
    axis.set_xlabel("cross-retrieval rank")
    pairs = sum(next(iter(counts.values()))[0].values())
    axis.set_ylabel(f"of {pairs:,} true pairs")
    axis.margins(y=0.3)  # room for numbers of five digits
