"""`simgrad.open`: a Retriever from whatever there is.

simgrad.open("runs/mine")                            a run, at its best checkpoint
simgrad.open("studies/losses")                       a study's best run, or what choose kept
simgrad.open("imported/vsepp", data="data/f30k")     a checkpoint that `simgrad import` wrote
simgrad.open("clip(source=FOLDER)", data="scenes")   a pretrained model as it is
simgrad.open("embeddings.npz")                       images, texts, image_of_caption in a file
simgrad.open(images, texts, image_of_caption=rows)   arrays, or a file for each
simgrad.open("ranks.parquet")                        ranks that were kept
simgrad.open("sentence-transformers(source=NAME)", data="photos/")  an encoder of somebody else, by
spec or by its folder; a Python function or a SentenceTransformer object, too
"""

import os
from functools import partial
from pathlib import Path
from typing import Any

import torch

from simgrad.core.console import say
from simgrad.core.devices import pick_device
from simgrad.core.errors import InputError
from simgrad.core.text import near_path
from simgrad.data.array_files import SUFFIXES
from simgrad.data.base import Dataset
from simgrad.data.layouts.base import layouts
from simgrad.data.layouts.embeddings import EmbeddingFiles
from simgrad.evaluation.ranks import Ranks
from simgrad.models import Checkpoint, Inputs, build, load, models
from simgrad.models.checkpoint import DESCRIPTION
from simgrad.models.embedders import Embedder, embedder_of, embedders
from simgrad.models.embedders.python import FunctionEmbedder
from simgrad.models.networks.open_clip import can_read
from simgrad.retriever.arrays import read_pair, read_similarities
from simgrad.retriever.encoding import building
from simgrad.retriever.fitting import foreign_captions
from simgrad.retriever.foreign_encoder import OutsideRetriever
from simgrad.retriever.retriever import Retriever
from simgrad.runs.outcome import best_run
from simgrad.runs.recipe import Recipe
from simgrad.runs.run import BEST, RANKS, RECIPE, Run


def open(
    target: Any,
    texts: Any = None,
    *,
    data: str | None = None,
    features: str | None = None,
    skip: str | None = None,
    image_of_caption: Any = None,
    captions_per_image: int | None = None,
    normalise: bool = False,
    device: str = "auto",
) -> Retriever:
    """A Retriever of a run, a study, a checkpoint, a pretrained model, arrays or ranks.

    Args:
        target: a folder, a `Run`, a `Study`, an `Answer`, a pretrained model's spec, a file of
            arrays or ranks, a dictionary of arrays, similarities (images, captions), or embeddings
            of images
        texts: embeddings of the captions, where `target` are those of images
        data: data to ask it about, instead of those that a run was trained on
        features: a folder of `simgrad features` for that data
        skip: a list of `simgrad datasets --fix` for that data
        image_of_caption: of arrays, the row of each caption's image: an array, or a file
        captions_per_image: of arrays, instead: so many captions for each image, in order
        normalise: of arrays, scale embeddings to length 1 first
        device: auto, cpu, cuda, cuda:N or mps

    Examples:
        >>> simgrad.open("runs/first", device="cpu")
        <Retriever first on cpu>
        >>> arrays = simgrad.open(torch.eye(3), torch.eye(3))
        >>> arrays.evaluate().rsum
        600.0
    """
    named: dict[str, Any] = {"data": data, "features": features, "skip": skip}
    pairing: dict[str, Any] = {
        "image_of_caption": image_of_caption,
        "captions_per_image": captions_per_image,
        "normalise": normalise,
        "device": device,
    }
    if texts is not None:
        return _of_arrays(read_pair(target, texts, **pairing), None, device, named)
    if isinstance(target, os.PathLike):  # a path, or a run, a study or an answer
        target = Path(target)
    if callable(target) and not isinstance(target, torch.Tensor):
        return open_embedder(FunctionEmbedder(target), device=device, **named)
    if not isinstance(target, str | Path):
        return _of_arrays(read_similarities(target, **pairing), None, device, named)
    path = Path(target).expanduser()
    if path.is_dir():
        if any((path / name).exists() for name in (RECIPE, DESCRIPTION)):
            return open_folder(path, device=device, **named)
        if EmbeddingFiles().recognises(path):
            return open_vectors(path, device=device, skip=skip)
        if can_read(path):  # which needs no package
            return open_pretrained(f"clip(source={path})", device=device, **named)
        spec = embedder_of(path)
        if spec is not None:
            return open_embedder(embedders.parse(spec), device=device, **named)
        try:
            return open_folder(path, device=device, **named)
        except InputError as error:
            raise InputError(f"{error}{_if_data(path)}") from None
    if not path.is_file():
        if str(target).split("(")[0].strip() in {one.name for one in (*models, *embedders)}:
            return open_pretrained(str(target), device=device, **named)
        told = "there is no such run, checkpoint or file, and no such model"
        raise InputError(f"{target}: {told}.{near_path(path)}")
    if path.suffix not in SUFFIXES:
        kinds = ", ".join(SUFFIXES)
        raise InputError(f"{target}: give the folder of a run or a checkpoint, or a {kinds} file.")
    if path.suffix == ".parquet" and Ranks.recognises(path):
        return Retriever(str(target), pick_device(device), ranks=partial(Ranks.load, path))
    return _of_arrays(read_similarities(target, **pairing), path, device, named)


