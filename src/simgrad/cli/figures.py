"""Figures of a study folder: where real triplets lay, and cross-retrieval ranks."""

from collections.abc import Sequence
from pathlib import Path

from simgrad.analysis.cross_drawing import cross_rank_diagram
from simgrad.analysis.drawing import save_figure, triplet_diagram
from simgrad.core.console import say
from simgrad.core.errors import InputError
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
    device: str = "auto",
) -> None:
    """One picture, a panel for each group of rows, over all seeds; `protocol` ranks them again."""
    panels: dict[str, dict[str, list[Ranks]]] = {}
    for row in _chosen(study, only):
        label = row.label.removeprefix(row.group).strip() or row.label
        panels.setdefault(row.group, {})[label] = _ranks(study, row, protocol, device)
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


def _ranks(study: Study, row: Row, protocol: str | None, device: str) -> list[Ranks]:
    """What each finished run or average of a row has kept, or ranks by another protocol."""
    runs = _finished(study, row)
    if protocol is None:
        return [run.ranks() for run in runs if (run.path / RANKS).is_file()]
    if not row.ensemble:
        return [_ranked([run], protocol, device) for run in runs]
    return [
        _ranked(members, protocol, device)
        for members in study.members(row)
        if all(run.finished for run in members)
    ]


def _finished(study: Study, row: Row) -> list[Run]:
    return [run for run in study.runs_of(row) if run.finished]


def _ranked(members: list[Run], protocol: str, device: str) -> Ranks:
    """Ranks of a run's similarities, or of several runs' together, by a protocol."""
    several = [open_folder(run, device=device).similarities() for run in members]
    return average(several).measure(protocol).ranks
