"""Comparing again only the pairs that matter, for models whose similarities are dear.

A hardest-negative objective gives weight to a few pairs of a batch: the positives, and one negative
for every query. Where a similarity is an attention of its own (SCAN, BFAN), its gradient costs more
than itself. So
1. all similarities are computed without a gradient, in a fixed amount of memory;
2. the objective weighs them;
3. the few that got a weight are computed once more, and the weight is sent back through those.
The loss and its gradient are the same; everything has a fixed shape, for CUDA graphs.
"""

import torch
from torch import Tensor

from simgrad.models.base import Encoded, RetrievalModel
from simgrad.objectives import Objective, Offline, Positives
from simgrad.objectives.engine.tensors import attach


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
    """Pairs that a hardest-negative objective can give weight to: every caption with its image,
    with its hardest image, and every image with its hardest caption."""
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
