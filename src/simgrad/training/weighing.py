"""From what was encoded to the loss: who is positive, what was drawn, and which pairs matter."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from simgrad.data.batches import Batch
from simgrad.mining.drawing import Drawn
from simgrad.models.base import Encoded, RetrievalModel, vectors_of
from simgrad.objectives import Objective, Offline, Positives
from simgrad.objectives.engine.tensors import attach
from simgrad.runs.outside import offline_similarities


def weigh(
    model: RetrievalModel,
    objective: Objective,
    images: Encoded,
    captions: Encoded,
    batch: Batch,
    *,
    pairs: bool,
    present: Tensor | None = None,
    drawn: Drawn | None = None,
    autocast: Callable[[], AbstractContextManager[Any]],
) -> Tensor:
    """The objective's loss of an encoded batch, and what the model adds to it.

    `pairs`: an image's other captions are negatives. `present` marks the images that are really
    there, where the batch was padded. `drawn` says where what was drawn from outside the batch
    stands: behind the batch proper.
    """
    offline: Offline | None = None
    if drawn is not None:
        own = slice(0, drawn.own_images), slice(0, drawn.own_captions)
        owner = batch.image_of_caption[own[1]]
        if objective.needs_offline:
            offline = offline_similarities(model, images, captions, owner, drawn.places)
        images, captions = images.select(own[0]), captions.select(own[1])
        batch = Batch(
            batch.images[own[0]], batch.tokens[own[1]], batch.lengths[own[1]], owner, batch.index
        )
    with autocast():
        auxiliary = model.auxiliary_loss(images, captions, batch)
    positives: Tensor | Positives | None = batch.image_of_caption
    if pairs:
        images, positives = images.select(batch.image_of_caption), None
    elif present is not None:
        positives = Positives.of_captions(batch.image_of_caption, len(images), present)
    value: Tensor
    if model.embeds:
        value = objective(vectors_of(images), vectors_of(captions), positives, offline)
    elif weighs_few(objective, len(images), len(captions)):
        value = loss_of_few(objective, model, images, captions, positives, offline)
    else:
        value = objective.on(model.similarities(images, captions), positives, offline)
    return value if auxiliary is None else value + auxiliary


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
) -> Tensor:
    """`objective.on(model.similarities(images, captions), positives, offline)`."""
    with torch.no_grad():
        result = objective.weigh(model.similarities(images, captions), positives, offline)
        weights = result.i2t + result.t2i  # (images, captions)
        pairs = weights.abs().flatten().topk(most(*weights.shape)).indices
        image, caption = pairs // weights.shape[1], pairs % weights.shape[1]
        few = weights[image, caption]
    again = model.pairwise(images.select(image), captions.select(caption))
    return attach(result.value, [again, *(offline or ())], [few, *(result.offline or ())])


# VSE++'s and VSRN's loops bring an image along with each of its captions; a batch of ours holds it
# once. Where nothing mixes images, that is the same and cheaper. A batch norm mixes them: its
# statistics are those of whatever it is given, and captured batches are filled up with repeated
# images. So for a model that mixes images, each caption brings its image: no more and no less.


def each_with_its_image(batch: Batch, drawn: Drawn | None) -> tuple[Batch, Drawn | None]:
    """The image of every caption of the batch; behind them those that were drawn for each."""
    if drawn is None:
        own = batch.image_of_caption
        return _taken(batch, own, len(own)), None
    own, count = batch.image_of_caption[: drawn.own_captions], drawn.own_captions
    caption, image, partner_image, partner_caption = drawn.places
    rows, mined = [own, image], torch.arange(count, 2 * count, device=own.device)
    partner = mined
    if drawn.images_each > 1:
        rows, partner = [*rows, partner_image], mined + count
    places = torch.stack([caption, mined, partner, partner_caption])
    return _taken(batch, torch.cat(rows), count), drawn._replace(own_images=count, places=places)


def _taken(batch: Batch, rows: Tensor, own: int) -> Batch:
    place = torch.arange(own, device=rows.device)
    return replace(batch, images=batch.images[rows], image_of_caption=place)
