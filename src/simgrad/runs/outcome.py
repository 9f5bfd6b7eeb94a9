"""How a run ended: trained, collapsed, diverged, or still on the plateau; and which run is best.

A run that failed is a result too. If one seed in five fails, the mean of the other four is too
good, so a failed run counts with what it scored. A diverged run scores nothing: a
score of 0 (`score_at_end`), the worst ranks (`_ranks_by_folder`) and their metrics
(`tested_metrics`).

The best run of a study is that by validation, of `choose` the model it kept.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

from simgrad.core.errors import InputError
from simgrad.core.text import near_path
from simgrad.evaluation import Ranks, metric_of, metrics_of
from simgrad.evaluation.standing import MARGIN, Outcome
from simgrad.models.checkpoint import DESCRIPTION
from simgrad.runs.naming import label_of
from simgrad.runs.run import BEST, RANKS, RECIPE, Run

# How much the similarities of a query differ (standard deviation). Seven objectives were trained
# at four rates each: runs that learned were above 0.01 or rose towards it, those that did not
# stayed below or fell.
SMALL, NOTHING = 1e-2, 1e-3


def outcome_of(run: Run) -> Outcome | None:
    """How a run ended; None: it has not ended, or something else than training stopped it."""
    info = run.info
    if has_diverged(run):
        return "diverged"
    if not run.finished:
        return None
    return judged(run.history, info.get("best", {}).get("step"))


def outcomes_of(runs: Sequence[Run]) -> tuple[Outcome, ...]:
    """Of runs that have ended. An average of several models counts as trained."""
    return tuple(outcome_of(run) or "trained" for run in runs)


def has_diverged(run: Run) -> bool:
    """Whether its numbers became NaN or infinite; trained again they would do so again."""
    info = run.info
    return info.get("status") == "failed" and bool(info.get("diverged"))


def score_at_end(run: Run, score: Callable[[Run], float]) -> float | None:
    """The score of a finished run, 0 of a diverged one, None of a run that has not ended."""
    if has_diverged(run):
        return 0.0
    return score(run) if run.finished else None


def judged(history: Sequence[Mapping[str, Any]], best_step: int | None) -> Outcome:
    """How a finished training ended, by the spread of similarities at each evaluation.

    The spread at its best checkpoint counts, because that is what is tested.
    """
    known = [entry for entry in history if "spread" in entry]
    if not known:  # earlier versions did not note it
        return "trained"
    best = next((entry for entry in known if entry["step"] == best_step), known[-1])
    if best["spread"] >= SMALL:
        return "trained"
    spreads = [entry["spread"] for entry in known]
    return "collapsed" if collapsed(spreads[:-1], spreads[-1]) else "plateau"


def collapsed(before: Sequence[float], spread: float) -> bool:
    """Spread below NOTHING, or below SMALL and not above that of the last two evaluations."""
    recent = before[-2:]
    stuck = len(recent) == 2 and spread <= min(recent)
    return spread < NOTHING or (spread < SMALL and stuck)


def still_rising(runs: Sequence[Run]) -> bool:
    """Whether validation of most of these runs still rose clearly at their last look.

    Then a longer training may turn the order round. Where there was one look, nothing shows that it
    had stopped.
    """
    scores = [[entry["val"]["rsum"] for entry in run.history] for run in runs if run.finished]
    rose = [len(one) == 1 or one[-1] > max(one[:-1]) + MARGIN for one in scores if one]
    return 2 * len([one for one in rose if one]) > len(rose)


def _ranks_by_folder(runs: Sequence[Run]) -> dict[Path, Ranks]:
    kept = {
        run.path: run.ranks()
        for run in runs
        if not has_diverged(run) and run.test and (run.path / RANKS).is_file()
    }
    if not kept:
        return {}
    worst = next(iter(kept.values())).worst()
    return kept | {run.path: worst for run in runs if has_diverged(run)}


def ended_draws(
    systems: Mapping[str, Sequence[Sequence[Run]]], *, apart: bool = False
) -> tuple[dict[str, list[list[Run]]], dict[str, list[list[Ranks]]]]:
    """Of each system, by independent draw, the runs that have ended and their test ranks.

    `apart`: each draw has test images of its own.
    """
    together = [[run for draws in systems.values() for draw in draws for run in draw]]
    if apart:  # a run that diverged is the worst on the images of its own draw
        longest = zip_longest(*systems.values(), fillvalue=())
        together = [[run for draw in draws for run in draw] for draws in longest]
    known: dict[Path, Ranks] = {}
    for runs in together:
        known |= _ranks_by_folder(runs)
    ended = {
        label: [kept for draw in draws if (kept := [run for run in draw if run.path in known])]
        for label, draws in systems.items()
    }
    ranks = {
        label: [[known[run.path] for run in draw] for draw in draws]
        for label, draws in ended.items()
    }
    return ended, ranks


def tested_metrics(
    runs: Sequence[Run], ranks: Sequence[Ranks]
) -> list[tuple[Run, dict[str, float]]]:
    """Runs that have ended with their test metrics; a diverged one found nothing of what `ranks`
    rank. A run that was not tested is left out.
    """
    nothing = metrics_of(ranks[0].worst()).to_dict() if ranks else {}
    found = [(run, nothing if has_diverged(run) else run.test) for run in runs]
    return [(run, metrics) for run, metrics in found if metrics]


MODEL = "model"  # the run that `simgrad choose` recommends
CHOICE = "choose.json"  # its plan, in the same folder
CHOOSING = ".choose.lock"  # held while it works


def best_run(folder: Path) -> Path:
    """The folder of the best run; an error says what the folder is instead.

    Of a study: the finished run with the best validation score, of those with weights. Runs on
    different data, or selected by different metrics, have no best.
    """
    if not folder.exists():
        raise InputError(f"{folder}: there is no such folder.{near_path(folder)}")
    kept = folder / MODEL
    if (kept / RECIPE).is_file() or (kept / DESCRIPTION).is_file():
        return kept
    found = [Run.open(place.parent) for place in sorted(folder.glob(f"runs/*/{RECIPE}"))]
    if not found and (folder / CHOOSING).is_file():
        raise InputError(
            f"{folder}: `simgrad choose` has no model there yet. When it has ended, it does; "
            f"`simgrad choose {folder}` goes on if it was stopped."
        )
    if not found:
        inside = sorted(folder.glob(f"*/{MODEL}/{RECIPE}")) + sorted(folder.glob(f"*/{RECIPE}"))
        near = f" Did you mean {folder / inside[0].relative_to(folder).parts[0]}?" if inside else ""
        raise InputError(f"{folder}: neither a run nor a checkpoint, nor a study of runs.{near}")
    usable = [r for r in found if r.finished and (r.path / BEST / DESCRIPTION).is_file()]
    if not usable:
        raise InputError(f"{folder}: none of its {len(found)} runs is finished and has weights.")
    if len({(run.recipe.data, run.recipe.select) for run in usable}) > 1:
        raise InputError(
            f"{folder}: its runs are on different data or selected by different metrics, so none "
            f"is best; give one of them, e.g. {usable[0].path}."
        )
    metric = metric_of(usable[0].recipe.select)
    scores = [float(run.info["best"][run.recipe.select]) for run in usable]
    return usable[scores.index(metric.best(scores))].path


def what_is_best(run: Run) -> str:
    """Of the model that `choose` keeps, in brackets: its objective and seed, the best of how many;
    nothing of runs whose names say it."""
    folder = run.path.parent
    if run.path.name != MODEL or not (folder / CHOICE).is_file():
        return ""
    rows = {p.parent: _row(p.parent.name) for p in folder.glob(f"runs/*/{RECIPE}")}
    own = next((row for path, row in rows.items() if Run(path).recipe == run.recipe), "")
    count = list(rows.values()).count(own)  # of all its searches, whose settings differ
    best = f", the best of {count}" if count > 1 else ""
    return f" ({label_of(run.recipe.objective)}, seed {run.recipe.seed}{best})"


def _row(name: str) -> str:
    """The row of a study of which a folder holds a run: `nt-xent` of `nt-xent-r2-s10000`."""
    return re.sub(r"(-r\d+)?-s\d+$", "", name)
