"""Figures of a study folder: where real triplets lay, and cross-retrieval ranks."""

from pathlib import Path

from simgrad.analysis.cross_drawing import cross_rank_diagram
from simgrad.analysis.drawing import save_figure, triplet_diagram
from simgrad.core.console import say
from simgrad.core.errors import InputError
from simgrad.evaluation.evaluator import evaluate_scores
from simgrad.evaluation.ranks import Ranks
from simgrad.evaluation.scores import Average
from simgrad.runs.run import RANKS, TRIPLETS, Run
from simgrad.runs.systems import model_system
from simgrad.runs.trained import open_trained
from simgrad.studies.ensembles import members_of
from simgrad.studies.study import Study
from simgrad.studies.study_file import Row

# The papers' own, to be drawn without a study; GOAL's figure 2 has tau = 10.
GOAL_2 = tuple(f"goal(triplet={t}, pair=con, tau=10)" for t in ("con", "nca", "cir"))
GOAL_3 = tuple(f"goal(triplet=con, pair={p})" for p in ("con", "lin", "sig", "lin-ms", "sig-ms"))


def draw_triplets(study: Study, output: Path | None, low: float | None, high: float) -> None:
    """A picture for each row that was trained: its objective, and its real triplets."""
    folder = output or study.path / "figures"
    drawn = 0
    for row in study.plan.rows:
        run = next((r for r in _finished(study, row) if (r.path / TRIPLETS).is_file()), None)
        if run is None:
            continue
        figure = triplet_diagram((run.recipe.objective,), run=run.path, low=low, high=high)
        say(f"wrote {save_figure(figure, folder / f'triplets-{row.name}.png')}")
        drawn += 1
    if not drawn:
        raise InputError(f"{study.path}: no run has kept triplets yet.")


def draw_cross_ranks(
    study: Study, output: Path | None, protocol: str | None, device: str = "auto"
) -> None:
    """One picture: of each row the first finished run, or ensemble; `protocol` ranks them again."""
    found: dict[str, Ranks] = {}
    for row in study.plan.rows:
        runs = _finished(study, row)
        if protocol is not None and runs:
            members = members_of(study, row)[0] if row.ensemble else runs[:1]
            found[row.label] = _ranked(members, protocol, device)
        elif runs and (runs[0].path / RANKS).is_file():
            found[row.label] = runs[0].ranks()
    path = output or study.path / "figures" / "cross-ranks.png"
    say(f"wrote {save_figure(cross_rank_diagram(found), path)}")


def _finished(study: Study, row: Row) -> list[Run]:
    return [run for run in map(Run, study.folders(row)) if run.finished]


def _ranked(members: list[Run], protocol: str, device: str) -> Ranks:
    """Ranks of a run's similarities, or of several runs' together, by a protocol."""
    systems = [model_system(open_trained(run, device=device)) for run in members]
    first = systems[0]
    scores = Average([system.scores for system in systems if system.scores is not None])
    return evaluate_scores(
        scores,
        first.pairing,
        protocol=protocol,
        image_ids=first.image_ids,
        caption_ids=first.caption_ids,
    ).ranks
