"""Diagrams as matplotlib figures, readable in print and with any colour vision.

Weights are shades of cividis (which keeps its order for every kind of colour vision and in grey)
with labelled level lines; curves differ in dash as well as in colour. Nothing here touches
matplotlib's global state, so figures may be drawn in threads.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from simgrad.analysis.diagrams import Array, TripletField, read_triplets, triplet_field
from simgrad.core.errors import InputError
from simgrad.core.files import atomic_path
from simgrad.core.named_files import refuse_foreign
from simgrad.objectives import Objective
from simgrad.objectives import objective as read

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Objectives = str | Objective | Sequence[str | Objective]

# Okabe and Ito's colours, which every kind of colour vision tells apart.
BLUE, VERMILION, _GREEN = "#0072B2", "#D55E00", "#009E73"
_PHASE_STYLE = {"early": (BLUE, ":"), "middle": (_GREEN, "--"), "late": (VERMILION, "-")}
STYLE: dict[str, Any] = {"font.size": 9, "axes.titlesize": 10, "axes.labelsize": 9}
_PANEL = 2.6  # inches
_MADE_BY = "simgrad"
# Where that stands in a file: by this a picture of ours is known.
_MARKS = {"png": "Software\0simgrad", "svg": ">simgrad<", "pdf": "/Creator (simgrad)"}
_COLUMNS = 3
_BINS = 120  # of a density, each way


def triplet_diagram(
    objectives: Objectives,
    *,
    part: str = "weights",
    run: str | Path | None = None,
    resolution: int = 241,
    low: float | None = None,
    high: float = 1.0,
) -> "Figure":
    """Weights of a triplet over the similarity of its positive and its negative.

    Panels of an objective: its triplet weight where it has one, the pull of the positive and the
    push of the negative (one panel where they are equal). `part="triplet"` draws the triplet
    weights alone, as figure 2 of the paper. `run`: over it, where the run's real triplets lay
    early, in the middle and late in training. `low` is 0, or what the run's triplets need.

    Examples:
        >>> figure = simgrad.analysis.triplet_diagram(["triplet-sh", "nt-xent"], resolution=21)
        >>> len(figure.axes) > 1  # a notebook shows the figure
        True
    """
    rules = read_rules(objectives)
    triplets = None if run is None else read_triplets(run)
    if low is None:
        low = min([0.0, *(np.floor(10 * t.min()) / 10 for t in (triplets or {}).values())])
    fields = [triplet_field(rule, resolution, low=low, high=high) for rule in rules]
    if part not in ("weights", "triplet"):
        raise InputError(f"part is 'weights' or 'triplet', not {part!r:.40}.")
    if part == "weights":
        groups = [_panels(field) for field in fields]
    else:
        groups = [[_triplet_panel(rule, field)] for rule, field in zip(rules, fields, strict=True)]
    return _draw_panels(groups, triplets)


def read_rules(objectives: Objectives) -> list[Objective]:
    """One objective or several, by spec or as they are."""
    several = [objectives] if isinstance(objectives, (str, Objective)) else objectives
    rules = [read(o) for o in several]
    if not rules:
        raise InputError("name at least one objective to draw; `simgrad objectives` lists them.")
    return rules


_Panel = tuple[str, Any, TripletField]  # title, values, field


def _triplet_panel(rule: Objective, field: TripletField) -> _Panel:
    if field.triplet is None:
        raise InputError(f"{rule} has no triplet weight of its own: draw its weights.")
    title = str(rule)
    if field.triplet_name:
        title = f"{superscript('T', field.triplet_name)}\n{title}"
    return title, field.triplet, field


def superscript(letter: str, kind: str) -> str:
    """T or P with the name of its kind, as the paper writes it."""
    hyphen = kind.replace("-", "\N{HYPHEN}")
    return rf"${letter}^{{\mathrm{{{hyphen}}}}}$"


def _panels(field: TripletField) -> list[_Panel]:
    name = field.objective
    if field.balanced and (field.triplet is None or np.allclose(field.triplet, field.pull)):
        what = "pull = push" if field.triplet is None else "triplet weight = pull = push"
        return [(f"{name}\n{what}", field.pull, field)]
    panels: list[_Panel] = []
    if field.triplet is not None:
        panels.append((f"{name}\ntriplet weight $T$", field.triplet, field))
    panels.append((f"{name}\npull of the positive", field.pull, field))
    panels.append((f"{name}\npush of the negative", field.push, field))
    return panels


def _draw_panels(groups: list[list[_Panel]], triplets: dict[str, Array] | None) -> "Figure":
    """Panels in rows of three; those of one objective stay in one row."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    rows: list[list[_Panel]] = [[]]
    for group in groups:
        if rows[-1] and len(rows[-1]) + len(group) > _COLUMNS:
            rows.append([])
        rows[-1] += group
    columns = max(len(row) for row in rows)
    below = 0.35 if triplets else 0.0
    with rc_context(STYLE):
        size = (columns * (_PANEL + 0.95), len(rows) * (_PANEL + 0.7) + below)
        # Between the numbers of a bar and the words of the next axis.
        figure = Figure(figsize=size, layout=ConstrainedLayoutEngine(w_pad=0.14))
        axes = figure.subplots(len(rows), columns, squeeze=False)
        for row, panels in zip(axes, rows, strict=True):
            for i, axis in enumerate(row):
                axis.set_visible(i < len(panels))
                if i < len(panels):
                    _draw_field(figure, axis, *panels[i], triplets)
        if triplets:
            _phase_legend(figure, triplets)
    return figure


