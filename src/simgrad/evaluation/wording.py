"""A standing in sentences, the most important first; tables, answers and pages all take these."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from simgrad.core.text import listed
from simgrad.evaluation.declared import metric_of

if TYPE_CHECKING:  # a standing prints itself in these words
    from simgrad.evaluation.decision import Decision
    from simgrad.evaluation.standing import Outcome, Rival, Standing

_NUMBERED = 2  # rivals of one word whose gaps a sentence names


def lead(standing: "Standing") -> str:
    """Who leads, and what can be said of the others."""
    if standing.short:
        ranked = sorted(standing.scores.values(), key=lambda one: -one.mean)
        means = ", ".join(f"{one.label} {one.mean:.1f}" for one in ranked)
        label = metric_of(standing.metric).label
        return f"Too short a training to say who leads. Mean {label}: {means}."
    score = standing.scores[standing.leader]
    number = f"{metric_of(standing.metric).label} {score.mean:.1f}"
    parts = []
    if behind := standing.worded("behind"):
        parts.append(f"ahead of {_some(behind, '{} by {}')}")
    if equal := standing.worded("equivalent"):
        parts.append(f"equivalent to {_some(equal, '{} ({})')} within {standing.margin:g}")
    if unknown := standing.worded("open"):
        parts.append(f"open against {_some(unknown, '{} ({})')}")
    if not parts:
        return f"{standing.leader} has {number}; there is nothing to compare it with."
    verb = "leads with" if len(behind) == len(standing.rivals) else "has the highest mean,"
    return f"{standing.leader} {verb} {number}: {'; '.join(parts)}."


def failures(standing: "Standing") -> list[str]:
    """What failed: first those of which nothing trained, because nothing is fair about them."""
    lines = []
    if standing.failed:
        told = (how_it_ended(name, standing.scores[name].outcomes) for name in standing.failed)
        lines.append(f"No fair comparison: {'; '.join(told)}.")
    for label, score in standing.scores.items():
        if score.failures and not score.failed:
            lines.append(
                f"{label}: {score.failure_text}. Its mean, {score.mean:.1f}, counts them; of those "
                f"that trained it is {score.of_trained:.1f}."
            )
    if standing.alone:
        lines.append(f"{_names(standing.alone)}: one run alone, so not compared.")
    return lines


def how_it_ended(label: str, outcomes: "Sequence[Outcome]") -> str:
    """triplet-sh collapsed in all 3 seeds; of what failed alone"""
    words, runs = {"plateau": "stayed on the plateau"}, len(outcomes)
    told = []
    for end, count in Counter(one for one in outcomes if one != "trained").most_common():
        of = f"{count} of {runs} seeds"
        if count == runs:
            of = f"all {runs} seeds" if runs > 1 else "its one seed"
        told.append(f"{words.get(end, end)} in {of}")
    return f"{label} {listed(told, 'and')}"


def basis(standing: "Standing") -> str:
    """What the intervals and words mean; nothing where nothing was compared."""
    if not standing.rivals:
        return ""
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
        return "No gap is tested: a longer training may turn the order round."
    told = f"{told} Equivalent: within {standing.margin:g} ({_margin(standing)}), at 5%."
    return f"{told} {looked_before(standing.looked)}".strip()


def looked_before(looks: Sequence[str]) -> str:
    """What an earlier look at fewer draws does to p; nothing where there was none."""
    if not looks:
        return ""
    most = 5 * (1 + len(looks))
    return (
        f"Looked at before, with {listed(looks, 'and')}: whoever looks again has more chances, so "
        f"somebody is told apart by luck in up to {most}% of such studies, not 5%."
    )


def outlook(standing: "Standing", found: "Decision | None", cost: str = "") -> str:
    """What would decide; `cost`: the time of what is missing, in words."""
    if found is None:
        return ""
    unit = "searches" if standing.replicates else "seeds"
    pair = f"{standing.leader} against {found.rival}"
    shown = f"that {standing.leader} is ahead of {found.rival}"
    if found.equivalent:
        shown = f"that {standing.leader} and {found.rival} are equivalent"
    chance = "with a chance of 80% if the gap stays what it is"
    photos = "" if found.images is None else f"{found.images:,} test photos"
    if found.draws is not None:
        needed = f"{found.draws} {unit} of each{f' and {photos}' if photos else ''}"
        took = f" ({cost})" if cost else ""
        if took and photos:  # more draws alone are not enough
            took = f" ({unit}: {cost}; photos: more of them in the data, and another folder)"
        return f"About {needed} would show {shown}{took}, {chance}."
    if photos:
        return (
            f"No number of {unit} would decide {pair}; about {photos} would show {shown}, {chance}."
        )
    if standing.draws[1] == 1:
        return (
            f"What would decide {pair} cannot be told from one seed: two seeds of each or more "
            "show how much they differ."
        )
    return f"Nothing within reach would decide {pair}: more {unit} or photos are not enough."


def _some(rivals: "Sequence[Rival]", form: str) -> str:
    """Up to two with their gaps; of more the closest with its gap, the others by name."""
    numbered = rivals if len(rivals) <= _NUMBERED else rivals[:1]
    told = [form.format(one.label, one.gap) for one in numbered]
    return _names(told + [one.label for one in rivals[len(numbered) :]])


def _margin(standing: "Standing") -> str:
    if standing.is_one_point:
        return "one point of mean recall"
    return f"of {metric_of(standing.metric).label}"


def _names(names: Iterable[str]) -> str:
    return listed(list(names), "and")
