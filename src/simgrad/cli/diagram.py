"""`simgrad diagram`: an objective as a picture, and whether it is a loss."""

from pathlib import Path
from typing import Annotated, Literal

import tyro

from simgrad.analysis import diagrams
from simgrad.analysis.closedness import verdicts
from simgrad.analysis.drawing import save_figure, triplet_diagram
from simgrad.analysis.pair_drawing import pair_weight_diagram
from simgrad.cli.tables import print_verdicts, write_rows
from simgrad.core.console import say
from simgrad.core.errors import InputError
from simgrad.core.files import write_json
from simgrad.runs.run import Run


def diagram(
    objectives: Annotated[
        tuple[str, ...],
        tyro.conf.Positional,
        tyro.conf.arg(metavar="[OBJECTIVE ...]", help_behavior_hint=""),
    ] = (),
    *,
    kind: Literal["triplet", "pairs", "triplet-weights"] = "triplet",
    run: Path | None = None,
    output: Path | None = None,
    low: float | None = None,
    high: float = 1.0,
    data: Path | None = None,
    integrability: bool = False,
) -> None:
    """Draw an objective's weights, or say whether they are the gradient of a loss.

    Args:
        objectives: specs, e.g. "goal(triplet=cir, pair=sig-ms)" nt-xent.
        kind: triplet: pull and push over the similarities of the positive and the negative;
            pairs: over the similarity of one pair; triplet-weights: GOAL's triplet weights alone.
        run: draw where this run's real triplets lay early, in the middle and late. Without
            objectives, the run's own is drawn.
        output: the picture, .png, .svg or .pdf (diagram.png if left out); with --integrability,
            .json, .csv or .parquet.
        low: smallest similarity shown; 0, or what the run's triplets need.
        high: largest similarity shown.
        data: write the numbers behind the picture to this .json file.
        integrability: print whether the weights are a gradient; of GOAL's 15 cells if no objective
            is named.
    """
    if integrability:
        _integrability(objectives, output)
        return
    if run is not None and not objectives:
        objectives = (Run.open(run).recipe.objective,)

    start = 0.0 if low is None else low
    if kind == "pairs":
        if run is not None:
            raise InputError("--run draws triplets: use it with --kind triplet.")
        figure = pair_weight_diagram(objectives, low=start, high=high)
    else:
        part = "weights" if kind == "triplet" else "triplet"
        figure = triplet_diagram(objectives, part=part, run=run, low=low, high=high)
    say(f"wrote {save_figure(figure, output or Path('diagram.png'))}")
    if data is not None:
        ask = diagrams.pair_curves if kind == "pairs" else diagrams.triplet_field
        write_json(data, [ask(spec, low=start, high=high).to_dict() for spec in objectives])
        say(f"wrote {data}")


def _integrability(objectives: tuple[str, ...], output: Path | None) -> None:

    found = verdicts(objectives or None)
    print_verdicts(found)
    if output is not None:
        write_rows(output, [verdict.to_dict() for verdict in found])
