"""Pretrained parts: their settings travel in a checkpoint, so loading one needs no hub.

A part that was made from a pretrained network keeps the settings it was built with in
`part_settings`. A checkpoint stores them by the part's place in the model; while a checkpoint
is loaded, parts are built from what it stored and their weights are left to the checkpoint.
"""

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

from torch import nn

_stored: ContextVar[dict[str, Any] | None] = ContextVar("stored", default=None)


@contextlib.contextmanager
def stored_parts(settings: dict[str, Any]) -> Iterator[None]:
    """Build parts from `settings` and load no weights within the block."""
    token = _stored.set(settings)
    try:
        yield
    finally:
        _stored.reset(token)


def loading() -> bool:
    """True while a checkpoint is being loaded: its weights follow, so fetch none."""
    return _stored.get() is not None


def stored(kind: str) -> dict[str, Any] | None:
    """The stored settings of one kind of part, while a checkpoint is being loaded."""
    settings = (_stored.get() or {}).get(kind)
    return settings if isinstance(settings, dict) else None


def recorded(model: nn.Module) -> dict[str, Any]:
    """The settings of every pretrained part of a model, by kind."""
    found: dict[str, Any] = {}
    for module in model.modules():
        settings = getattr(module, "part_settings", None)
        if settings is not None:
            found[module.part_kind] = settings  # type: ignore[index]  # both are set together
    return found
