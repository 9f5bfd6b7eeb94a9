"""What rows and runs are called: by what differs in the study, and no more.

A label stands in tables and charts, and has what was chosen: `goal (con, sig)`. A name is a
folder's: `goal-con-sig`.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from simgrad.core.errors import InputError
from simgrad.core.spec import print_value, split_spec

Spec = tuple[str, dict[str, str]]  # name and parameters
_SPECS = ("model", "objective", "first_objective", "data")  # fields that hold a spec


def slug(text: str) -> str:
    """A label as a folder name."""
    return re.sub(r"[^A-Za-z0-9+.=]+", "-", text).strip("-").lower()[:120] or "run"


def labels(settings: Sequence[Mapping[str, Any]], fields: Sequence[str]) -> list[str]:
    """Of each setting what differs in these fields, as people read it."""
    columns = []
    for field in fields:
        values = [setting[field] for setting in settings]
        specs = [_spec(field, value) for value in values]
        shared = _shared([spec for spec in specs if spec is not None])
        columns.append(
            [
                _plainly(field, value) if spec is None else _written(field, spec, shared)
                for value, spec in zip(values, specs, strict=True)
            ]
        )
    return [" ".join(parts) for parts in zip(*columns, strict=True)]


def label_of(objective: str) -> str:
    """An objective as tables and charts call it: `goal (cir, sig-ms)`, `nt-xent(tau=0.05)`."""
    spec = _spec("objective", objective)
    return objective if spec is None else _written("objective", spec, set())


def names(settings: Sequence[Mapping[str, Any]], fields: Sequence[str]) -> list[str]:
    """Of each setting what differs in these fields, as a folder's name; no two are the same."""
    columns = []
    for field in fields:
        values = [setting[field] for setting in settings]
        specs = [_spec(field, value) for value in values]
        columns.append(
            [
                _plainly(field, value) if spec is None else _briefly(spec, specs)
                for value, spec in zip(values, specs, strict=True)
            ]
        )
    return apart([slug(" ".join(parts)) for parts in zip(*columns, strict=True)])


def apart(given: Sequence[str]) -> list[str]:
    """The names, with a number behind each that stood there before."""
    found: dict[str, None] = {}
    for name in given:
        number, free = 2, name
        while free in found:
            free, number = f"{name}-{number}", number + 1
        found[free] = None
    return list(found)


def brief(field: str, value: Any) -> str:
    """A spec alone, in a few words: its name, and the parameters that are words."""
    spec = _spec(field, value)
    if spec is None:
        return slug(Path(str(value)).name if field == "data" else str(value))
    words = [v for v in spec[1].values() if field == "objective" and not _is_number(v)]
    return slug(" ".join([spec[0], *words]))


def _spec(field: str, value: Any) -> Spec | None:
    if field not in _SPECS or not isinstance(value, str) or "/" in value.split("(")[0]:
        return None
    try:
        return split_spec(value, field)
    except InputError:
        return None


def _shared(specs: Sequence[Spec]) -> set[tuple[str, str]]:
    """Parameters that all have alike."""
    if len(specs) < 2:
        return set()
    return set.intersection(*(set(values.items()) for _, values in specs))


def _written(field: str, spec: Spec, without: set[tuple[str, str]]) -> str:
    """A spec; where words of an objective were chosen, they stand without their parameters."""
    name, values = spec
    words = {k for k, v in values.items() if field == "objective" and not _is_number(v)}
    parts = [v if k in words else f"{k}={v}" for k, v in values.items() if (k, v) not in without]
    return f"{name}{' ' if words else ''}({', '.join(parts)})" if parts else name


def _briefly(spec: Spec, among: Sequence[Spec | None]) -> str:
    """The name, and those parameters in which specs of this name differ."""
    name, values = spec
    namesakes = [other[1] for other in among if other is not None and other[0] == name]
    parts = [name]
    for key, value in values.items():
        if any(other.get(key) != value for other in namesakes):
            parts.append(f"{key}={value}" if _is_number(value) else value)
    return " ".join(parts)


def _plainly(field: str, value: Any) -> str:
    if isinstance(value, str) and not _is_number(value):
        return Path(value).name if "/" in value else value
    return f"{field}={print_value(value)}"


def _is_number(text: str) -> bool:
    if text in ("true", "false"):
        return True
    try:
        float(text)
    except ValueError:
        return False
    return True
