"""A split as a model reads it, and every image and caption of it encoded once.

Batches are kept on the device where they fit. Models that embed are ranked by a matrix product.
Models that compare sets by attention are asked for a block of similarities at a time, so that the
limit is memory for a block, not for all.
"""

import contextlib
import dataclasses
import math
import threading
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from simgrad.core.errors import DiskError
from simgrad.data.base import Split
from simgrad.data.batches import IndexBatch, Source, Tokens, in_order
from simgrad.data.decoded import DecodedPictures
from simgrad.data.transforms import named
from simgrad.data.vocabulary import Tokenizer
from simgrad.evaluation.duplicates import first_identical
from simgrad.evaluation.evaluator import embedding_scores, evaluate_scores
from simgrad.evaluation.metrics import Metrics
from simgrad.evaluation.scores import Scores, as_floats, check_block
from simgrad.models.base import Encoded, RetrievalModel
from simgrad.retriever.fitting import require_readable
from simgrad.runs.features import cached_features
from simgrad.runs.recipe import Recipe

# Features up to this size are kept on the device; 16 GiB leaves room on any current data GPU.
_RESIDENT = {"cpu": 2 * 2**30, "cuda": 16 * 2**30}
_CAPTIONS = 256  # that a text network reads at a time
# Runs side by side in one process take turns to read data and to draw initial weights.
building = threading.Lock()


def source_of(
    split: Split,
    tokenizer: Tokenizer,
    model: RetrievalModel,
    device: torch.device,
    recipe: Recipe,
    training: bool = False,
    tokens: Tokens | None = None,
) -> Source:
    """The batches of a split, resident on the device where they fit."""
    room = _RESIDENT.get(device.type, 0)
    vectors = caption_vectors(split, tokenizer, model, device)
    if model.inputs.images == "pixels":
        if training and recipe.augment is not None:
            transform = named(recipe.augment, train=True, size=model.inputs.image_shape[-1])
            return Source(
                split,
                tokenizer,
                transform,
                device,
                workers=recipe.workers,
                vectors=vectors,
                tokens=tokens,
            )
        split, size = _seen(split, model, device, recipe.workers, room)
        resident = size <= room
    else:
        require_readable(split, model)
        assert split.features is not None
        resident = 4 * split.num_images * math.prod(split.features.shape) <= room
    return Source(
        split,
        tokenizer,
        device=device,
        resident=resident,
        workers=recipe.workers,
        vectors=vectors,
        tokens=tokens,
    )


@torch.no_grad()
def caption_vectors(
    split: Split,
    tokenizer: Tokenizer,
    model: RetrievalModel,
    device: torch.device,
    most: int | None = None,
) -> Tensor | None:
    """Of every caption, or of the first `most`: what a text network that never changes makes of it,
    or the vector that the data bring; None where captions are read as words."""
    if model.reads_vectors:
        require_readable(split, model)
        assert split.caption_vectors is not None
        count = split.num_captions if most is None else min(most, split.num_captions)
        return torch.from_numpy(split.caption_vectors.rows(np.arange(count)))
    network = model.fixed_captions()
    if network is None:
        return None
    was, place = model.training, next(model.parameters()).device
    model.to(device).eval()
    lists = [torch.tensor(tokenizer.encode(caption)) for caption in split.captions[:most]]
    made: list[Tensor] = []
    for start in range(0, len(lists), _CAPTIONS):
        some = lists[start : start + _CAPTIONS]
        lengths = torch.tensor([len(tokens) for tokens in some], device=device)
        tokens = torch.nn.utils.rnn.pad_sequence(some, batch_first=True).to(device)
        made.append(network(tokens, lengths).float().cpu())
    model.to(place).train(was)
    return torch.cat(made)


def _seen(
    split: Split, model: RetrievalModel, device: torch.device, workers: int, room: int
) -> tuple[Split, int]:
    """Pictures that are not augmented, as features or decoded pixels; and the size of these."""
    fixed = model.fixed_network()
    if fixed is not None:
        network, grid = fixed
        each = network.dimension if grid is None else grid * grid * network.grid_dimension
        if 4 * each * split.num_images <= room:
            # No place for the cache: the network sees the pictures again each time.
            with contextlib.suppress(DiskError):
                made = cached_features(split, network, grid, device=device)
                return dataclasses.replace(split, features=made), 4 * each * split.num_images
    pixels = model.inputs.image_shape[-1]
    size = 3 * pixels * pixels * split.num_images
    pictures = DecodedPictures.of(split, model.transform, pixels, workers if size <= room else 1)
    return dataclasses.replace(split, features=pictures), size


Report = Callable[[int, int], None]  # how many are done, of how many


