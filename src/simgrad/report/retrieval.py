"""What runs retrieve for a few queries, and the album of pictures that a report carries.

Data that hold features alone borrow pictures of another data set, which has the same captions: an
image is known again by letters and digits of its captions, in any case.
"""

import io
import re
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import torch

from simgrad.core.devices import pick_device
from simgrad.core.errors import InputError
from simgrad.data.base import Dataset, Rows, Split
from simgrad.data.subset import take
from simgrad.models.base import Encoded, RetrievalModel
from simgrad.pages.blocks import Album
from simgrad.retriever.encoding import encode_source, source_of
from simgrad.runs.run import Run

if TYPE_CHECKING:
    from PIL.Image import Image

_Place = tuple[str, int]  # split, row
_NOT_A_LETTER = re.compile(r"[\W_]+")


class PictureLender:
    """The pictures of a data set, found by captions.

    A caption that stands on two images speaks for neither; of several images that an image's
    captions name, the one that most of them name is taken.
    """

    def __init__(self, dataset: Dataset) -> None:
        self._pictures = {
            name: split.pictures
            for name, split in dataset.splits.items()
            if split.pictures is not None
        }
        if not self._pictures:
            raise InputError(f"{dataset.name}: it has no pictures to lend.")
        self._places: dict[str, _Place | None] = {}
        for name in self._pictures:
            split = dataset.splits[name]
            for caption, image in zip(split.captions, split.image_of_caption.tolist(), strict=True):
                key, place = _key(caption), (name, image)
                self._places[key] = place if self._places.get(key, place) == place else None

    def picture(self, split: Split, row: int) -> "Image":
        """The picture of an image of another data set; an error where nobody has its captions."""
        keys = (_key(split.captions[int(caption)]) for caption in split.captions_of(row))
        votes = Counter(place for key in keys if (place := self._places.get(key)) is not None)
        if not votes:
            raise InputError(f"image {split.image_names[row]}: no picture has its captions.")
        name, found = votes.most_common(1)[0][0]
        return self._pictures[name].picture(found)


def _key(caption: str) -> str:
    return _NOT_A_LETTER.sub("", caption.lower())


TOP = 5
# Candidates: enough for five good or telling ones; pictures through a large model take long.
_POOL, _POOL_PIXELS_ON_CPU = 1000, 150
_SIDE = 200  # pixels of a picture in the report
_ALBUM_BYTES = 4_500_000


@dataclass
class ShownPictures:
    """The pictures of a report, each once; `lender` has those of data without pictures."""

    lender: PictureLender | None = None
    album: Album = field(default_factory=dict)
    size: int = 0
    left_out: int = 0
    _keys: dict[tuple[str, str, int], str | None] = field(default_factory=dict)

    def add(self, split: Split, row: int) -> str | None:
        """Where the picture is in the page; None where there is none, or no room for more."""
        place = (split.dataset, split.name, row)
        if place not in self._keys:
            self._keys[place] = self._read(split, row)
        return self._keys[place]

    def has(self, split: Split) -> bool:
        """Whether a split has pictures, of its own or lent ones."""
        return split.pictures is not None or self.lender is not None

    def _read(self, split: Split, row: int) -> str | None:
        if not self.has(split):
            return None
        if self.size >= _ALBUM_BYTES:
            self.left_out += 1
            return None
        try:
            if split.pictures is not None:
                picture = split.pictures.picture(row)
            else:
                assert self.lender is not None
                picture = self.lender.picture(split, row)
        except InputError:  # its name is shown instead
            self.left_out += 1
            return None
        picture.thumbnail((_SIDE, _SIDE))
        file = io.BytesIO()
        picture.save(file, "WEBP", quality=76, method=4)
        data = file.getvalue()
        self.size += len(data)
        name = f"p{len(self.album)}"
        self.album[name] = (data, *picture.size)
        return f"#{name}"


@dataclass(frozen=True)
class RetrievedRows:
    """The first few candidates of some queries, as rows of the whole split."""

    images: Rows  # (caption queries, TOP)
    captions: Rows  # (image queries, TOP)
    image_rank: Rows  # (caption queries,) of the caption's own image, among the pool
    caption_rank: Rows  # (image queries,) of the best own caption, among the pool
    pool: int  # images looked through


@torch.no_grad()
def retrieve(
    run: Run, split: Split, captions: Rows, images: Rows, device: str = "auto"
) -> RetrievedRows:
    """Look up caption rows among images, and image rows among captions."""
    place = pick_device(device)
    loaded = run.load(str(place))
    model: RetrievalModel = loaded.model.eval()
    slow = model.inputs.images == "pixels" and place.type == "cpu"
    size = _POOL_PIXELS_ON_CPU if slow else _POOL
    kept = np.zeros(split.num_images, dtype=bool)
    kept[:size] = True
    kept[images] = True
    kept[split.image_of_caption[captions]] = True
    pool = take(split, kept, np.ones(split.num_captions, dtype=bool))
    image_rows = np.flatnonzero(kept)
    caption_rows = np.flatnonzero(kept[split.image_of_caption])
    source = source_of(pool, loaded.require_tokenizer(run.path), model, place, run.recipe)
    encoded = encode_source(model, source)
    ask_captions = np.searchsorted(caption_rows, captions)
    ask_images = np.searchsorted(image_rows, images)
    to_images = _scores(model, encoded[0], encoded[1].select(torch.from_numpy(ask_captions))).T
    to_captions = _scores(model, encoded[0].select(torch.from_numpy(ask_images)), encoded[1])
    own_image = pool.image_of_caption[ask_captions][:, None] == np.arange(pool.num_images)
    own_caption = ask_images[:, None] == pool.image_of_caption
    return RetrievedRows(
        image_rows[_first(to_images)],
        caption_rows[_first(to_captions)],
        _rank(to_images, own_image),
        _rank(to_captions, own_caption),
        pool.num_images,
    )


def _scores(model: RetrievalModel, images: Encoded, captions: Encoded) -> np.ndarray:  # type: ignore[type-arg]  # floats
    """(images, captions), some images at a time."""
    if not len(images):  # few images: all were taken to ask with their captions
        return np.zeros((0, len(captions)), dtype=np.float32)
    blocks = [
        model.similarities(images.select(slice(i, i + 256)), captions).float().cpu()
        for i in range(0, len(images), 256)
    ]
    return np.asarray(torch.cat(blocks).numpy())


def _first(scores: np.ndarray) -> Rows:  # type: ignore[type-arg]  # floats
    return np.asarray(np.argsort(-scores, axis=1, kind="stable")[:, :TOP], dtype=np.int64)


def _rank(scores: np.ndarray, own: np.ndarray) -> Rows:  # type: ignore[type-arg]  # floats, booleans
    """The best own candidate's rank; rivals with the same score stand before it."""
    best = np.where(own, scores, -np.inf).max(axis=1, keepdims=True)
    return np.asarray(((scores >= best) & ~own).sum(axis=1) + 1, dtype=np.int64)
