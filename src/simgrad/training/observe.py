"""What is looked at while a run goes on: where the weight falls, and whether all is one point."""

from typing import Any

import torch
from torch import Tensor

from simgrad.analysis import attention
from simgrad.data.batches import Batch
from simgrad.mining.drawing import own_size
from simgrad.models import Encoded, RetrievalModel
from simgrad.objectives import Objective, Positives


@torch.no_grad()
def observe(
    objective: Objective, model: RetrievalModel, batch: Batch, most: int = 2000
) -> tuple[dict[str, Any], Tensor, float]:
    """How an objective spreads its weight over a batch, the batch's triplets (k, 2), and the loss
    of a model that finds everything equally similar."""
    n, m = own_size(batch.index)  # behind them stands what was drawn from outside
    images = model.encode_images(batch.images[:n])
    captions = model.encode_captions(batch.tokens[:m], batch.lengths[:m])
    S = model.similarities(images, captions).float()
    owner = batch.image_of_caption[:m]
    spread_of_weight: dict[str, Any] = {}
    flat = 0.0
    if not objective.needs_offline:
        spread_of_weight = attention(objective.weigh(S, owner), owner)
        flat = float(objective.weigh(torch.zeros_like(S), owner).value)
    return spread_of_weight, triplets(S, owner)[:most], flat


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
    """How much similarities differ: near zero when everything is embedded in one point."""
    some = slice(0, 64)
    return float(model.similarities(images.select(some), captions.select(some)).float().std())
