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
# Runs side by side in one process take turns to read data and to draw initial weights.
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


def prepare(
    recipe: Recipe, dataset: Dataset | None = None, shared: dict[Any, Any] | None = None
) -> Prepared:
    """Open the data, build or load the model, put both where they are needed.

    Runs side by side in one process pass the same `shared`, and read each data set once.
    """
    device = pick_device(recipe.device)
    if recipe.precision == "tf32":
        torch.set_float32_matmul_precision("high")
    kept = {} if shared is None else shared
    with building:  # also: initial weights come from the global generator
        key: Any = ("dataset", recipe.data, recipe.features)
        dataset = dataset or kept.get(key) or open_dataset(recipe.data, features=recipe.features)
        kept[key] = dataset
        train, val = dataset.split("train"), dataset.split("val")
        if not len(train.captions) or not len(val.captions):
            raise InputError(f"{recipe.data}: the train and val splits must not be empty.")
        tokenizer, model = _model(recipe, dataset, train, kept)
        sources = []
        for split in (train, val):
            key = (id(split), id(tokenizer), str(device), model.inputs.images)
            if key not in kept or model.inputs.images == "pixels":
                kept[key] = source_of(
                    split, tokenizer, model, device, recipe, training=split is train
                )
            sources.append(kept[key])
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


def _model(
    recipe: Recipe, dataset: Dataset, train: Split, kept: dict[Any, Any]
) -> tuple[Any, RetrievalModel]:
    if recipe.start_from is not None:
        loaded = load(recipe.start_from)
        return loaded.tokenizer, loaded.model
    pieces = needs_word_pieces(recipe.model)
    key = (id(dataset), pieces, recipe.vocabulary, recipe.vocabulary_splits, recipe.min_count)
    if key not in kept:
        kept[key] = _tokenizer(recipe, dataset, pieces)
    torch.manual_seed(recipe.seed)
    return kept[key], build(recipe.model, inputs_of(train, kept[key], recipe))


def needs_word_pieces(model: str) -> bool:
    """Whether a model reads BERT's word pieces rather than words."""
    config = models.parse(model)
    return getattr(config, "text", "words") == "bert" or bool(getattr(config, "pieces", False))


def _tokenizer(recipe: Recipe, dataset: Dataset, pieces: bool) -> Any:
    if pieces:
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
    if split.features is not None:
        shape = split.features.shape
        kind: Any = "features" if len(shape) == 1 else "regions"
    else:
        kind, shape = "pixels", (3, 224, 224)
    return Inputs.of(kind, shape, tokenizer)


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

        style = str(recipe.augment or getattr(model, "transform", "imagenet"))
        transform = named(style, train=training and recipe.augment is not None, size=224)
        return Source(split, tokenizer, transform, device=device, workers=recipe.workers)
    if split.features is None:
        raise InputError(f"{split.dataset}: the model reads features, but the data has none.")
    size = 4 * split.num_images
    for n in split.features.shape:
        size *= n
    resident = size <= _RESIDENT.get(device.type, 0)
    return Source(split, tokenizer, device=device, resident=resident, workers=recipe.workers)