def _draw_field(
    figure: Any, axis: Any, title: str, values: Array, field: TripletField, triplets: Any
) -> None:
    low = min(float(values.min()), 0.0)
    high = max(float(values.max()), low + 1e-9)
    # Real triplets are drawn in colour, so the weights step back to shades of grey.
    palette, top = ("Greys", 2 * high - low) if triplets else ("cividis", high)
    extent = (field.s_pos[0], field.s_pos[-1], field.s_neg[0], field.s_neg[-1])
    steps = len(np.unique(np.round(values, 9))) <= 2
    image = axis.imshow(
        values, origin="lower", extent=extent, cmap=palette, vmin=low, vmax=top, aspect="equal",
        interpolation="bilinear", rasterized=True,
    )  # fmt: skip
    if steps:
        _label_steps(axis, values, field, plain=bool(triplets))
    else:
        levels = _levels(low, high)
        on_light = [bool(triplets) or level > (low + high) / 2 for level in levels]
        colours = ["0.15" if light else "white" for light in on_light]
        lines = axis.contour(
            field.s_pos, field.s_neg, values, levels, colors=colours, linewidths=0.8
        )
        axis.clabel(lines, fmt="%g", fontsize=7)
    axis.plot(extent[:2], extent[:2], color="0.6", linewidth=0.8, linestyle=(0, (1, 2)))
    axis.set(xlim=extent[:2], ylim=extent[2:], title=title)
    axis.set_xlabel("similarity of the positive $s^+$")
    axis.set_ylabel("similarity of the negative $s^-$")
    if triplets:
        _draw_triplets(axis, triplets)
    bar = figure.colorbar(image, ax=axis, fraction=0.046, pad=0.03)
    bar.ax.set_ylim(low, high)
    bar.ax.tick_params(labelsize=7)


def _levels(low: float, high: float) -> Any:
    from matplotlib.ticker import MaxNLocator

    levels = MaxNLocator(6).tick_values(low, high)
    return [level for level in levels if low < level < high]


def _label_steps(axis: Any, values: Array, field: TripletField, plain: bool) -> None:
    """Write each of one or two values into the middle of its area."""
    for value in np.unique(np.round(values, 9)):
        rows, columns = np.nonzero(np.isclose(values, value))
        dark = value <= values.mean() and not plain
        axis.text(
            field.s_pos[columns].mean(), field.s_neg[rows].mean(), f"{value:g}",
            color="white" if dark else "black", ha="center", va="center", fontsize=11,
        )  # fmt: skip


def _draw_triplets(axis: Any, triplets: dict[str, Array]) -> None:
    """Outlines that hold half and nine tenths of a phase's triplets."""
    for phase, points in triplets.items():
        colour, dash = _PHASE_STYLE[phase]
        centres, density = _density(points, (*axis.get_xlim(), *axis.get_ylim()))
        levels = sorted(set(_outlines(density, (0.9, 0.5))))
        if levels:
            axis.contour(
                *centres, density, levels, colors=colour, linestyles=dash,
                linewidths=(1.0, 1.8)[-len(levels) :],
            )  # fmt: skip


def _phase_legend(figure: Any, triplets: dict[str, Array]) -> None:
    from matplotlib.lines import Line2D

    handles = [
        Line2D([], [], color=_PHASE_STYLE[phase][0], linestyle=_PHASE_STYLE[phase][1], label=phase)
        for phase in triplets
    ]
    figure.legend(
        handles=handles, loc="outside lower center", ncols=len(handles), frameon=False, fontsize=8,
        title="half (thick) and nine tenths (thin) of the run's triplets", title_fontsize=8,
    )  # fmt: skip


def _density(
    points: Array, extent: tuple[float, float, float, float]
) -> tuple[tuple[Array, Array], Array]:
    from scipy.ndimage import gaussian_filter

    counts, x, y = np.histogram2d(
        points[:, 0], points[:, 1], bins=_BINS, range=[extent[:2], extent[2:]]
    )
    centres = ((x[1:] + x[:-1]) / 2, (y[1:] + y[:-1]) / 2)
    # Scott's rule: the fewer points, the smoother.
    spread = points.std(0) * len(points) ** (-1 / 6)
    width = [
        max(1.0, float(s) / (edges[1] - edges[0])) for s, edges in zip(spread, (x, y), strict=True)
    ]
    return centres, gaussian_filter(counts.T, width[::-1])


def _outlines(density: Array, shares: Sequence[float]) -> list[float]:
    """The levels above which these shares of the mass lie."""
    ordered = np.sort(density.ravel())[::-1]
    mass = ordered.cumsum()
    if mass[-1] <= 0:
        return []
    return [float(ordered[np.searchsorted(mass, share * mass[-1])]) for share in shares]


def save_figure(figure: "Figure", path: str | Path) -> Path:
    """Write a PNG, SVG or PDF, whole or not at all.

    Examples:
        >>> figure = simgrad.analysis.triplet_diagram(["nt-xent"], resolution=21)
        >>> simgrad.analysis.save_figure(figure, "nt-xent.svg").name
        'nt-xent.svg'
    """
    path = Path(path)
    kind = path.suffix.lower().lstrip(".")
    if kind not in _MARKS:
        raise InputError(f"{path}: figures are written as .png, .svg or .pdf.")
    refuse_foreign(path, _MARKS[kind])
    made_by = {"Software" if kind == "png" else "Creator": _MADE_BY}
    with atomic_path(path) as temporary:
        figure.savefig(temporary, format=kind, dpi=200, metadata=made_by)
    return path
