"""`simgrad diagram`: an objective as a picture, whether it is a loss, and figures of a study."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from simgrad.analysis import diagrams
from simgrad.analysis.closedness import verdicts
from simgrad.analysis.cross_drawing import cross_rank_diagram
from simgrad.analysis.drawing import save_figure, triplet_diagram
from simgrad.analysis.pair_drawing import pair_weight_diagram
from simgrad.cli.tables import print_verdicts, write_rows
from simgrad.core.console import say
from simgrad.core.errors import InputError
from simgrad.core.named_files import write_named_json
from simgrad.core.text import did_you_mean
from simgrad.evaluation.ranks import Ranks
from simgrad.retriever.opening import open_folder
from simgrad.retriever.similarities import average
from simgrad.runs.run import RANKS, TRIPLETS, Run
from simgrad.studies.study import Study
from simgrad.studies.study_file import Row

# The papers' own, to be drawn without a study; GOAL's figure 2 has tau = 10.
GOAL_2 = tuple(f"goal(triplet={t}, pair=con, tau=10)" for t in ("con", "nca", "cir"))
GOAL_3 = tuple(f"goal(triplet=con, pair={p})" for p in ("con", "lin", "sig", "lin-ms", "sig-ms"))


def draw_triplets(
    study: Study, output: Path | None, low: float | None, high: float, only: Sequence[str] = ()
) -> None:
    """A picture for each row that was trained: its objective, and its real triplets."""
    folder = output or study.path / "figures"
    drawn = 0
    for row in _chosen(study, only):
        run = next((r for r in _finished(study, row) if (r.path / TRIPLETS).is_file()), None)
        if run is None:
            continue
        figure = triplet_diagram((run.recipe.objective,), run=run.path, low=low, high=high)
        say(f"wrote {save_figure(figure, folder / f'triplets-{row.name}.png')}")
        drawn += 1
    if not drawn:
        raise InputError(f"{study.path}: no run has kept triplets yet.")


def draw_cross_ranks(
    study: Study,
    output: Path | None,
    protocol: str | None,
    only: Sequence[str] = (),
) -> None:
    """One picture, a panel for each group of rows, over all seeds; `protocol` ranks them again."""
    panels: dict[str, dict[str, list[Ranks]]] = {}
    for row in _chosen(study, only):
        label = row.label.removeprefix(row.group).strip() or row.label
        panels.setdefault(row.group, {})[label] = _ranks(study, row, protocol)
    path = output or study.path / "figures" / "cross-ranks.png"
    say(f"wrote {save_figure(cross_rank_diagram(panels), path)}")


def _chosen(study: Study, only: Sequence[str]) -> list[Row]:
    """The rows that are named by their label or their group; all where none is named."""
    rows = study.plan.rows
    known = list(dict.fromkeys(name for row in rows for name in (row.label, row.group) if name))
    for name in only:
        if name not in known:
            near = did_you_mean(name, known)
            hint = f"Did you mean '{near}'?" if near else f"There are: {', '.join(known)}."
            raise InputError(f"--rows {name[:80]}: {study.path} has no such row or group. {hint}")
    return [row for row in rows if not only or {row.label, row.group} & set(only)]


def _ranks(study: Study, row: Row, protocol: str | None) -> list[Ranks]:
    """What each finished run or average of a row has kept, or ranks by another protocol."""
    runs = _finished(study, row)
    if protocol is None:
        return [run.ranks() for run in runs if (run.path / RANKS).is_file()]
    if not row.ensemble:
        return [_ranked([run], protocol) for run in runs]
    return [
        _ranked(members, protocol)
        for members in study.members(row)
        if all(run.finished for run in members)
    ]


def _finished(study: Study, row: Row) -> list[Run]:
    return [run for run in study.runs_of(row) if run.finished]


def _ranked(members: list[Run], protocol: str) -> Ranks:
    """Ranks of a run's similarities, or of several runs' together, by a protocol."""
    several = [open_folder(run).similarities() for run in members]
    return average(several).measure(protocol).ranks


_PAPER: dict[str, tuple[Literal["pairs", "triplet-weights"], tuple[str, ...]]] = {
    "goal-2": ("triplet-weights", GOAL_2),
    "goal-3": ("pairs", GOAL_3),
}


def diagram(
    objectives: Annotated[
        tuple[str, ...],
        tyro.conf.Positional,
        tyro.conf.arg(metavar="[OBJECTIVE ...]", help_behavior_hint=""),
    ] = (),
    *,
    kind: Literal[
        "triplet", "pairs", "triplet-weights", "cross-ranks", "goal-2", "goal-3"
    ] = "triplet",
    run: Path | None = None,
    study: Path | None = None,
    rows: tuple[str, ...] = (),
    protocol: str | None = None,
    output: Path | None = None,
    low: float | None = None,
    high: float = 1.0,
    data: Path | None = None,
    integrability: bool = False,
) -> list[dict[str, Any]]:
    """Draw an objective's weights, or check whether they are a gradient.

    Args:
        objectives: specs, e.g. "goal(triplet=cir, pair=sig-ms)" nt-xent
        kind: triplet: pull and push over the similarities of the positive and the negative; pairs:
            over the similarity of one pair; triplet-weights: only GOAL's triplet weights;
            cross-ranks: AOQ's histogram, with --study; goal-2, goal-3: those figures of the paper
        run: show where this run's triplets lay early, in the middle and late in training; without
            objectives, the run's objective is drawn
        study: draw every row of this study into its folder `figures`: where its triplets lay, or,
            with --kind cross-ranks, how many true pairs have which rank, a panel for each group
            and means over seeds
        rows: with --study: draw only these rows or groups, e.g. "VSRN average" "BFAN average"
        protocol: with --kind cross-ranks: rank the test again by this protocol, e.g. coco-5k as AOQ
            does; by default the stored ranks are drawn
        output: the picture: .png, .svg or .pdf (default: diagram.png); with --integrability .json,
            .csv or .parquet
        low: smallest similarity shown; by default 0, or what the run's triplets need
        high: largest similarity shown
        data: write the numbers behind the picture to this .json file
        integrability: print whether the weights are the gradient of a loss; without objectives, for
            GOAL's 15 cells
    """
    if integrability:
        return _integrability(objectives, output)
    if kind == "cross-ranks":
        if study is None:
            raise InputError("--kind cross-ranks needs --study FOLDER.")
        draw_cross_ranks(Study.open(study), output, protocol, rows)
        return []
    if rows and study is None:
        raise InputError("--rows names rows of a study: give --study FOLDER.")
    if study is not None:
        draw_triplets(Study.open(study), output, low, high, rows)
        return []
    if kind in _PAPER:
        kind, objectives = _PAPER[kind][0], objectives or _PAPER[kind][1]
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
    ask = diagrams.pair_curves if kind == "pairs" else diagrams.triplet_field
    numbers = [ask(spec, low=start, high=high).to_dict() for spec in objectives]
    if data is not None:
        write_named_json(data, numbers)
        say(f"wrote {data}")
    return numbers


def _integrability(objectives: tuple[str, ...], output: Path | None) -> list[dict[str, Any]]:
    found = verdicts(objectives or None)
    print_verdicts(found)
    rows = [verdict.to_dict() for verdict in found]
    if output is not None:
        write_rows(output, rows)
    return rows
