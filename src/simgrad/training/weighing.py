"""From a batch to its loss: how it is encoded, who is positive, what was drawn, which pairs matter.

A batch is encoded whole or in pieces. In pieces it is GradCache, the exact gradient of a large
batch in the memory of a small one: `integrations/gradcache.py` has its three steps.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from simgrad.data.batches import Batch
from simgrad.data.sampling import Drawn
from simgrad.integrations.gradcache import Remembered
from simgrad.models.base import Encoded, RetrievalModel, vectors_of
from simgrad.objectives import Objective, Offline, Positives
from simgrad.objectives.across_processes import Distributed
from simgrad.objectives.engine.ring import Processes
from simgrad.objectives.engine.tensors import attach
from simgrad.objectives.gathered import Share, weigh_gathered
from simgrad.runs.found_pairs import Known
from simgrad.runs.offline_draws import offline_similarities
from simgrad.training import distributed


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


def weigh(
    model: RetrievalModel,
    objective: Objective,
    images: Encoded,
    captions: Encoded,
    batch: Batch,
    *,
    pairs: bool,
    found: Known | None = None,
    autocast: Callable[[], AbstractContextManager[Any]],
) -> Tensor:
    """The objective's loss of an encoded batch, and what the model adds to it.

    `pairs`: an image's other captions are negatives. `found` are pairs of the batch that nobody
    had marked.
    """
    offline: Offline | None = None
    drawn, batch = batch.drawn, batch.proper()
    if drawn is not None:
        if objective.needs_offline:
            owner = batch.image_of_caption
            offline = offline_similarities(model, images, captions, owner, drawn.places)
        images = images.select(slice(0, drawn.own_images))
        captions = captions.select(slice(0, drawn.own_captions))
    with autocast():
        auxiliary = _auxiliary(model, images, captions, batch)
    positives: Tensor | Positives | None = batch.image_of_caption
    if pairs:
        images, positives = images.select(batch.image_of_caption), None
    elif batch.present is not None:
        positives = Positives.of_captions(batch.image_of_caption, len(images), batch.present)
    ignore: Tensor | None = None
    if found is not None:  # in the batch of all processes
        count = len(images)
        every = distributed.every(batch.image_of_caption + distributed.before(count))
        positives, ignore = found.applied(every, int(distributed.total(torch.tensor(count))))
    elif distributed.size() > 1 and not model.embeds and isinstance(positives, Tensor):
        positives = distributed.every(positives + distributed.before(len(images)))
    value: Tensor
    if not model.embeds:
        value = _of_sets(model, objective, images, captions, positives, offline, ignore)
    else:
        share = Share(vectors_of(images), vectors_of(captions), positives, offline, ignore)
        if distributed.size() == 1:
            value = objective(*share[:4], ignore=ignore)
        elif found is not None:  # pairs may lie on different processes
            value = weigh_gathered(objective, share, Processes(), 1.0, joint=True)
        else:
            value = Distributed(objective, gradients="sum")(*share[:4], ignore=ignore)
    return value if auxiliary is None else value + auxiliary


def _auxiliary(
    model: RetrievalModel, images: Encoded, captions: Encoded, batch: Batch
) -> Tensor | None:
    """The model's own loss; of several processes each has a part of its gradient."""
    sees, world = model.auxiliary_sees, distributed.size()
    if sees == "nothing":
        return None
    if world == 1:
        return model.auxiliary_loss(images, captions, batch)
    count = len(batch.tokens)
    if sees == "pairs":
        share = count / max(1.0, float(distributed.total(torch.tensor(float(count)))))
        loss = model.auxiliary_loss(images, captions, batch) if count else None
        own = batch.lengths.new_zeros((), dtype=torch.float32) if loss is None else loss * share
    else:
        every = distributed.gather(images), distributed.gather(captions)
        loss = model.auxiliary_loss(*every, _gathered(batch, len(images)))
        if loss is None:
            return None
        own = loss / world
    return own + (distributed.total(own) - own).detach()  # all see the sum


def _gathered(batch: Batch, images: int) -> Batch:
    """The captions of all processes."""
    more = distributed.largest(batch.tokens.shape[1]) - batch.tokens.shape[1]
    return replace(
        batch,
        tokens=distributed.every(torch.nn.functional.pad(batch.tokens, (0, more))),
        lengths=distributed.every(batch.lengths),
        image_of_caption=distributed.every(batch.image_of_caption + distributed.before(images)),
    )


