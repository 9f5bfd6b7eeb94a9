"""Curves of pair weights as matplotlib figures; style as in `drawing.py`."""

from typing import TYPE_CHECKING, Any

from simgrad.analysis.diagrams import PairCurves, pair_curves
from simgrad.analysis.drawing import BLUE, STYLE, VERMILION, Objectives, read_rules, superscript

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_DASHES = ("-", "--", ":", "-.")


def pair_weight_diagram(
    objectives: Objectives,
    *,
    relative: float | None = 0.1,
    low: float = 0.0,
    high: float = 1.0,
) -> "Figure":
    """Weights of a pair over its similarity, one panel per objective (figure 3 of the paper).

    Examples:
        >>> figure = simgrad.analysis.pair_weight_diagram(["goal(triplet=con, pair=sig)"])
        >>> path = simgrad.analysis.save_figure(figure, "pairs.svg")
    """
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    rules = read_rules(objectives)
    curves = [pair_curves(rule, low=low, high=high, relative=relative) for rule in rules]
    columns = min(len(curves), 5)
    rows = -(-len(curves) // columns)
    with rc_context(STYLE):
        size = (max(columns * 2.5, 3.4), rows * 2.4 + 0.35)
        figure = Figure(figsize=size, layout="constrained")
        axes = figure.subplots(rows, columns, squeeze=False).ravel()
        for axis, curve in zip(axes, curves, strict=False):
            _draw_curves(axis, curve)
        for axis in axes[len(curves) :]:
            axis.set_visible(False)
        _pair_legend(figure, curves, relative)
    return figure


def _draw_curves(axis: Any, curve: PairCurves) -> None:
    title = curve.objective
    if curve.factors:
        axis.plot(curve.similarity, curve.pull[0], color=BLUE)
        axis.plot(curve.similarity, curve.push[0], color=VERMILION, linestyle="--")
        title = superscript("P", curve.pair_name) if curve.pair_name else title
    else:
        for pull, push, dash in zip(curve.pull, curve.push, _DASHES, strict=False):
            axis.plot(curve.similarity, pull, color=BLUE, linestyle=dash)
            axis.plot(curve.similarity, push, color=VERMILION, linestyle=dash)
    axis.set(title=title, xlabel="similarity of the pair", ylabel="weight")
    axis.set_xlim(curve.similarity[0], curve.similarity[-1])
    largest = max(curve.pull.max(), curve.push.max())
    axis.set_ylim(min(0.0, curve.pull.min(), curve.push.min()), 1.08 * max(largest, 1e-9))
    axis.spines[["top", "right"]].set_visible(False)


def _pair_legend(figure: Any, curves: list[PairCurves], relative: float | None) -> None:
    from matplotlib.lines import Line2D

    handles = []
    if any(curve.factors for curve in curves):
        handles += [
            Line2D([], [], color=BLUE, label="$P_+$, pull of the positive"),
            Line2D([], [], color=VERMILION, linestyle="--", label="$P_-$, push of the negative"),
        ]
    plain = next((curve for curve in curves if not curve.factors), None)
    if plain is not None:
        handles += [
            Line2D([], [], color=BLUE, label="pull of the positive"),
            Line2D([], [], color=VERMILION, label="push of the negative"),
        ]
        handles += [
            Line2D([], [], color="0.3", linestyle=dash, label=f"the other pair at {other:g}")
            for other, dash in zip(plain.others, _DASHES, strict=False)
        ]
    if relative is not None and any(curve.pair_name.endswith("-ms") for curve in curves):
        told = f"relative terms $m_+ = m_-$ = {relative:g}"
        handles.append(Line2D([], [], linestyle="none", label=told))
    columns = min(len(handles), max(2, int(figure.get_figwidth() / 1.9)))
    figure.legend(
        handles=handles, loc="outside lower center", ncols=columns, fontsize=8, frameon=False
    )