@torch.no_grad()
def encode_source(
    model: RetrievalModel, source: Source, *, batch: int = 128
) -> tuple[Encoded, Encoded]:
    """Encode every image and caption of a source once; `batch` images at a time."""
    indices = in_order(source.split, batch)
    was_training = model.training
    model.eval()
    try:
        images, captions = [], []
        for piece in source.batches(indices):
            images.append(model.encode_images(piece.images))
            if len(piece.tokens):
                captions.append(model.encode_captions(piece.tokens, piece.lengths))
    finally:
        model.train(was_training)
    encoded = Encoded.cat(captions)
    # Batches hold whole images with their captions: put the captions back in their own order.
    order = np.argsort(np.concatenate([index.captions for index in indices]))
    if not np.array_equal(order, np.arange(len(order))):
        encoded = encoded.select(torch.from_numpy(order).to(source.device))
    return Encoded.cat(images), encoded


@torch.no_grad()
def encode_one_side(
    model: RetrievalModel, source: Source, kind: str, report: Report, *, batch: int = 128
) -> Encoded:
    """Encode the images of a source, or its captions, and not the other side."""
    images = kind == "images"
    count = source.split.num_images if images else source.split.num_captions
    none = np.zeros(0, dtype=np.int64)
    rows = [np.arange(i, min(i + batch, count)) for i in range(0, count, batch)]
    indices = [IndexBatch(r, none, none) if images else IndexBatch(none, r, none) for r in rows]
    made, was_training = [], model.training
    model.eval()
    try:
        for index, piece in zip(indices, source.batches(indices), strict=True):
            made.append(
                model.encode_images(piece.images)
                if images
                else model.encode_captions(piece.tokens, piece.lengths)
            )
            report(int((index.images if images else index.captions)[-1]) + 1, count)
    finally:
        model.train(was_training)
    return Encoded.cat(made)


@torch.no_grad()
def validate(model: RetrievalModel, source: Source) -> tuple[Metrics, Encoded, Encoded]:
    """Metrics on a validation split, and what the model made of its images and captions.

    Rows are called by their numbers, as in all ranks of trials that were ever kept.
    """
    images, captions = encode_source(model, source, batch=256)
    scores = model_scores(model, images, captions)
    return evaluate_scores(scores, source.split.image_of_caption), images, captions


def model_scores(model: RetrievalModel, images: Encoded, captions: Encoded) -> Scores:
    """The similarities of a model, by product or by blocks."""
    if model.embeds and images.vectors is not None and captions.vectors is not None:
        return embedding_scores(images.vectors, captions.vectors, quiet=True)
    return ModelScores(model, images, captions)


class ModelScores(Scores):
    """Similarities that a model computes from encoded images and captions."""

    def __init__(
        self, model: RetrievalModel, images: Encoded, captions: Encoded, flipped: bool = False
    ) -> None:
        self.model, self.images, self.captions = model, images, captions
        self.flipped = flipped  # rows are captions
        rows, columns = (captions, images) if flipped else (images, captions)
        self.num_images, self.num_captions = len(rows), len(columns)
        self.same_images, self.same_captions = _identical(rows), _identical(columns)

    @torch.no_grad()
    def compute(self, start: int, stop: int) -> Tensor:
        block = self._similarities(slice(start, stop), slice(None))
        check_block(block, start)
        return block

    def _similarities(self, rows: slice | Tensor, columns: slice | Tensor) -> Tensor:
        if self.flipped:
            rows, columns = columns, rows
        found = self.model.similarities(self.images.select(rows), self.captions.select(columns))
        return as_floats(found.T if self.flipped else found, "similarities")

    def select(self, images: Tensor, captions: Tensor) -> "ModelScores":
        first, second = (captions, images) if self.flipped else (images, captions)
        return ModelScores(
            self.model, self.images.select(first), self.captions.select(second), self.flipped
        )

    def transposed(self) -> "ModelScores":
        return ModelScores(self.model, self.images, self.captions, not self.flipped)

    @torch.no_grad()
    def guess_own(self, image: Tensor, caption: Tensor) -> tuple[Tensor, Tensor | None] | None:
        """Small blocks of images and their captions; rounding depends on a block's shape."""
        order = torch.argsort(image, stable=True)
        own: Tensor | None = None
        for pairs in torch.split(order, 64):
            rows, place = np.unique(image[pairs].numpy(), return_inverse=True)
            block = self._similarities(torch.from_numpy(rows), caption[pairs])
            own = block.new_empty(len(order)) if own is None else own
            at = torch.from_numpy(place).to(block.device)
            own[pairs.to(block.device)] = block[at, torch.arange(len(pairs), device=at.device)]
        assert own is not None
        return own, 1e-5 * (1 + own.abs())


def _identical(encoded: Encoded) -> Tensor | None:
    parts = [p for p in (encoded.vectors, encoded.tokens, encoded.mask) if p is not None]
    return first_identical(*parts)
