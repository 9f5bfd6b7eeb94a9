"""Fields of a recipe: their groups, their earlier names, and which of them name a place on disk."""

import dataclasses
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from simgrad.core.errors import InputError
from simgrad.data.classes import classes_place
from simgrad.data.opening import absolute as place_of
from simgrad.models import models

# The first field of each group, in the order of the recipe: in --help, and in files that are saved.
GROUPS = {
    "data": "data",
    "model": "model",
    "objective": "objective",
    "batch": "optimisation",
    "epochs": "schedule",
    "select": "evaluation",
    "device": "machine",
}
MODES = ("images", "pairs")  # of `positives`
_PLACES = (
    "data",
    "features",
    "skip",
    "vocabulary",
    "candidates",
    "start_from",
    "positives",  # of recipes before `found_pairs`
    "found_pairs",
    "also",
)


def grouped(names: Iterable[str]) -> dict[str, list[str]]:
    """Names of fields by group; they come in the recipe's order."""
    groups: dict[str, list[str]] = {}
    for name in names:
        if name in GROUPS:
            groups[GROUPS[name]] = []
        groups[next(reversed(groups))].append(name)
    return groups


def up_to_date(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Fields, or changes of some, by the names that they have now.

    Whoever sets `positives` says all of it: found pairs that were given before are dropped.
    """
    found = dict(fields)
    if "trial" in found:
        found["validation_only"] = found.pop("trial")
    tensorboard = found.pop("tensorboard", False)
    if not isinstance(tensorboard, bool):
        raise InputError("recipe: tensorboard is true or false; today it is `log: tensorboard`.")
    if tensorboard:
        named = [name for name in (found.get("log"), "tensorboard") if name]
        found["log"] = ",".join(named)
    positives = found.get("positives")
    if _is_place(positives):
        found |= {"positives": "images", "found_pairs": str(positives)}
    elif positives in MODES:
        found.setdefault("found_pairs", None)
    second = found.get("second_round")
    if isinstance(second, Mapping):
        found["second_round"] = up_to_date(second)
    return found


def earlier_names(fields: Mapping[str, Any]) -> list[str]:
    """What became of the fields that had other names: a sentence for each."""
    told = []
    if "trial" in fields:
        told.append("`trial` is `validation_only` now")
    if "tensorboard" in fields:
        told.append("`tensorboard: true` is `log: tensorboard` now")
    if _is_place(fields.get("positives")):
        told.append("`positives` with a file or folder is `found_pairs` now")
    return told


def _is_place(value: Any) -> bool:
    """A file or folder of found pairs, not a mode or a mistyped one."""
    if isinstance(value, Path):
        return True
    return isinstance(value, str) and value not in MODES and ("/" in value or Path(value).exists())


def absolute(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of a recipe with absolute paths, also within a model's spec and a second round."""
    found = {k: place_of(v) if k in _PLACES and v is not None else v for k, v in fields.items()}
    if isinstance(found.get("also"), str):
        found["also"] = classes_place(found["also"])
    if "model" in found:
        config = models.parse(str(found["model"]))
        texts = {f.name: getattr(config, f.name) for f in dataclasses.fields(config)}
        paths = {k: place_of(v) for k, v in texts.items() if isinstance(v, str) and "/" in v}
        if any(texts[k] != path for k, path in paths.items()):
            found["model"] = str(dataclasses.replace(config, **paths))
    second = fields.get("second_round")
    if isinstance(second, dict):
        found["second_round"] = absolute(second)
    return found
