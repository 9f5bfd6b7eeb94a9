"""A trained model with its data: a run, or an imported checkpoint on data that is named.

Evaluating, mining, counting and searching all begin here, so what works for a run works for a
checkpoint that `simgrad import` wrote. `open_pretrained` opens a model before any training.

Examples:
    >>> trained = open_trained("runs/first", device="cpu")
    >>> images, captions = trained.encode(trained.split("test"))
    >>> len(images), len(captions)
    (10, 50)
"""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from simgrad.core.console import say
from simgrad.core.devices import pick_device
from simgrad.core.errors import InputError
from simgrad.data.base import Dataset, Split
from simgrad.data.batches import Source
from simgrad.data.vocabulary import Tokenizer
from simgrad.models import Encoded, Inputs, Loaded, RetrievalModel, build, load, models
from simgrad.models.checkpoint import DESCRIPTION
from simgrad.retriever.encoding import encode_source
from simgrad.retriever.language_warning import foreign_captions
from simgrad.retriever.prepare import building, require_fitting, source_of
from simgrad.runs.recipe import Recipe
from simgrad.runs.run import BEST, RECIPE, Run


@dataclass(frozen=True)
class Trained:
    """A model in evaluation mode, its tokenizer, and the data it is asked about."""

    path: Path
    loaded: Loaded
    device: torch.device
    recipe: Recipe  # how its data is read; of a checkpoint, the defaults with that data
    run: Run | None  # None: an imported checkpoint
    elsewhere: dict[str, str | None]  # data, features and skip that were named
    spec: str | None = None  # a pretrained model that was named, not opened from a folder

    @property
    def name(self) -> str:
        return self.spec or self.path.resolve().name

    @property
    def model(self) -> RetrievalModel:
        return self.loaded.model

    @property
    def tokenizer(self) -> Tokenizer:
        return self.loaded.require_tokenizer(self.path)

    @cached_property
    def dataset(self) -> Dataset:
        """What it was trained on, or what was named instead."""
        if self.run is not None:
            return self.run.dataset(**self.elsewhere)
        return self.recipe.dataset()

    def split(self, name: str) -> Split:
        """A split that the model can read; an error says what does not fit."""
        return self.fitting(self.dataset.split(name))

    def fitting(self, split: Split) -> Split:
        """A split of any data, or an error where the model cannot read it."""
        require_fitting(split, self.model, str(self.path))
        return split

    def source(self, split: Split) -> Source:
        """The batches of a split, as the model reads them."""
        return source_of(split, self.tokenizer, self.model, self.device, self.recipe)

    def encode(self, split: Split) -> tuple[Encoded, Encoded]:
        """Every image and caption of a split, encoded once, in the order of their rows."""
        return encode_source(self.model, self.source(split))


def open_trained(
    folder: str | Path | Run,
    *,
    data: str | None = None,
    features: str | None = None,
    skip: str | None = None,
    device: str = "auto",
) -> Trained:
    """Open a run's best checkpoint, or an imported checkpoint, on its data or on `data`.

    `features` is a folder of `simgrad features` for that data, `skip` a list of `datasets --fix`.
    """
    elsewhere = {"data": data, "features": features, "skip": skip}
    path = folder.path if isinstance(folder, Run) else Path(folder).expanduser()
    place = pick_device(device)
    loaded, run = load_trained(path, place)
    if run is not None:
        recipe = run.recipe
        if data is not None:
            recipe = recipe.replace(**elsewhere, train_images=None, resplit=None)
        return Trained(path, loaded, place, recipe, run, elsewhere)
    if data is None:
        raise InputError(
            f"{path} is a checkpoint without data of its own: name a data set with --data."
        )
    loaded.require_tokenizer(path)
    recipe = Recipe(data=data, features=features, skip=skip)
    return Trained(path, loaded, place, recipe, None, elsewhere)


def load_trained(
    folder: str | Path, device: torch.device | str = "cpu"
) -> tuple[Loaded, Run | None]:
    """A run's best checkpoint and the run; or a checkpoint on its own."""
    path = Path(folder).expanduser()
    if (path / RECIPE).is_file():
        run = Run.open(path)
        if not (path / BEST / DESCRIPTION).is_file():
            raise InputError(f"{path}: no checkpoint yet; it is written at the first evaluation.")
        with building:  # its weights are drawn before they are read
            return run.load(str(device)), run
    if not (path / DESCRIPTION).is_file():
        raise InputError(f"{path}: {_what_else(path)}.")
    with building:
        return load(path, device=device), None


def _what_else(path: Path) -> str:
    """What a folder is that is neither a run nor a checkpoint, and what may be meant."""
    if not path.exists():
        return "there is no such folder"
    if (path / "model" / RECIPE).is_file() or (path / "model" / DESCRIPTION).is_file():
        told = f"give its model, {path / 'model'}, or a folder in {path / 'runs'}"
        return f"the output of `simgrad choose`, not one run; {told}"
    runs = sorted(run.parent for run in path.glob(f"runs/*/{RECIPE}"))
    if runs:
        return f"a study; give one of its runs, e.g. {runs[0]}"
    return "neither a run nor a checkpoint"


def load_pretrained(spec: str, device: torch.device) -> Loaded:
    """A pretrained model as it is, with its own tokenizer."""
    config = models.parse(spec)
    if not config.ready:
        raise InputError(
            f"model '{config}' has weights that nobody has trained yet: train it first, or name a "
            "pretrained one, such as clip(source=FOLDER_OR_HUB_NAME)."
        )
    with building:
        tokenizer = config.tokenizer_needs.tokenizer(list, None, 1)
        model = build(config, Inputs.of("pixels", (3,), tokenizer)).to(device).eval()
    return Loaded(model, tokenizer.cut(model.longest), {})


def open_pretrained(
    spec: str,
    *,
    data: str | None,
    features: str | None = None,
    skip: str | None = None,
    device: str = "auto",
) -> Trained:
    """A pretrained model as it is, on data that is named: zero-shot."""
    if data is None:
        raise InputError(f"--model {spec} has no data of its own: name a data set with --data.")
    place = pick_device(device)
    loaded = load_pretrained(spec, place)
    elsewhere = {"data": data, "features": features, "skip": skip}
    recipe = Recipe(model=spec, data=data, features=features, skip=skip)
    opened = Trained(Path("."), loaded, place, recipe, None, elsewhere, str(loaded.model.config))
    told = foreign_captions(loaded.model, opened.tokenizer, opened.dataset)
    if told is not None:
        say(told, stderr=True)
    return opened


def open_either(folder: "str | Path | Run | None", model: str | None, **options: Any) -> Trained:
    """What a command was given: a folder, or a pretrained model with --model."""
    if (folder is None) == (model is None):
        raise InputError("give a run's or checkpoint's folder, or a pretrained one with --model.")
    if model is not None:
        return open_pretrained(model, **options)
    assert folder is not None
    return open_trained(folder, **options)
