"""`simgrad cocos`: what contributes to the gradient."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import tyro

from simgrad.analysis.comparison import compare
from simgrad.cli.tables import print_counts, print_epsilons, write_rows
from simgrad.core.console import print_table, say
from simgrad.core.errors import InputError
from simgrad.core.named_files import write_named_json
from simgrad.retriever.counting import RunBatches, count_run_by_epsilon
from simgrad.retriever.opening import open_folder, open_pretrained
from simgrad.retriever.retriever import Retriever


def cocos(
    runs: Annotated[
        tuple[str, ...],
        tyro.conf.Positional,
        tyro.conf.arg(metavar="[RUN ...]", help_behavior_hint=""),
    ] = (),
    *,
    epsilon: tuple[float, ...] = (0.01,),
    released: bool = False,
    compare: str | None = None,
    objective: str | None = None,
    model: tuple[str, ...] = (),
    data: str | None = None,
    features: str | None = None,
    batch: int | None = None,
    split: str = "train",
    batches: int | None = None,
    top: int = 10,
    output: Path | None = None,
    device: str = "auto",
) -> list[dict[str, Any]]:
    """Count the samples that contribute to the gradient (COCOS) in a training set.

    The counts are of the best checkpoint, without dropout, in batches as in training. For the
    paper's four losses the table shows the paper's counts beside the published rows, counted as
    defined and as published, and says with which row each run is comparable; for every objective it
    shows general counts. A run that cannot be counted is named, the others are counted.

    Args:
        runs: run folders, or imported checkpoints (with --data and --objective)
        epsilon: count weights above this (paper: 0.01); several values give one more table, which
            shows how much the counts depend on it
        released: show only the published way of counting, with its indexing errors
        compare: another objective: instead of counting, show the pairs of one batch that it and the
            run's objective weigh most differently
        objective: count this objective instead of the run's
        model: pretrained models as they are, on --data and with --objective:
            "clip(source=FOLDER_OR_HUB_NAME)"
        data: data set for a checkpoint, or another one for a run: a file, a folder or `scenes`
        features: folder written by `simgrad features` for that data
        batch: pairs in a batch; by default as in the run's training, or 128 for a checkpoint
        split: split of the data
        batches: number of batches to count; by default all
        top: number of pairs that --compare shows
        output: write the counts to this .json, .csv or .parquet file
        device: auto, cpu, cuda, cuda:N or mps
    """
    if not runs and not model:
        raise InputError("name at least one run folder, or a pretrained model with --model.")
    place: dict[str, Any] = {"data": data, "features": features, "device": device}
    where: dict[str, Any] = {"split": split, "objective": objective, "batch": batch}
    counts: list[Callable[[], Retriever]] = [
        *(partial(open_folder, run, **place) for run in runs),
        *(partial(open_pretrained, spec, **place) for spec in model),
    ]
    if compare is not None:
        return _compare([opened() for opened in counts], compare, top, output, where)
    if not epsilon or min(epsilon) < 0:
        raise InputError("--epsilon is one number or several, none below 0.")
    counted, missing = [], []
    for opened in counts:
        try:
            counted += count_run_by_epsilon(opened(), epsilon, batches=batches, **where)
        except InputError as error:
            if len(counts) == 1:
                raise
            missing.append(f"not counted: {error}")
    rows = [row for run in counted for row in run.rows()]
    if counted:
        first = [run for run in counted if run.epsilon == _first(epsilon)]
        print_counts(first, released_only=released)
        if len(epsilon) > 1:
            print_epsilons(counted)
        if output is not None:
            write_rows(output, rows)
    for line in missing:
        say(line, stderr=True)
    if missing:
        raise InputError(f"{len(missing)} of {len(counts)} runs could not be counted.")
    return rows


def _first(epsilon: tuple[float, ...]) -> float:
    """The one to print beside the paper's rows: theirs, if it is among them."""
    return 0.01 if 0.01 in epsilon else epsilon[0]


def _compare(
    runs: Sequence[Retriever], other: str, top: int, output: Path | None, where: dict[str, Any]
) -> list[dict[str, Any]]:
    results = []
    for run in runs:
        data = RunBatches(run, batches=1, **where)
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
            title=f"{data.name}: first {result.first}, second {result.second}; "
            "share of each one's gradient, + pushes apart",
        )
        for direction in ("i2t", "t2i"):
            print(
                f"{direction}: {100 * result.overlap[direction]:.0f}% of the gradient falls on the "
                f"same pairs (cosine {result.cosine[direction]:.2f})"
            )
        results.append({"run": data.name, **result.to_dict()})
    if output is not None:
        write_named_json(output, results)
    return results
