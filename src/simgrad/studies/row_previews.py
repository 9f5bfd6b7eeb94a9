"""A study before it is run: every row's data and model opened, without training."""

from typing import Any

from simgrad.core.errors import InputError
from simgrad.retriever.run_preview import Look, look
from simgrad.studies.plan import Plan
from simgrad.studies.study_file import Row

Seen = list[tuple[Row, Look | InputError]]
_NAMED = 4  # rows that are named where many have the same to say


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


def told_once(reasons: list[tuple[str, str]]) -> list[str]:
    """(name, reason) pairs as lines, each reason once."""
    names: dict[str, list[str]] = {}
    for name, reason in reasons:
        names.setdefault(reason, []).append(name)
    return [f"{_listed(found)}: {reason}" for reason, found in names.items()]


def _listed(names: list[str]) -> str:
    if len(names) <= _NAMED:
        return ", ".join(names)
    return f"{', '.join(names[:_NAMED])} and {len(names) - _NAMED} more"
