"""A setting that a model cannot honour is refused before anything is trained, never ignored."""

import dataclasses

from simgrad.core.errors import InputError
from simgrad.core.spec import print_value
from simgrad.data.transforms import named
from simgrad.models import ModelConfig, RetrievalModel, models
from simgrad.runs.recipe import Recipe


def require_honoured(recipe: Recipe, model: RetrievalModel) -> None:
    """Refuse a recipe that asks of its model what that does not do."""
    config, pictures = model.config, model.inputs.images == "pixels"
    if recipe.rerank is not None and not model.reranks:
        raise InputError(f"recipe: rerank: {recipe.model[:80]} has no second scorer to rank with.")
    if config.trains_backbone and not pictures:
        raise InputError(
            f"model '{config}' trains an image network, but the data gives {model.inputs.images}: "
            "leave `features` out, or finetune=true."
        )
    if recipe.augment is not None:
        if not pictures:
            raise InputError(
                f"augment: {recipe.augment} varies pictures, but the model reads "
                f"{model.inputs.images}: leave one of both out."
            )
        if not model.can_augment():
            raise InputError(
                f"model '{config}' cuts pictures into patches itself: leave `augment` out."
            )
        named(recipe.augment, train=True, size=model.inputs.image_shape[-1])


def require_same_model(recipe: Recipe, has: ModelConfig) -> None:
    """Refuse a checkpoint to start from that is of another model than the recipe names.

    What the recipe leaves at its default is the checkpoint's.
    """
    wants = models.parse(recipe.model)
    where = f"start_from: {recipe.start_from} holds '{has}'"
    if type(wants) is not type(has):
        raise InputError(f"{where}, but the recipe's model is '{wants}': give --model '{has}'.")
    for field in dataclasses.fields(wants):
        value, kept = getattr(wants, field.name), getattr(has, field.name)
        if value not in (kept, field.default):
            raise InputError(
                f"{where}, but the recipe's model has {field.name}={print_value(value)}, which "
                f"weights that are there cannot follow: leave it out, or give --model '{has}'."
            )
    if recipe.vocabulary is not None:
        raise InputError(
            f"start_from: {recipe.start_from} brings the words it was trained with: leave "
            f"`vocabulary` ({recipe.vocabulary}) out."
        )
