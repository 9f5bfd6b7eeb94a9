"""Where the scale of similarities starts: at that of a model's pretraining, where there is one."""

from collections.abc import Iterable

from simgrad.models.base import RetrievalModel
from simgrad.objectives import Objective


def start_scales(model: RetrievalModel, objectives: Iterable[Objective]) -> list[str]:
    """Let objectives that learn a scale begin at the model's own; what a person should know."""
    own = model.pretrained_scale()
    if own is None:
        return []
    told = []
    for objective in objectives:
        if objective.start_at(own.scale, own.bias):
            told.append(f"{objective} starts at the model's own scale, {own.scale:.4g}.")
            continue
        scale, _ = objective.affine()
        sees = "similarities as they are" if scale is None else f"{scale.item():.4g} times them"
        told.append(
            f"{objective} sees {sees}; the model was pretrained with {own.scale:.4g} times them."
        )
    return told
