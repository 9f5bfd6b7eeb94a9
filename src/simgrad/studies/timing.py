"""Seconds of a batch of a study's runs, and their ratio to the baseline's: AOQ's supplement 3."""

import math
from pathlib import Path

from simgrad.studies.papers import RATIO, SECONDS
from simgrad.studies.study import Study


def timings(study: Study) -> dict[Path, dict[str, float]]:
    """By run folder, where the study asks for it and the run has measured it.

    Machines differ: a ratio can be compared with a published one, seconds cannot.
    """
    plan, found = study.plan, {}
    if not {SECONDS, RATIO} & set(plan.metrics):
        return {}
    seconds = {
        label: {run.path: value for run in runs if (value := run.seconds_per_batch) is not None}
        for label, runs in study.groups.items()
    }
    baselines = {row.group: seconds[row.label].values() for row in plan.rows if row.baseline}
    for row in plan.rows:
        base = baselines.get(row.group)
        for path, value in seconds[row.label].items():
            found[path] = {SECONDS: value}
            if base:
                found[path][RATIO] = value / (math.fsum(base) / len(base))
    return found
