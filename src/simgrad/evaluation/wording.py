"""A standing in words, the most important first. Tables, answers and pages all say it so."""

from collections.abc import Iterable

from simgrad.core.text import counted
from simgrad.evaluation.decision import Decision
from simgrad.evaluation.declared import metric_of
from simgrad.evaluation.standing import Rival, Standing


def lead(standing: Standing) -> str:
    """Who leads, and what can be said of the others."""
    score = standing.scores[standing.leader]
    number = f"{metric_of(standing.metric).label} {score.mean:.1f}"
    parts = []
    if behind := standing.worded("behind"):
        parts.append("ahead of " + _listed(f"{one.label} by {one.gap}" for one in behind))
    if equal := standing.worded("equivalent"):
        parts.append(
            f"equivalent to {_listed(_with_gap(one) for one in equal)} within {standing.margin:g}"
        )
    if unknown := standing.worded("open"):
        parts.append(f"open against {_listed(_with_gap(one) for one in unknown)}")
    if not parts:
        return f"{standing.leader} has {number}; there is nothing to compare it with."
    verb = "leads with" if len(behind) == len(standing.rivals) else "has the highest mean,"
    return f"{standing.leader} {verb} {number}: {'; '.join(parts)}."


def failures(standing: Standing) -> list[str]:
    """What failed: first those of which nothing trained, because nothing is fair about them."""
    lines = []
    if standing.failed:
        names = _listed(standing.failed)
        counts = {len(standing.scores[label].runs) for label in standing.failed}
        kinds = sorted({o for label in standing.failed for o in standing.scores[label].outcomes})
        runs = counted(max(counts), "seed") if len(counts) == 1 else "their seeds"
        lines.append(f"No fair comparison with {names}: failed in all {runs} ({', '.join(kinds)}).")
    for label, score in standing.scores.items():
        if score.failures and not score.failed:
            lines.append(
                f"{label}: {score.failure_text}. Its mean, {score.mean:.1f}, counts them; of those "
                f"that trained it is {score.of_trained:.1f}."
            )
    if standing.alone:
        lines.append(f"{_listed(standing.alone)}: one run alone, so not compared.")
    return lines


def basis(standing: Standing) -> str:
    """What the intervals and words mean."""
    fewest, most = standing.draws
    several = f"{fewest} to {most}" if most > fewest else str(fewest)
    unit = "search" if standing.replicates else "seed"
    plural = unit + ("es" if unit == "search" else "s")
    drawn = f"{standing.images:,} {standing.units}"
    images = f" and {drawn}" if standing.images else ", new images in each"
    if most == 1:
        over = f"{drawn}; what other seeds would find is not known"
    else:
        over = f"{several} {plural} of each{images}"
    told = f"In brackets: 95% intervals of the gap, for all rivals together, over {over}."
    if standing.short:
        return f"{told} The training was too short to say who is ahead."
    return f"{told} Equivalent: within {standing.margin:g} ({_margin(standing)}), at 5%."


def outlook(standing: Standing, found: Decision | None, cost: str = "") -> str:
    """What would decide; `cost`: the time of what is missing, in words."""
    if found is None:
        return ""
    unit = "searches" if standing.replicates else "seeds"
    pair = f"{standing.leader} against {found.rival}"
    if found.draws is not None and found.images is not None:
        return (
            f"About {found.draws} {unit} of each and {found.images:,} test photos would decide "
            f"{pair}, with a chance of 80% if the gap stays what it is."
        )
    if found.draws is not None:
        took = f" ({cost})" if cost else ""
        return (
            f"About {found.draws} {unit} of each would decide {pair}{took}, with a chance of 80% "
            "if the gap stays what it is."
        )
    if found.images is not None:
        return (
            f"No number of {unit} would decide {pair}; about {found.images:,} test photos would, "
            "with a chance of 80% if the gap stays what it is."
        )
    return f"Nothing within reach would decide {pair}: more {unit} or photos are not enough."


def gap_text(rival: Rival) -> str:
    """behind by 9.1 [2.0, 15.3]; equivalent, 1.2 [-2.0, 4.4]"""
    return f"behind by {rival.gap}" if rival.word == "behind" else f"{rival.word}, {rival.gap}"


def _with_gap(rival: Rival) -> str:
    return f"{rival.label} ({rival.gap})"


def _margin(standing: Standing) -> str:
    return (
        "one point of mean recall"
        if standing.metric == "rsum" and standing.margin == 6
        else (f"of {metric_of(standing.metric).label}")
    )


def _listed(names: Iterable[str]) -> str:
    words = list(names)
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
