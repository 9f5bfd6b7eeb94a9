"""Fields of a recipe that name a place on the disk, made to hold wherever one stands."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from simgrad.data.opening import absolute as place_of
from simgrad.models import models

_PLACES = (
    "data",
    "features",
    "skip",
    "vocabulary",
    "candidates",
    "start_from",
    "positives",
    "also",
)


def absolute(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of a recipe with absolute paths, also within a model's spec and a second round."""
    found = {k: place_of(v) if k in _PLACES and v is not None else v for k, v in fields.items()}
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
