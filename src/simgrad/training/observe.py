"""What is looked at while a run trains: where the weight falls, and whether all is one point."""

from typing import Any

import torch
from torch import Tensor

from simgrad.analysis import attention
from simgrad.data.batches import Batch
from simgrad.models import Encoded, RetrievalModel
from simgrad.objectives import Objective, Positives

_MOST = 2000  # triplets that are kept


@torch.no_grad()
def observe(
    objective: Objective, model: RetrievalModel, batch: Batch, *, pairs: bool
) -> tuple[dict[str, Any], Tensor]:
    """How an objective spreads its weight over a batch, and the batch's triplets (k, 2).

    `pairs`: an image's other captions are negatives, as the run's recipe says.
    """
    batch = batch.proper()
    images = model.encode_images(batch.images)
    captions = model.encode_captions(batch.tokens, batch.lengths)
    owner = batch.image_of_caption
    if pairs:  # every caption brings its image along
        images, owner = images.select(owner), torch.arange(len(owner), device=owner.device)
    S = model.similarities(images, captions).float()  # (images, captions)
    spread_of_weight: dict[str, Any] = {}
    if not objective.needs_offline:
        spread_of_weight = attention(objective.weigh(S, owner), owner)
    return spread_of_weight, triplets(S, owner)[:_MOST]


def triplets(S: Tensor, image_of_caption: Tensor) -> Tensor:
    """(positive, hardest negative) similarities of both directions."""
    pairs = Positives.of_captions(image_of_caption, len(S))
    parts = []
    for side, scores in ((pairs.i2t, S), (pairs.t2i, S.t())):
        negatives = scores.clone()
        negatives[side.query, side.candidate] = -torch.inf
        hardest = negatives.max(1).values[side.query]
        own = scores[side.query, side.candidate]
        parts.append(torch.stack([own, hardest], 1))
    found = torch.cat(parts)
    return found[torch.isfinite(found).all(1)]


@torch.no_grad()
def spread(model: RetrievalModel, images: Encoded, captions: Encoded) -> float:
    """How much the similarities of one query differ: near zero when all is one point.

    Of both directions the smaller: it is enough that all images, or all captions, are alike.
    """
    some = slice(0, 128)
    S = model.similarities(images.select(some), captions.select(some)).float()
    if min(S.shape) < 2:
        return 1.0  # nothing to compare
    return float(min(S.std(1).mean(), S.std(0).mean()))
