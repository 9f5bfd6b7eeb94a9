"""What a study says: its standing, and what would decide the rest."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from simgrad.core.errors import InputError
from simgrad.evaluation import wording
from simgrad.evaluation.decision import Decision, decision
from simgrad.evaluation.standing import Draw, Standing, stand
from simgrad.runs.outcome import ended_draws, outcomes_of
from simgrad.runs.run import Run
from simgrad.studies.study import Study


def verdict(study: Study, *, group: str | None = None, short: bool = False) -> Standing:
    """Of what has ended; an error where there is nothing to compare.

    `group`: of the table, where rows of several are not comparable. `short`: the training is too
    short to say who is ahead.
    """
    systems = study.draws
    if group is not None:
        systems = {row.label: systems[row.label] for row in study.plan.rows if row.group == group}
    runs, ranks = ended_draws(systems, apart=study.new_splits)
    if sum(map(bool, runs.values())) < 2:
        raise InputError(f"{study.path}: fewer than two objectives have been tested.")
    searched = len(study.plan.replicates) > 1
    draws: dict[str, Sequence[Draw]] = {
        label: several if searched else [one for draw in several for one in draw]
        for label, several in ranks.items()
    }
    outcomes = {
        x: outcomes_of([r for draw in several for r in draw]) for x, several in runs.items()
    }
    short = short or study.plan.short
    return stand(draws, outcomes, new_images=study.new_splits, short=short, looked=study.looked)


def verdicts(study: Study) -> dict[str, Standing]:
    """By group of the table, of those in which something can be compared."""
    found = {}
    for group in dict.fromkeys(row.group for row in study.plan.rows):
        with suppress(InputError):
            found[group] = verdict(study, group=group)
    return found


def sentences(study: Study) -> list[str]:
    """What the study says, the most important first: what failed, who leads, how sure that is."""
    lines = []
    for group, found in verdicts(study).items():
        told = [*wording.failures(found), wording.lead(found), wording.basis(found)]
        told.append(wording.outlook(found, decision(found)))
        lines += [f"{group}: {line}" if group else line for line in told if line]
    return lines


@dataclass(frozen=True)
class Outlook:
    """What would decide, and what it costs."""

    decision: Decision
    seconds: float  # of one process, for the draws that are missing, of all objectives


def outlook(study: Study, standing: Standing) -> Outlook | None:
    """None where nothing is open."""
    found = decision(standing)
    if found is None:
        return None
    more = 0 if found.draws is None else found.draws - standing.draws[0]
    return Outlook(found, more * _seconds_of_a_draw(study))


def _seconds_of_a_draw(study: Study) -> float:
    """Of all objectives: one more seed, or one more search with its test runs."""
    tests = 0.0
    for draws in study.draws.values():
        if draws:
            tests += float(np.mean([sum(_seconds(run) for run in draw) for draw in draws]))
    replicates = len(study.plan.replicates)
    if replicates == 1:
        return tests
    records = [one.record for one in study.tunings if one.record is not None]
    spent = sum(float(record["budget"]["seconds"]) for record in records)
    return tests + spent / replicates


def _seconds(run: Run) -> float:
    return float(run.info.get("seconds", 0.0))
