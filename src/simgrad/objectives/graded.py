"""Graded pairs: how much each positive pair counts.

`weights` are one for each caption (m,), or a matrix (n, m), of which those of positive pairs are
read. They are linear: a pair of weight 0.5 counts half, in its value and in what it pulls and
pushes, and all ones change nothing. For a query with several positives, a family sees their
`grade`, the weight relative to the query's mean, in `pairs.graded` and `pairs.share`; the frame
multiplies all of the query with that mean (`Side.importance`).
"""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from simgrad.core.errors import InputError

if TYPE_CHECKING:
    from simgrad.objectives.positives import Positives


def read_weights(
    weights: Tensor, positives: "Positives", device: torch.device, check: bool
) -> Tensor:
    """(pairs,) sorted by image: how much each positive pair counts."""
    i2t, t2i = positives.i2t, positives.t2i
    images, captions = i2t.queries, i2t.candidates
    if not isinstance(weights, Tensor) or not weights.is_floating_point():
        got = weights.dtype if isinstance(weights, Tensor) else type(weights).__name__
        raise InputError(f"weights must be a floating-point tensor, not {got}.")
    if weights.requires_grad:
        raise InputError("weights are given, not learned: they get no gradient. Detach them.")
    weights = weights.to(device)
    if weights.shape == (images, captions):
        found = weights[i2t.query, i2t.candidate]
    elif weights.shape != (captions,):
        raise InputError(
            f"weights has shape {tuple(weights.shape)}; it must be ({captions},), one for each "
            f"caption, or ({images}, {captions}), of which those of positive pairs are read."
        )
    else:
        if check and not t2i.one_each and len(torch.unique(t2i.query)) < positives.count:
            raise InputError(
                f"a caption belongs to several images: give weights as a matrix "
                f"({images}, {captions})."
            )
        found = weights[i2t.candidate]
    if check and not bool(((found >= 0) & (found < torch.inf)).all()):
        bad = int((~((found >= 0) & (found < torch.inf))).nonzero()[0])
        raise InputError(
            f"the weight of image {int(i2t.query[bad])} and caption {int(i2t.candidate[bad])} is "
            f"{float(found[bad])}: weights are 0 or more, and finite."
        )
    return found
