"""What a batch does to the weights: encode, weigh, backward, update.

A batch is encoded whole or in pieces. In pieces it is GradCache, the exact gradient of a large
batch in the memory of a small one: `integrations/gradcache.py` has its three steps.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor, nn

from simgrad.data.batches import Batch
from simgrad.integrations.gradcache import Remembered
from simgrad.models.base import Encoded, RetrievalModel
from simgrad.objectives import Objective
from simgrad.objectives import objective as read
from simgrad.runs.found_pairs import FoundPairs
from simgrad.runs.recipe import Recipe
from simgrad.training.optimizing import Optimizer, start_scales
from simgrad.training.shares import every_share
from simgrad.training.weighing import each_with_its_image, weigh


class Step:
    """Takes batches, changes weights."""

    def __init__(
        self,
        model: RetrievalModel,
        recipe: Recipe,
        device: torch.device,
        found: FoundPairs | None = None,
    ) -> None:
        self.model, self.recipe, self.device, self.found = model, recipe, device, found
        self.pairs = recipe.other_captions_are_negatives
        specs = [recipe.objective] + ([recipe.first_objective] if recipe.first_objective else [])
        self.objectives: dict[str, Objective] = {s: read(s).to(device) for s in specs}
        for each in self.objectives.values():
            each.replays = False  # steps are captured as a whole, where it helps
            if recipe.reduction != "published":
                each.mean = recipe.reduction == "mean"
        self.scales = start_scales(model, self.objectives.values())
        self.learned = nn.ModuleList(self.objectives.values())  # temperatures and the like
        self.optimizer = Optimizer(model, self.learned, recipe, device)
        self.encoder = Encoder(model, recipe.micro_batch, self.optimizer.autocast)

    def update(self, batch: Batch, objective: Objective) -> Tensor:
        """One update at the rates set before; the loss. Nothing here waits for the device."""
        self.optimizer.clear()
        loss = self.gradient(batch, objective)
        self.optimizer.update()
        return loss

    def gradient(self, batch: Batch, objective: Objective) -> Tensor:
        """Fill the parameters' gradients; the loss."""
        if self.pairs and self.model.mixes_images():
            batch = each_with_its_image(batch)
        loss = self.loss(batch, objective)
        # Backward: W to the encoders' weights.
        self.encoder.backward(self.optimizer.scaled(loss))
        return loss.detach()

    def loss(self, batch: Batch, objective: Objective) -> Tensor:
        """The loss of a batch, ready to be sent back."""
        found = None
        if self.found is not None:  # of all processes' batch
            index = every_share(batch.index)
            found = self.found.within(index, self.device)
        # Encode: n images and m captions, each to a vector (n, d) or to a set of them (n, k, d).
        images, captions = self.encoder.encode(batch)
        # Weigh: similarities S (n, m) to weights W = dL/dS (n, m), and the loss.
        with torch.autocast(self.device.type, enabled=False):
            return weigh(
                self.model,
                objective,
                images,
                captions,
                batch,
                pairs=self.pairs,
                found=found,
                autocast=self.optimizer.autocast,
            )


class Encoder:
    """Encodes batches: `encode` one, take its loss, then `backward` from that."""

    def __init__(
        self,
        model: RetrievalModel,
        micro_batch: int | None,
        autocast: Callable[[], AbstractContextManager[Any]],
    ) -> None:
        self.model, self.micro_batch, self.autocast = model, micro_batch, autocast
        # Of the batch in work, where it is in pieces: these, and what was encoded as the start of a
        # new graph.
        self._sides: list[tuple[Remembered[Encoded], Encoded]] = []

    def encode(self, batch: Batch) -> tuple[Encoded, Encoded]:
        """All images and all captions of the batch."""
        images, captions = len(batch.images), len(batch.tokens)

        def images_of(rows: slice) -> Encoded:
            with self.autocast():
                return self.model.encode_images(batch.images[rows])

        def captions_of(rows: slice) -> Encoded:
            with self.autocast():
                return self.model.encode_captions(batch.tokens[rows], batch.lengths[rows])

        if self.micro_batch is None or self.micro_batch >= max(images, captions):
            return images_of(slice(0, images)), captions_of(slice(0, captions))
        sides = [
            Remembered(encode, count, self.micro_batch, batch.images.device)
            for encode, count in ((images_of, images), (captions_of, captions))
        ]
        self._sides = [(side, _leaf(Encoded.cat(side.parts))) for side in sides]
        return self._sides[0][1], self._sides[1][1]

    def backward(self, loss: Tensor) -> None:
        """Add the gradient of the loss to the parameters."""
        loss.backward()  # type: ignore[no-untyped-call]
        sides, self._sides = self._sides, []
        for side, leaf in sides:
            for number, piece in enumerate(side.pieces):
                _send_back(side.again(number), leaf, piece)


def _leaf(encoded: Encoded) -> Encoded:
    parts = (encoded.vectors, encoded.tokens)
    vectors, tokens = (None if p is None else p.detach().requires_grad_() for p in parts)
    return Encoded(vectors, tokens, encoded.mask)


def _send_back(again: Encoded, leaf: Encoded, rows: slice) -> None:
    outputs, gradients = [], []
    for now, cached in ((again.vectors, leaf.vectors), (again.tokens, leaf.tokens)):
        if now is not None and cached is not None and cached.grad is not None:
            gradient = cached.grad[rows]
            # Pieces of sets may have been padded to a common length.
            outputs.append(now)
            gradients.append(gradient if now.dim() == 2 else gradient[:, : now.shape[1]])
    if outputs:
        torch.autograd.backward(outputs, gradients)
