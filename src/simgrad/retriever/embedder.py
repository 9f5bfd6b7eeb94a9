"""A trained model as a searcher needs it: sentences in, pictures in, encoded items out."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from simgrad.core.cache import cache_folder
from simgrad.core.devices import pick_device
from simgrad.core.errors import InputError
from simgrad.core.files import sha256
from simgrad.data.base import Dataset, Split
from simgrad.data.batches import Transform
from simgrad.data.feature_folder import read_header
from simgrad.data.transforms import named
from simgrad.evaluation.scores import Scores
from simgrad.models import Encoded, Loaded, RetrievalModel, load, weights_hash
from simgrad.models.checkpoint import DESCRIPTION
from simgrad.models.networks.backbones import backbone
from simgrad.retriever.encoding import encode_source, model_scores
from simgrad.retriever.prepare import source_of
from simgrad.retriever.trained import load_pretrained
from simgrad.runs.features import Job, make_job
from simgrad.runs.recipe import Recipe
from simgrad.runs.run import BEST, RECIPE, Run

if TYPE_CHECKING:
    from PIL.Image import Image


LONGEST = 1000  # characters of a sentence
_TOKENS = 200


@dataclass(frozen=True)
class PictureReader:
    """How pictures become what the model reads."""

    transform: Transform
    job: "Job | None" = None  # the network behind precomputed features

    def __call__(self, pictures: Sequence["Image"], device: torch.device) -> Tensor:
        pixels = torch.stack([self.transform(picture, None) for picture in pictures]).to(device)
        if self.job is None:
            return pixels
        if self.job.grid is None:
            return self.job.backbone.pooled(pixels)
        return self.job.backbone.grid(pixels, self.job.grid)


class Embedder:
    """A model, its tokenizer, and either a reader of pictures or the reason why there is none.

    `recipe` says which data belongs to it; None: a checkpoint that came without data.
    """

    def __init__(
        self,
        loaded: Loaded,
        recipe: Recipe | None,
        path: Path,
        device: torch.device,
        open_data: Callable[[], Dataset] | None = None,
    ) -> None:
        self.model: RetrievalModel = loaded.model.to(device).eval()
        self.tokenizer = loaded.require_tokenizer(path)
        self.recipe, self.path, self.device = recipe, path, device
        self._open_data = open_data
        # Equal keys, equal embeddings.
        self.key = sha256(
            weights_hash(self.model), str(self.model.config), dumps(self.tokenizer.to_json())
        )[:24]
        self._reader: PictureReader | InputError | None = None

    @staticmethod
    def open(
        path: str | Path,
        device: str = "cpu",
        *,
        data: str | None = None,
        features: str | None = None,
    ) -> "Embedder":
        """A run, or a bare checkpoint folder such as `simgrad import` writes.

        `data` and `features`: what it is asked about, instead of what a run was trained on.
        """
        place, path = pick_device(device), Path(path)
        recipe = None if data is None else Recipe(data=data, features=features)
        if (path / DESCRIPTION).is_file() and not (path / RECIPE).is_file():
            return Embedder(load(path), recipe, path, place)
        run = Run.open(path)
        if not (path / BEST / DESCRIPTION).is_file():
            raise InputError(f"{path}: no checkpoint yet; it is written at the first evaluation.")
        opened = partial(run.dataset, data, features)
        return Embedder(run.load(), recipe or run.recipe, path, place, opened)

    @staticmethod
    def pretrained(
        spec: str,
        device: str = "cpu",
        *,
        data: str | None = None,
        features: str | None = None,
    ) -> "Embedder":
        """A pretrained model as it is; what it makes is kept in the cache folder."""
        place = pick_device(device)
        recipe = None if data is None else Recipe(data=data, features=features)
        return Embedder(load_pretrained(spec, place), recipe, cache_folder() / "pretrained", place)

    def dataset(self) -> Dataset:
        """The data that belongs to it; a run refuses its own where they have changed."""
        if self._open_data is not None:
            return self._open_data()
        if self.recipe is None:
            raise InputError(
                f"{self.path} is a checkpoint without data: say what to search with --data or "
                "--folder."
            )
        return self.recipe.dataset()

    def encode_split(self, split: Split) -> tuple[Encoded, Encoded]:
        """Every image and every caption of a split."""
        assert self.recipe is not None
        source = source_of(split, self.tokenizer, self.model, self.device, self.recipe)
        images, captions = encode_source(self.model, source)
        return images.to("cpu"), captions.to("cpu")

    def scores(self, images: Encoded, captions: Encoded) -> Scores:
        """Similarities of what was encoded."""
        return model_scores(self.model, images.to(self.device), captions.to(self.device))

    @torch.no_grad()
    def sentence(self, text: str) -> Encoded:
        """One sentence, encoded."""
        if not text.strip():
            raise InputError("the sentence is empty.")
        if len(text) > LONGEST:
            raise InputError(f"the sentence has {len(text):,} characters; {LONGEST:,} at most.")
        ids = self.tokenizer.encode(text)
        ids = ids if len(ids) <= _TOKENS else [*ids[: _TOKENS - 1], ids[-1]]
        tokens = torch.tensor([ids]).to(self.device)
        return self.model.encode_captions(tokens, torch.tensor([len(ids)]).to(self.device))

    def unknown_words(self, text: str) -> list[str]:
        """Words of a sentence that the model has never seen."""
        words: list[str] = self.tokenizer.unknown_words(text)
        return words

    @torch.no_grad()
    def pictures(self, pictures: Sequence["Image"]) -> Encoded:
        """Pictures from anywhere, encoded; an error says why the model cannot read them."""
        return self.model.encode_images(self.reader()(pictures, self.device))

    @torch.no_grad()
    def features(self, rows: Any) -> Encoded:
        """Precomputed features of a split's images, encoded."""
        return self.model.encode_images(torch.from_numpy(rows).to(self.device))

    def reader(self) -> PictureReader:
        """How new pictures are read, found out once."""
        if self._reader is None:
            try:
                self._reader = self._make_reader()
            except InputError as error:
                self._reader = error
        if isinstance(self._reader, InputError):
            raise self._reader
        return self._reader

    def _make_reader(self) -> PictureReader:
        if self.model.inputs.images == "pixels":
            size = self.model.inputs.image_shape[-1]
            return PictureReader(named(self.model.transform, train=False, size=size))
        if self.recipe is None or self.recipe.features is None:
            raise InputError(
                "this model reads features that came with its data, and nothing here says how to "
                "make them from a picture: it can search with the data's own pictures, not with "
                "another one. Compute features with `simgrad features`, train on those, and it can."
            )
        return _backbone_reader(Path(self.recipe.features).expanduser(), self.device)


def _backbone_reader(folder: Path, device: torch.device) -> PictureReader:
    """The network that made a folder of features, checked against the weights it names."""

    header = read_header(folder)
    name, grid = header.get("backbone"), header.get("grid")
    if not isinstance(name, str) or not name:
        raise InputError(
            f"{folder}/features.json does not name the network behind the features, so a new "
            "picture cannot be read the same way; `simgrad features` records it."
        )
    job = make_job(backbone(name, header.get("weights")), grid=grid, device=device)
    told = header.get("weights_sha256")
    if told is not None and told != job.weights_sha256:
        raise InputError(
            f"{folder}/features.json: {name} has other weights here than those that made the "
            "features; compute them again with `simgrad features`."
        )
    return PictureReader(named(job.backbone.transform, train=False, size=job.backbone.size), job)
