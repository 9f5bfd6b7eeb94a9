"""`simgrad cocos` and `simgrad diagram`."""

from pathlib import Path
from typing import Annotated, Literal

import tyro

from simgrad.errors import InputError


def cocos(
    runs: Annotated[
        tuple[str, ...],
        tyro.conf.Positional,
        tyro.conf.arg(metavar="[RUN ...]", help_behavior_hint=""),
    ],
    *,
    epsilon: float = 0.01,
    released: bool = False,
    compare: str | None = None,
    split: str = "train",
    batches: int | None = None,
    top: int = 10,
    output: Path | None = None,
    device: str = "auto",
) -> None:
    """Count what contributes to the gradient: COCOS over a run's training set.

    The best checkpoint, without dropout, in batches as in training. Prints the paper's counts for
    its four losses beside the published rows, counted as defined and as published, and general
    counts for every objective.

    Args:
        runs: run folders.
        epsilon: weights above this count (paper: 0.01).
        released: only the published way of counting, indexing artefacts included.
        compare: an objective; instead of counting, show the pairs of one batch that it and the
            run's objective weigh most differently.
        split: which split of the run's data.
        batches: only so many batches; all if left out.
        top: with --compare, how many pairs.
        output: write the figures to this .json, .csv or .parquet file.
        device: auto, cpu, cuda or cuda:N.
    """
    if not runs:
        raise InputError("name at least one run folder.")
    if compare is not None:
        _compare(runs, compare, split, top, output, device)
        return
    from simgrad.analysis.runs import count_run
    from simgrad.analysis.tables import print_counts, write_rows

    counted = [
        count_run(run, epsilon=epsilon, split=split, batches=batches, device=device) for run in runs
    ]
    print_counts(counted, released_only=released)
    if output is not None:
        write_rows(output, [row for run in counted for row in run.rows()])


def _compare(
    runs: tuple[str, ...], other: str, split: str, top: int, output: Path | None, device: str
) -> None:
    from simgrad.analysis.comparison import compare
    from simgrad.analysis.runs import RunBatches
    from simgrad.console import print_table
    from simgrad.files import write_json

    results = []
    for run in runs:
        data = RunBatches(run, split=split, batches=1, device=device)
        batch = next(iter(data))
        result = compare(
            data.objective,
            other,
            batch.similarities,
            batch.image_of_caption,
            top=top,
            offline=batch.offline,
        )
        captions = [data.split.captions[i] for i in batch.index.captions]
        names = [data.split.image_names[i] for i in batch.index.images]
        print_table(
            ("queries", "image", "pair is", "similarity", "first", "second", "caption"),
            result.table(captions, names),
            title=f"{data.run.name}: first {result.first}, second {result.second}; "
            "share of each one's gradient, + pushes apart",
        )
        for direction in ("i2t", "t2i"):
            print(
                f"{direction}: {100 * result.overlap[direction]:.0f}% of the gradient falls on the "
                f"same pairs (cosine {result.cosine[direction]:.2f})"
            )
        results.append({"run": data.run.name, **result.to_dict()})
    if output is not None:
        write_json(output, results)


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
        from simgrad.training import Run

        objectives = (Run.open(run).recipe.objective,)
    from simgrad.analysis import diagrams
    from simgrad.analysis.drawing import save_figure, triplet_diagram
    from simgrad.files import write_json

    start = 0.0 if low is None else low
    if kind == "pairs":
        from simgrad.analysis.pair_drawing import pair_weight_diagram

        if run is not None:
            raise InputError("--run draws triplets: use it with --kind triplet.")
        figure = pair_weight_diagram(objectives, low=start, high=high)
    else:
        part = "weights" if kind == "triplet" else "triplet"
        figure = triplet_diagram(objectives, part=part, run=run, low=low, high=high)
    print(f"wrote {save_figure(figure, output or Path('diagram.png'))}")
    if data is not None:
        ask = diagrams.pair_curves if kind == "pairs" else diagrams.triplet_field
        write_json(data, [ask(spec, low=start, high=high).to_dict() for spec in objectives])
        print(f"wrote {data}")


def _integrability(objectives: tuple[str, ...], output: Path | None) -> None:
    from simgrad.analysis.closedness import verdicts
    from simgrad.analysis.tables import print_verdicts, write_rows

    found = verdicts(objectives or None)
    print_verdicts(found)
    if output is not None:
        write_rows(output, [verdict.to_dict() for verdict in found])
