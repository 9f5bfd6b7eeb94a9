"""From a recipe to what the loop needs: data, tokenizer, model, all seeded."""

import threading
from dataclasses import dataclass
from typing import Any

import torch

from simgrad.data import Dataset, Split, open_dataset
from simgrad.data.batches import Source
from simgrad.data.vocabulary import Vocabulary, read_published
from simgrad.errors import InputError
from simgrad.models import Inputs, RetrievalModel, build, load, models
from simgrad.training.recipe import Recipe

# Features up to this size are kept on the device; 16 GiB leaves room on any current data GPU.
_RESIDENT = {"cpu": 2 * 2**30, "cuda": 16 * 2**30}
# Initial weights come from the global generator; runs side by side in one process take turns.
building = threading.Lock()


@dataclass
class Prepared:
    """What a run works with."""

    dataset: Dataset
    tokenizer: Any
    model: RetrievalModel
    device: torch.device
    train: Source
    val: Source


def prepare(recipe: Recipe, dataset: Dataset | None = None) -> Prepared:
    """Open the data, build or load the model, put both where they are needed."""
    device = pick_device(recipe.device)
    if recipe.precision == "tf32":
        torch.set_float32_matmul_precision("high")
    dataset = dataset or open_dataset(recipe.data, features=recipe.features)
    train, val = dataset.split("train"), dataset.split("val")
    if not len(train.captions) or not len(val.captions):
        raise InputError(f"{recipe.data}: the train and val splits must not be empty.")
    tokenizer, model = _model(recipe, dataset, train)
    sources = [
        source_of(split, tokenizer, model, device, recipe, training=split is train)
        for split in (train, val)
    ]
    return Prepared(dataset, tokenizer, model.to(device), device, sources[0], sources[1])


def pick_device(name: str) -> torch.device:
    """`auto` is the GPU where there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise InputError(f"device: '{name}' is not auto, cpu, cuda or cuda:N.") from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise InputError(f"device: {name} was asked for, but this PyTorch sees no GPU.")
    return device


def _model(recipe: Recipe, dataset: Dataset, train: Split) -> tuple[Any, RetrievalModel]:
    if recipe.start_from is not None:
        loaded = load(recipe.start_from)
        return loaded.tokenizer, loaded.model
    tokenizer = _tokenizer(recipe, dataset)
    with building:
        torch.manual_seed(recipe.seed)
        return tokenizer, build(recipe.model, inputs_of(train, tokenizer, recipe))


def _tokenizer(recipe: Recipe, dataset: Dataset) -> Any:
    config = models.parse(recipe.model)
    if getattr(config, "text", "words") == "bert" or getattr(config, "wordpieces", False):
        from simgrad.data.wordpieces import WordPieces

        if recipe.vocabulary is not None:
            return WordPieces.load(recipe.vocabulary)
        return WordPieces.build(_captions(recipe, dataset))
    if recipe.vocabulary is not None:
        return read_published(recipe.vocabulary)
    return Vocabulary.build(_captions(recipe, dataset), min_count=recipe.min_count)


def _captions(recipe: Recipe, dataset: Dataset) -> list[str]:
    return [c for name in recipe.vocabulary_splits for c in dataset.split(name).captions]


def inputs_of(split: Split, tokenizer: Any, recipe: Recipe) -> Inputs:
    """What the model will be fed."""
    mask = getattr(tokenizer, "mask", None)
    continuations = tuple(getattr(tokenizer, "continuations", ()))
    if split.features is not None:
        shape = split.features.shape
        kind: Any = "features" if len(shape) == 1 else "regions"
    else:
        kind, shape = "pixels", (3, 224, 224)
    return Inputs(kind, shape, len(tokenizer), mask, continuations)


def source_of(
    split: Split,
    tokenizer: Any,
    model: RetrievalModel,
    device: torch.device,
    recipe: Recipe,
    training: bool = False,
) -> Source:
    """The batches of a split, resident on the device where they fit."""
    if model.inputs.images == "pixels":
        from simgrad.data.transforms import named

        style = recipe.augment or getattr(model, "transform", "imagenet")
        transform = named(style, train=training and recipe.augment is not None, size=224)
        return Source(split, tokenizer, transform, device=device, workers=recipe.workers)
    if split.features is None:
        raise InputError(f"{split.dataset}: the model reads features, but the data has none.")
    size = 4 * split.num_images
    for n in split.features.shape:
        size *= n
    resident = size <= _RESIDENT.get(device.type, 0)
    return Source(split, tokenizer, device=device, resident=resident, workers=recipe.workers)
