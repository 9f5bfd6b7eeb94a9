"""Whether a model, its data and its recipe go together; what does not fit is refused early."""

import dataclasses

from simgrad.core.errors import InputError
from simgrad.core.spec import print_value
from simgrad.data.base import Dataset, Split
from simgrad.data.languages import seems_foreign
from simgrad.data.transforms import named
from simgrad.data.vocabulary import Tokenizer
from simgrad.models import ModelConfig, RetrievalModel, models
from simgrad.runs.recipe import Recipe

_AXES = {"features": 1, "regions": 2}  # of one image


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
        raise InputError(f"{where}, but the recipe's model is '{wants}': give `model='{has}'`.")
    for field in dataclasses.fields(wants):
        value, kept = getattr(wants, field.name), getattr(has, field.name)
        if value not in (kept, field.default):
            raise InputError(
                f"{where}, but the recipe's model has {field.name}={print_value(value)}, which "
                f"weights that are there cannot follow: leave it out, or give `model='{has}'`."
            )
    if recipe.vocabulary is not None:
        raise InputError(
            f"start_from: {recipe.start_from} brings the words it was trained with: leave "
            f"`vocabulary` ({recipe.vocabulary}) out."
        )


def require_readable(split: Split, model: RetrievalModel) -> None:
    """Refuse a split that lacks what the model reads."""
    if model.reads_vectors:
        has = 0 if split.caption_vectors is None else split.caption_vectors.shape[-1]
        if has != model.inputs.caption_dimension:
            raise InputError(
                f"{split.dataset}, split '{split.name}': the model reads caption vectors of "
                f"{model.inputs.caption_dimension} numbers, but the data have "
                f"{f'some of {has}' if has else 'none'}."
            )
    if model.inputs.images == "pixels":
        if split.pictures is None:
            raise InputError(f"{split.dataset}: the model reads pictures, but the data have none.")
    elif split.features is None:
        raise InputError(
            f"{split.dataset}, split '{split.name}': the model reads features, but the data have "
            "none."
        )


def require_fitting(split: Split, model: RetrievalModel, where: str) -> None:
    """Refuse a split of any data whose images the model cannot read; `where` the model is from."""
    wanted = model.inputs
    if wanted.images != "pixels":
        has = None if split.features is None else tuple(split.features.shape)
        if has is None or has[-1] != wanted.image_dimension or len(has) != _AXES[wanted.images]:
            given = "has no features" if has is None else f"has features of shape {has}"
            raise InputError(
                f"{where}: the model reads {wanted.images} of shape {wanted.image_shape}, "
                f"but {split.dataset} {given}. Give the data it was made for, or its features "
                "with `features`."
            )
    elif split.pictures is None and split.features is None:
        raise InputError(f"{where}: the model reads pictures; {split.dataset} has none.")


def foreign_captions(model: RetrievalModel, tokenizer: Tokenizer, dataset: Dataset) -> str | None:
    """A warning: captions in a language that a pretrained text network seems not to know."""
    if model.config.tokenizer_needs.network is None:  # its words are those of the captions
        return None
    captions = dataset.split(next(iter(dataset.splits))).captions
    language = seems_foreign(captions, tokenizer)
    if language is None:
        return None
    return (
        f"captions of {dataset.name} seem to be {language}, and the text network's tokenizer cuts "
        "them into far more pieces than English: it seems to know only English, and will find "
        f"little. Take a network that was trained on {language} too."
    )
