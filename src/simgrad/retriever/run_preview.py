"""What a run would work with, before it is run: its data, its test and its model."""

import dataclasses
from dataclasses import dataclass
from typing import Any

from simgrad.core.devices import pick_device
from simgrad.core.errors import InputError
from simgrad.data.base import Dataset
from simgrad.data.sampling import Sampler
from simgrad.models import RetrievalModel
from simgrad.retriever.encoding import building
from simgrad.retriever.prepare import begin_data, first_model, require_together
from simgrad.runs.offline_draws import draw_of
from simgrad.runs.recipe import Recipe


@dataclass(frozen=True)
class Look:
    """What a run would work with; where its model cannot be had, its data and test."""

    data: str  # images and captions of each split
    tested: str  # what the test ranks
    steps: int = 0  # of an epoch
    images: str = ""  # what its model sees of an image
    words: int = 0  # that it knows
    parameters: int = 0
    problem: str | None = None  # why it has no model


def look(recipe: Recipe, shared: dict[Any, Any]) -> Look:
    """Open a run's data and build its model, as training would, without reading all of it."""
    pick_device(recipe.device)
    with building:
        dataset, asked = begin_data(recipe, None, shared)
        seen = Look(
            data=repr(dataset).strip("<>").removeprefix("Dataset "),
            tested=str(asked or "nothing: the data have no test split"),
            steps=_steps(recipe, dataset),
        )
        try:
            tokenizer, model = _model_once(recipe, dataset, shared)
            require_together(recipe, dataset, asked, model)
        except InputError as error:
            return dataclasses.replace(seen, problem=str(error))
    if recipe.candidates is not None:
        draw_of(recipe, dataset.split("train"), None, dataset)
    kind, shape = model.inputs.images, " x ".join(map(str, model.inputs.image_shape))
    return dataclasses.replace(
        seen,
        images=f"{'pictures' if kind == 'pixels' else kind} {shape}",
        words=len(tokenizer),
        parameters=sum(p.numel() for p in model.parameters()),
    )


def _steps(recipe: Recipe, dataset: Dataset) -> int:
    sampler = Sampler(
        recipe.sampler, recipe.batch, recipe.captions_per_image, recipe.seed, recipe.drop_last
    )
    return len(sampler.epoch(dataset.split("train"), 0))


# What decides which model a run begins with; of the rest one model serves all that look at it.
_OF_MODEL = (
    "data", "features", "skip", "train_images", "resplit", "model", "vocabulary",
    "vocabulary_splits", "min_count", "start_from", "epochs", "finetune_epochs", "wise",
)  # fmt: skip


def _model_once(
    recipe: Recipe, dataset: Dataset, kept: dict[Any, Any]
) -> tuple[Any, RetrievalModel]:
    """A model that nobody trains, or the error that there is none, made once for equal recipes."""
    key = ("model", *(str(getattr(recipe, field)) for field in _OF_MODEL))
    if key not in kept:
        try:
            kept[key] = first_model(recipe, dataset, kept)
        except InputError as error:
            kept[key] = error
    if isinstance(kept[key], InputError):
        raise kept[key]
    made: tuple[Any, RetrievalModel] = kept[key]
    return made
