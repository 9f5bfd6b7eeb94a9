"""Settings as they are drawn: by the trial's place, the seed and the trials it may know, alone.

Quasi-random points are Sobol's, scrambled by the seed. The same meaning has the same dimension
whatever the objective: the learning rate the first, then the objective's parameters, lambda before
tau before a margin before others, then the clip and the rest. So all rows try the same points, as
far as they search the same.
"""

import itertools
import math
import random
import warnings
from collections.abc import Sequence
from typing import Any

from simgrad.core.spec import Range
from simgrad.studies.journal import optuna_or_say
from simgrad.studies.tune import CrossedRanges, Setting, Space, Where

_FIRST = ("lambda", "tau", "margin")  # of an objective's parameters
_OWN = 2  # dimensions of an objective's parameters, beside the rate and before the clip
_DIMENSIONS = 32  # the same number for all rows: how points are scrambled depends on it


def dimensions(space: Space) -> dict[str, int]:
    """The dimension of Sobol's points that each field takes its values from."""
    own = [key for key in space if key.startswith("objective.")]

    def place(key: str) -> int:
        name = key.partition(".")[2]
        return _FIRST.index(name) if name in _FIRST else len(_FIRST)

    own.sort(key=place)  # others stay in the order in which they were declared
    found = {"lr": 0, **{key: 1 + i for i, key in enumerate(own[:_OWN])}, "clip": 1 + _OWN}
    rest = [*own[_OWN:], *sorted(key for key in space if key not in found and key not in own)]
    found |= {key: 2 + _OWN + i for i, key in enumerate(rest)}
    return {key: found[key] for key in space}


def quasi_random(space: Space, seed: int, place: int) -> Setting:
    """Sobol's point of this place."""
    from scipy.stats import qmc

    space = {key: where for key, where in space.items() if not isinstance(where, CrossedRanges)}
    taken = dimensions(space)
    count = max(_DIMENSIONS, 1 + max(taken.values(), default=0))
    sequence = qmc.Sobol(count, scramble=True, seed=seed)
    if place:
        sequence.fast_forward(place)
    point = sequence.random(1)[0]
    return {key: _at(where, float(point[taken[key]])) for key, where in space.items()}


def _at(where: Where, share: float) -> Any:
    """The value that lies at this share of a range, or of a list."""
    if not isinstance(where, Range):
        return where[min(int(share * len(where)), len(where) - 1)]
    if not where.log:
        return where.low + share * (where.high - where.low)
    low, high = math.log(where.low), math.log(where.high)
    return min(max(math.exp(low + share * (high - low)), where.low), where.high)


def grid_of(space: Space, trials: int) -> list[Setting]:
    """So many points of each range that the grid fits the budget, its ends included."""
    import numpy as np

    ranges = [key for key, where in space.items() if isinstance(where, Range)]
    fixed = 1
    for where in space.values():
        fixed *= 1 if isinstance(where, Range) else len(where)
    each = max(1, int((trials / fixed) ** (1 / max(1, len(ranges))) + 1e-9))
    values: dict[str, list[Any]] = {}
    shares = np.linspace(0, 1, each).tolist() if each > 1 else [0.5]
    for key, where in sorted(space.items()):
        values[key] = [_at(where, s) for s in shares] if isinstance(where, Range) else list(where)
    return [dict(zip(values, mix, strict=True)) for mix in itertools.product(*values.values())]


def shuffled(points: list[Setting], seed: int) -> list[Setting]:
    """In an order by chance: a budget may end before the points do."""
    order = list(points)
    random.Random(seed).shuffle(order)
    return order


def learned(space: Space, known: Sequence[Any], beside: Sequence[Setting], seed: int) -> Setting:
    """By Optuna's TPE, from trials that are over; what is tried beside counts as poor there."""
    optuna = optuna_or_say()
    sampler = optuna.samplers.TPESampler(
        n_startup_trials=0, multivariate=True, constant_liar=False, seed=seed
    )
    study = recalled(space, known, sampler)
    scores = [trial.score for trial in known if trial.score is not None]
    poor = min(scores, default=0.0)
    complete = optuna.trial.TrialState.COMPLETE
    for setting in beside:
        study.add_trial(_frozen(space, setting, complete, poor))
    return dict(study.ask(_distributions(space)).params)


def recalled(space: Space, trials: Sequence[Any], sampler: Any = None) -> Any:
    """Trials as a study of Optuna's, in memory and in their order."""
    optuna = optuna_or_say()
    states = optuna.trial.TrialState
    named = {"complete": states.COMPLETE, "failed": states.FAIL}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        study = optuna.create_study(direction="maximize", sampler=sampler)
        for trial in trials:
            state = named.get(trial.state)
            if state is not None:
                study.add_trial(_frozen(space, trial.setting, state, trial.score))
    return study


def _frozen(space: Space, setting: Setting, state: Any, score: float | None) -> Any:
    inside = {}  # values are rounded, which may take them beyond the end of a range
    for key, where in space.items():
        value = setting[key]
        inside[key] = (
            min(max(float(value), where.low), where.high) if isinstance(where, Range) else value
        )
    return optuna_or_say().trial.create_trial(
        params=inside, distributions=_distributions(space), state=state, value=score
    )


def _distributions(space: Space) -> dict[str, Any]:
    kinds = optuna_or_say().distributions
    return {
        key: kinds.FloatDistribution(where.low, where.high, log=where.log)
        if isinstance(where, Range)
        else kinds.CategoricalDistribution(tuple(where))
        for key, where in sorted(space.items())
    }
