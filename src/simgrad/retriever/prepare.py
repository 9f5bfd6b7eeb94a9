"""From a recipe to what the loop needs: data, tokenizer, model, all seeded."""

import json
from functools import partial
from typing import Any

import torch

from simgrad.core.devices import pick_device
from simgrad.core.errors import InputError
from simgrad.core.files import sha256
from simgrad.data.base import Dataset, Split
from simgrad.data.batches import Source, Tokens
from simgrad.data.vocabulary import Tokenizer
from simgrad.models import Inputs, ModelConfig, RetrievalModel, build, load, models
from simgrad.objectives import objective
from simgrad.retriever.encoding import building, caption_vectors, source_of
from simgrad.retriever.fitting import require_honoured, require_readable, require_same_model
from simgrad.retriever.retriever import Retriever
from simgrad.runs.data import Tested, what_is_tested
from simgrad.runs.recipe import Recipe
from simgrad.runs.recipe_names import check_names

_FEW = 8  # captions that tell one text network from another


def _check_candidates(recipe: Recipe) -> None:
    for spec in filter(None, (recipe.objective, recipe.first_objective)):
        if objective(spec).needs_offline and recipe.candidates is None:
            raise InputError(
                f"{spec} weighs negatives mined from the whole training set: train another "
                "objective first, run `simgrad mine RUN`, and give its folder as `candidates`. Or "
                "let a recipe do both: `second_round`."
            )


def prepare(
    recipe: Recipe, dataset: Dataset | None = None, shared: dict[Any, Any] | None = None
) -> Retriever:
    """Open the data, build or load the model, put both where they are needed.

    Its sources are "train", "val" and, until a network is trained that makes features, "frozen".
    Runs side by side in one process pass the same `shared`, and read each data set once.
    """
    device = pick_device(recipe.device)
    kept = {} if shared is None else shared
    with building:  # also: initial weights come from the global generator
        dataset, tokenizer, model = _begin(recipe, dataset, kept)
        train, val = dataset.split("train"), dataset.split("val")
        words = _words_of(tokenizer)
        sources = []
        for split in (train, val):
            read = caption_vectors(split, tokenizer, model, device, most=_FEW)
            # A locked text network is recognised by its vectors of a few captions.
            made = None if read is None else sha256(read.numpy().tobytes())
            key: Any = (id(split), words, str(device), model.inputs.images, made)
            source = kept.get(key)
            if source is None:
                tokens = _tokens(split, tokenizer, words, kept) if made is None else None
                source = source_of(split, tokenizer, model, device, recipe, split is train, tokens)
                if model.inputs.images != "pixels":  # of pictures every model sees something else
                    kept[key] = source
            sources.append(source)
        frozen = _frozen(train, tokenizer, model, device, recipe)
    retriever = Retriever.of(model.to(device), tokenizer, device, recipe, dataset)
    retriever.sources = {"train": sources[0], "val": sources[1]}
    if frozen is not None:
        retriever.sources["frozen"] = frozen
    return retriever


def read_ahead(recipe: Recipe, shared: dict[Any, Any]) -> None:
    """Read what every run of this kind reads, and touch no device: processes forked after it
    share it."""
    with building:
        dataset, tokenizer, _ = _begin(recipe, None, shared)
        for name in ("train", "val"):
            _tokens(dataset.split(name), tokenizer, _words_of(tokenizer), shared)


def _words_of(tokenizer: Any) -> str:
    """A hash of a tokenizer's content: runs that start from one checkpoint have tokenizers that are
    equal, but not the same object."""
    return sha256(json.dumps(tokenizer.to_json()))


def _tokens(split: Split, tokenizer: Any, words: str, kept: dict[Any, Any]) -> Tokens:
    """A split's captions as tokens, made once."""
    key = ("tokens", id(split), words)
    if key not in kept:
        kept[key] = Tokens.of(split, tokenizer)
    made: Tokens = kept[key]
    return made


def _begin(
    recipe: Recipe, dataset: Dataset | None, kept: dict[Any, Any]
) -> tuple[Dataset, Tokenizer, RetrievalModel]:
    """Data, tokenizer and model, refused where they do not go together."""
    dataset, asked = begin_data(recipe, dataset, kept)
    tokenizer, model = first_model(recipe, dataset, kept)
    require_together(recipe, dataset, asked, model)
    return dataset, tokenizer, model