def _of_sets(
    model: RetrievalModel,
    objective: Objective,
    images: Encoded,
    captions: Encoded,
    positives: Tensor | Positives | None,
    offline: Offline | None,
    ignore: Tensor | None = None,
) -> Tensor:
    """The loss of similarities that the model makes: each process compares its own images with
    all captions, and weighs what all have found. Positives and pairs to ignore are those of all."""
    rows = slice(0, len(images))
    if distributed.size() > 1:
        first = distributed.before(len(images))
        rows = slice(first, first + len(images))
        captions = distributed.gather(captions)
        offline = None if offline is None else Offline(*map(distributed.every, offline))
    # A mask may hold more positives than a sparse objective is thought to have.
    plain = ignore is None and (not isinstance(positives, Tensor) or positives.dim() == 1)
    if plain and weighs_few(objective, len(images), len(captions)):
        return loss_of_few(objective, model, images, captions, positives, offline, rows)
    S = distributed.every(model.similarities(images, captions))
    learned = [p for p in objective.parameters() if p.requires_grad]
    if distributed.size() == 1 or not learned:
        return objective.on(S, positives, offline, ignore=ignore)
    # Every process finds the whole gradient of what the objective learns, and the optimiser adds
    # them up: so each takes its part of it.
    given = [S, *(offline or ())]
    apart = [x.detach().requires_grad_() for x in given]
    drawn = None if offline is None else Offline(*apart[1:])
    value = objective.on(apart[0], positives, drawn, ignore=ignore)
    found = torch.autograd.grad(value, [*apart, *learned], allow_unused=True)
    parts = (g if g is None else g / distributed.size() for g in found[len(given) :])
    return attach(value.detach(), [*given, *learned], [*found[: len(given)], *parts])


# Where a similarity is an attention of its own (SCAN, BFAN), its gradient costs more than itself.
# An objective that weighs only a few pairs of a batch needs the gradient of only those. So
# 1. all similarities are computed without a gradient, in a fixed amount of memory;
# 2. the objective weighs them;
# 3. the few that got a weight are computed once more, and the weight is sent back through those.
# The loss and its gradient are the same; everything has a fixed shape, for CUDA graphs.


def weighs_few(objective: Objective, images: int, captions: int) -> bool:
    """Whether most pairs of a batch, each caption of one image, are sure to get no weight.

    A scale or a bias that is learned would want its own gradient from all of them.
    """
    return (
        objective.sparse
        and objective.affine() == (None, None)
        and 2 * most(images, captions) < images * captions
    )


def most(images: int, captions: int) -> int:
    """Pairs that a sparse objective can give weight to: every caption with its image, with its
    hardest image, and every image with its hardest caption."""
    return 2 * captions + images


def loss_of_few(
    objective: Objective,
    model: RetrievalModel,
    images: Encoded,
    captions: Encoded,
    positives: Tensor | Positives | None,
    offline: Offline | None,
    rows: slice = slice(None),
) -> Tensor:
    """`objective.on(model.similarities(images, captions), positives, offline)`; the images are
    those of some rows, where other processes have the others."""
    with torch.no_grad():
        S = distributed.every(model.similarities(images, captions))
        result = objective.weigh(S, positives, offline)
        weights = (result.i2t + result.t2i)[rows]  # (images, captions)
        pairs = weights.abs().flatten().topk(min(most(*weights.shape), weights.numel())).indices
        image, caption = pairs // weights.shape[1], pairs % weights.shape[1]
        few = weights[image, caption]
    again = model.pairwise(images.select(image), captions.select(caption))
    return attach(result.value, [again, *(offline or ())], [few, *(result.offline or ())])


# VSE++'s and VSRN's loops bring an image along with each of its captions; a batch of ours holds it
# once. Where nothing mixes images, that is the same and cheaper. A batch norm mixes them: its
# statistics are those of whatever it is given, and captured batches are filled up with repeated
# images. So for a model that mixes images, each caption brings its image: no more and no less.


def each_with_its_image(batch: Batch) -> Batch:
    """The image of every caption of the batch; behind them those that were drawn for each."""
    drawn = batch.drawn
    if drawn is None:
        own = batch.image_of_caption
        return _taken(batch, own, len(own), None)
    own, count = batch.image_of_caption[: drawn.own_captions], drawn.own_captions
    caption, image, partner_image, partner_caption = drawn.places
    rows, mined = [own, image], torch.arange(count, 2 * count, device=own.device)
    partner = mined
    if drawn.images_each > 1:
        rows, partner = [*rows, partner_image], mined + count
    places = torch.stack([caption, mined, partner, partner_caption])
    drawn = drawn._replace(own_images=count, places=places)
    return _taken(batch, torch.cat(rows), count, drawn)


def _taken(batch: Batch, rows: Tensor, own: int, drawn: Drawn | None) -> Batch:
    place = torch.arange(own, device=rows.device)
    return replace(batch, images=batch.images[rows], image_of_caption=place, drawn=drawn)