def _if_data(path: Path) -> str:
    """What to do with a folder of data that was taken for a model's."""
    if any(layouts.parse(one.name).recognises(path) for one in layouts):
        return (
            f" It holds data: train a model on them, `simgrad.train(data='{path}')`, or ask one "
            f"about them, `simgrad.open(MODEL, data='{path}')`."
        )
    return ""


def open_folder(
    folder: str | Path | Run,
    *,
    data: str | None = None,
    features: str | None = None,
    skip: str | None = None,
    device: str = "auto",
) -> Retriever:
    """A run or a checkpoint; of a study or the output of choose, its best run."""
    path = folder.path if isinstance(folder, Run) else Path(folder).expanduser()
    if not (path / RECIPE).is_file() and not (path / DESCRIPTION).is_file():
        path = best_run(path)
    name, place = path.resolve().name, pick_device(device)
    named = {"data": data, "features": features, "skip": skip}
    if not (path / RECIPE).is_file():
        alone = None if data is None else Recipe(**named)  # type: ignore[arg-type]
        opened = None if alone is None else alone.dataset
        return Retriever(
            name, place, path=path, load=partial(_load, path, place), recipe=alone, dataset=opened
        )
    run = Run.open(path)
    kept = data is None and (path / RANKS).is_file()
    if not kept and not (path / BEST / DESCRIPTION).is_file():
        raise _no_weights(path)
    recipe = run.recipe
    if data is not None:
        recipe = recipe.replace(**named, train_images=None, resplit=None)
    return Retriever(
        name,
        place,
        path=path,
        load=partial(_load, run, place),
        recipe=recipe,
        run=run,
        dataset=partial(run.dataset, **named),
        ranks=partial(_kept_ranks, run) if kept else None,
    )


def open_vectors(folder: Path, *, device: str = "auto", skip: str | None = None) -> Retriever:
    """Vectors of both sides, with splits: a folder of arrays, or a saved Hugging Face data set."""
    recipe = Recipe(data=str(folder), skip=skip)
    return Retriever(
        str(folder), pick_device(device), path=folder, recipe=recipe, dataset=recipe.dataset
    )


def open_pretrained(
    spec: str,
    *,
    data: str | None = None,
    features: str | None = None,
    skip: str | None = None,
    device: str = "auto",
) -> Retriever:
    """A pretrained model as it is: zero-shot. Without data, it can encode and search folders."""
    if spec.split("(")[0].strip() in {one.name for one in embedders}:
        told = embedders.parse(spec)
        return open_embedder(told, data=data, features=features, skip=skip, device=device)
    config, place = models.parse(spec), pick_device(device)
    if not config.ready:
        raise InputError(
            f"model '{config}' has weights that nobody has trained yet: train it first, or name a "
            "pretrained one, such as clip(source=FOLDER_OR_HUB_NAME)."
        )

    def read() -> Checkpoint:
        with building:
            tokenizer = config.tokenizer_needs.tokenizer(list, None, 1)
            model = build(config, Inputs.of("pixels", (3,), tokenizer)).to(place).eval()
        return Checkpoint(model, tokenizer.cut(model.longest), {})

    recipe = Recipe(model=spec)
    if data is not None:
        recipe = recipe.replace(data=data, features=features, skip=skip)

    def opened() -> Dataset:
        dataset = recipe.dataset()
        told = foreign_captions(made.model, made.tokenizer, dataset)
        if told is not None:
            say(told, stderr=True)
        return dataset

    made = Retriever(
        str(config), place, load=read, recipe=recipe, dataset=None if data is None else opened
    )
    return made


def open_embedder(
    embedder: Embedder,
    *,
    data: str | None = None,
    features: str | None = None,
    skip: str | None = None,
    device: str = "auto",
) -> OutsideRetriever:
    """An encoder of somebody else, with data or without."""
    if features is not None:
        raise InputError(f"{embedder}: reads pictures itself: leave `features` out.")
    recipe = Recipe() if data is None else Recipe(data=data, skip=skip)
    opened = None if data is None else recipe.dataset
    return OutsideRetriever(embedder, pick_device(device), recipe, opened)


def open_either(folder: "str | Path | Run | None", model: str | None, **options: Any) -> Retriever:
    """What a command was given: a folder, or a pretrained model with --model."""
    if (folder is None) == (model is None):
        raise InputError("give a run's or checkpoint's folder, or a pretrained one with `model`.")
    if model is not None:
        return open_pretrained(model, **options)
    assert folder is not None
    return open_folder(folder, **options)


def _of_arrays(
    given: Any, path: Path | None, device: str, named: dict[str, str | None]
) -> Retriever:
    opened = None if named["data"] is None else Recipe(**named).dataset  # type: ignore[arg-type]
    return Retriever(given.name, pick_device(device), path=path, dataset=opened, given=given)


def _load(folder: Path | Run, device: Any) -> Checkpoint:
    with building:  # its weights are drawn before they are read
        if not isinstance(folder, Run):
            return load(folder, device=device)
        if not (folder.path / BEST / DESCRIPTION).is_file():
            raise _no_weights(folder.path)
        return folder.load(str(device))


def _no_weights(path: Path) -> InputError:
    return InputError(
        f"{path}: no checkpoint yet, or none any more; it is written at the first evaluation."
    )


def _kept_ranks(run: Run) -> Ranks:
    damaged = run.damage()  # weights that were removed to save space are not asked for
    if damaged:
        raise InputError("\n".join(damaged))
    return run.ranks()
