"""How many true pairs have which cross-retrieval rank: figure 1 of AOQ's supplement."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from simgrad.analysis.drawing import STYLE
from simgrad.core.errors import InputError
from simgrad.evaluation.crossrank import cross_ranks, histogram
from simgrad.evaluation.ranks import Ranks

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_HATCHES = ("", "//", "..", "xx", "\\\\", "++")


def cross_rank_diagram(systems: Mapping[str, Ranks]) -> "Figure":
    """Bars for each interval of ranks, one for each system."""
    if not systems:
        raise InputError("no run has kept ranks yet: nothing to draw.")
    from matplotlib import colormaps, rc_context
    from matplotlib.figure import Figure

    counts = {label: histogram(cross_ranks(ranks)) for label, ranks in systems.items()}
    names = list(next(iter(counts.values())))
    width = 0.8 / len(counts)
    colours = colormaps["cividis"](np.linspace(0.1, 0.9, len(counts)))
    with rc_context(STYLE):
        figure = Figure(figsize=(7.2, 3.2), layout="constrained")
        axis = figure.subplots()
        for number, (label, found) in enumerate(counts.items()):
            places = np.arange(len(names)) + width * (number + 0.5) - 0.4
            hatch = _HATCHES[number % len(_HATCHES)]  # also told apart without colour
            bars = axis.bar(
                places, list(found.values()), width, color=colours[number], hatch=hatch, label=label
            )
            axis.bar_label(bars, fmt="{:,.0f}", fontsize=6, rotation=90, padding=2)
        axis.set_xticks(np.arange(len(names)), names)
        axis.set_xlabel("cross-retrieval rank")
        pairs = sum(next(iter(counts.values())).values())
        axis.set_ylabel(f"of {pairs:,} true pairs")
        axis.margins(y=0.18)
        axis.legend(frameon=False, fontsize=7)
    return figure
