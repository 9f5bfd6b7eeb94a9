"""A study before it is run: what each row would read, and what all would cost.

Every row's data and model are opened, without training. The cost is steps and disk, and minutes
where steps are timed here.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from simgrad.choosing.probe import Pace, measure
from simgrad.core.devices import pick_device
from simgrad.core.errors import InputError
from simgrad.retriever.run_preview import Look, look
from simgrad.runs.recipe import Recipe
from simgrad.studies.plan import Plan
from simgrad.studies.study_file import Row
from simgrad.training.optimizing import total_epochs

# A step of AOQ's second round, in steps of its first: published 1.46 (supplement, table 3).
_SECOND = 1.5
_SECONDS = 10.0  # that each model is trained to be timed
_BYTES = 4  # of a weight in a checkpoint

Seen = list[tuple[Row, Look | InputError]]


def look_at(plan: Plan) -> Seen:
    """What each row would read, or why it cannot be run."""
    shared: dict[Any, Any] = {}
    seen: Seen = []
    first = plan.replicates[0]
    for row, own in zip(plan.rows, first.rows, strict=True):
        if row.ensemble:
            continue
        recipe = first.recipe(own, first.seeds[0]).settled()
        try:
            seen.append((row, look(recipe, shared)))
        except InputError as error:
            seen.append((row, error))
    return seen


@dataclass(frozen=True)
class Cost:
    """Of all seeds of some rows; a first round that rows share counts once."""

    runs: int
    steps: int  # of both rounds
    disk: int  # bytes of what is kept: the best weights of each run
    seconds: float | None = None  # one run after the other; None: not timed

    def __str__(self) -> str:
        told = f"{self.runs} runs, {self.steps:,} steps, {self.disk / 1e9:.1f} GB of checkpoints"
        if self.seconds is None:
            return told
        return f"{told}, about {self.seconds / 60:,.0f} minutes one after the other"


def cost_of(
    plan: Plan, ready: Sequence[tuple[Row, Look]], paces: Mapping[str, Pace] | None = None
) -> Cost:
    """What rows that can be run cost; `paces` by label, as `paces_of` measures them."""
    seen: set[str] = set()
    runs = steps = disk = 0
    seconds = 0.0
    for row, found in ready:
        recipe = plan.recipe(row, plan.seeds[0])
        rounds = [(recipe.replace(second_round=None), 1.0)]
        if recipe.second_round is not None:
            rounds.append((recipe.round_two(), _SECOND))
        runs += len(plan.seeds)
        for one, slower in rounds:
            key = repr(one)
            if key in seen:
                continue
            seen.add(key)
            each = total_epochs(one) * found.steps
            steps += each * len(plan.seeds)
            disk += _BYTES * found.parameters * len(plan.seeds)
            if paces is not None:
                pace = paces[row.label]
                looks = each // one.evaluate_every if one.evaluate_every else total_epochs(one)
                seconds += (slower * each * pace.step + looks * pace.evaluation) * len(plan.seeds)
    return Cost(runs, steps, disk, None if paces is None else seconds)


def paces_of(plan: Plan, ready: Sequence[tuple[Row, Look]]) -> dict[str, Pace]:
    """The pace of each row's first round: rows of one model and batch are timed once."""
    kinds: dict[tuple[str, ...], Recipe] = {}
    of: dict[str, tuple[str, ...]] = {}
    for row, _ in ready:
        recipe = plan.recipe(row, plan.seeds[0]).replace(second_round=None)
        fields = (recipe.model, recipe.data, recipe.sampler, recipe.batch, recipe.augment)
        of[row.label] = tuple(map(str, fields))
        kinds.setdefault(of[row.label], recipe)
    names = {str(number): recipe for number, recipe in enumerate(kinds.values())}
    on_gpu = any(pick_device(recipe.device).type == "cuda" for recipe in kinds.values())
    found = measure(names, 1, os.cpu_count() or 1, _SECONDS, on_gpu=on_gpu)
    paces = dict(zip(kinds, found.values(), strict=True))
    return {label: paces[kind] for label, kind in of.items()}