def begin_data(
    recipe: Recipe, dataset: Dataset | None, kept: dict[Any, Any]
) -> tuple[Dataset, Tested | None]:
    """The data and what is tested of them, refused where they cannot be trained or tested on."""
    check_names(recipe, "recipe")
    _check_candidates(recipe)
    dataset = opened(recipe, kept, dataset)
    train, val = dataset.split("train"), dataset.split("val")
    if not len(train.captions) or not len(val.captions):
        raise InputError(f"{recipe.data}: the train and val splits must not be empty.")
    return dataset, what_is_tested(recipe, dataset)


def require_together(
    recipe: Recipe, dataset: Dataset, asked: Tested | None, model: RetrievalModel
) -> None:
    """Refuse a model that cannot read the data or do what the recipe asks of it."""
    for split in (*map(dataset.split, ("train", "val")), *([asked.split] if asked else [])):
        require_readable(split, model)
    require_honoured(recipe, model)


def opened(recipe: Recipe, kept: dict[Any, Any], given: Dataset | None = None) -> Dataset:
    """The data: what was given, what another run has opened, or opened now."""
    part = (recipe.train_images, recipe.resplit)
    key = ("dataset", recipe.data, recipe.features, recipe.skip, *part)
    dataset: Dataset = given or kept.get(key) or recipe.dataset()
    kept[key] = dataset
    return dataset


def first_model(
    recipe: Recipe, dataset: Dataset, kept: dict[Any, Any]
) -> tuple[Tokenizer, RetrievalModel]:
    """The tokenizer, and the model as it is before the first step."""
    if recipe.start_from is not None:
        loaded = load(recipe.start_from)
        require_same_model(recipe, loaded.model.config)
        return loaded.require_tokenizer(recipe.start_from), loaded.model
    config = models.parse(recipe.model)
    if not recipe.epochs and not recipe.finetune_epochs and not config.ready:
        raise InputError(
            f"epochs: 0 is for a pretrained model, and '{config}' has weights that nobody has "
            "trained yet."
        )
    if recipe.wise and not config.ready:
        raise InputError(
            f"wise: {recipe.wise} is for a pretrained model; of '{config}' the weights before "
            "training know nothing."
        )
    needs = config.tokenizer_needs
    if recipe.vocabulary is not None and needs.by_transformers:
        raise InputError(
            f"model '{config}' reads captions by its own tokenizer: leave `vocabulary` "
            f"({recipe.vocabulary}) out."
        )
    key = (id(dataset), needs, recipe.vocabulary, recipe.vocabulary_splits, recipe.min_count)
    if key not in kept:
        captions = partial(_captions, recipe, dataset)
        kept[key] = needs.tokenizer(captions, recipe.vocabulary, recipe.min_count)
    tokenizer = kept[key]
    torch.manual_seed(recipe.seed)
    model = build(config, inputs_of(dataset.split("train"), tokenizer, config, recipe))
    return tokenizer.cut(model.longest), model


def begin_model(recipe: Recipe, dataset: Dataset) -> RetrievalModel:
    """The model as it was before the first step."""
    with building:
        return first_model(recipe, dataset, {})[1]


def _captions(recipe: Recipe, dataset: Dataset) -> list[str]:
    return [c for name in recipe.vocabulary_splits for c in dataset.split(name).captions]


def inputs_of(split: Split, tokenizer: Tokenizer, config: ModelConfig, recipe: Recipe) -> Inputs:
    """What the model will be fed: features where there are any, unless it wants pictures."""
    pictures = split.pictures is not None and recipe.features is None
    vectors = 0 if split.caption_vectors is None else split.caption_vectors.shape[-1]
    if split.features is None or (config.reads == "pixels" and pictures):
        return Inputs.of("pixels", (3,), tokenizer, vectors)
    shape = split.features.shape
    return Inputs.of("features" if len(shape) == 1 else "regions", shape, tokenizer, vectors)


def _frozen(
    train: Split, tokenizer: Tokenizer, model: RetrievalModel, device: torch.device, recipe: Recipe
) -> Source | None:
    """Features of the training pictures for the epochs in which the image network is frozen."""
    if not recipe.freeze_epochs and not recipe.finetune_epochs:
        return None
    model.set_backbone(False)  # refused where nothing can be frozen
    try:
        if recipe.augment is not None or model.fixed_network() is None:
            return None
        made = source_of(train, tokenizer, model, device, recipe)
    finally:
        model.set_backbone(True)
    # If there is no place to keep features, this source reads pictures too, and is not needed.
    return made if made.image_shape != model.inputs.image_shape else None
