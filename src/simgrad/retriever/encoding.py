"""Evaluate a model: every image and caption is encoded once, then ranked in blocks.

Models that embed are ranked by a matrix product. Models that compare sets by attention are asked
for a block of similarities at a time, so that the limit is memory for a block, not for all.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from simgrad.data.base import Split
from simgrad.data.batches import Source, Transform, in_order
from simgrad.data.vocabulary import Tokenizer
from simgrad.evaluation.duplicates import first_identical
from simgrad.evaluation.evaluator import embedding_scores, evaluate_scores
from simgrad.evaluation.metrics import Metrics
from simgrad.evaluation.protocols import Protocol
from simgrad.evaluation.retrieval import HEADLINE_RECALLS
from simgrad.evaluation.scores import Scores, as_floats, check_block
from simgrad.models.base import Encoded, RetrievalModel


def evaluate_model(
    model: RetrievalModel,
    split: Split,
    tokenizer: Tokenizer,
    *,
    protocol: str | Protocol = "all",
    recalls: Iterable[int] = HEADLINE_RECALLS,
    batch: int = 128,
    device: str | torch.device | None = None,
    transform: Transform | None = None,
    workers: int = 0,
) -> Metrics:
    """Metrics of a model on a split."""
    images, captions = encode_split(
        model, split, tokenizer, batch=batch, device=device, transform=transform, workers=workers
    )
    return evaluate_encoded(
        model,
        images,
        captions,
        split.image_of_caption,
        protocol=protocol,
        recalls=recalls,
        image_ids=split.image_names,
        caption_ids=split.caption_ids,
    )


def evaluate_encoded(
    model: RetrievalModel,
    images: Encoded,
    captions: Encoded,
    image_of_caption: Any,
    *,
    protocol: str | Protocol = "all",
    recalls: Iterable[int] = HEADLINE_RECALLS,
    rows: int | None = None,
    image_ids: Sequence[str] | None = None,
    caption_ids: Sequence[str] | None = None,
) -> Metrics:
    """Metrics of what a model has encoded; `rows` images at a time."""
    return evaluate_scores(
        model_scores(model, images, captions),
        image_of_caption,
        protocol=protocol,
        recalls=recalls,
        rows=rows,
        image_ids=image_ids,
        caption_ids=caption_ids,
    )


def encode_split(
    model: RetrievalModel,
    split: Split,
    tokenizer: Tokenizer,
    *,
    batch: int = 128,
    device: str | torch.device | None = None,
    transform: Transform | None = None,
    workers: int = 0,
) -> tuple[Encoded, Encoded]:
    """Encode every image and every caption of a split once, in the order of their rows."""
    if device is None:
        device = next((p.device for p in model.parameters()), torch.device("cpu"))
    source = Source(split, tokenizer, transform, device=device, workers=workers)
    return encode_source(model, source, batch=batch)


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
