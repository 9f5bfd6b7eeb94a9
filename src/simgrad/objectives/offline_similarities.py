"""Similarities from outside the batch: what they are, and how the two directions share them."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from simgrad.core.errors import InputError
from simgrad.objectives.engine.tensors import check_finite, exact_type, may_check
from simgrad.objectives.positives import Positives


class Offline(NamedTuple):
    """Four similarities per pair from outside the batch (AOQ); pair k is caption k of the batch.

    With I, T the pair, T̂ and Î its mined caption and image, Ĩ the image of T̂, T̃ a caption of Î.

    Examples:
        >>> S = torch.tensor([[0.9, 0.8, 0.1], [0.3, 0.7, 0.2], [0.1, 0.6, 0.5]])
        >>> mined = torch.tensor([0.7, 0.2, 0.3]), torch.tensor([0.6, 0.1, 0.4])  # caption, image
        >>> pairs = torch.tensor([0.2, 0.2, 0.6]), torch.tensor([0.1, 0.1, 0.1])
        >>> offline = simgrad.objectives.Offline(*mined, *pairs)
        >>> simgrad.objective("off-quin").on(S, offline=offline)
        tensor(0.8000)
    """

    caption: Tensor  # S(I, T̂)
    image: Tensor  # S(Î, T)
    pair: Tensor  # S(Î, T̂)
    partner: Tensor  # S(Ĩ, T̃)


def split_offline(
    objective: Any, offline: Offline | None, pairs: Positives, S: Tensor
) -> tuple[Tensor | None, Tensor | None]:
    """Offline similarities by direction, in its order of pairs: (own anchor, no shared anchor)."""
    if objective.needs_offline != (offline is not None):
        raise InputError(
            f"{objective.name} weighs similarities from outside the batch: give "
            "`offline=simgrad.objectives.Offline(caption, image, pair, partner)`."
            if objective.needs_offline
            else f"{objective.name} takes no offline similarities; off-tri, off-quin and "
            "adap-off-quin do."
        )
    if offline is None:
        return None, None
    count = pairs.count
    for field, similarities in offline._asdict().items():
        if similarities.shape != (count,):
            raise InputError(
                f"offline.{field} has shape {tuple(similarities.shape)}; one similarity for each "
                f"of the {count} pairs is needed."
            )
    # (pairs, 4) in the precision of the similarities that they are compared with.
    values = torch.stack([x.detach() for x in offline], 1).to(exact_type(S))
    if may_check(S) and not torch.isfinite(values.sum()):
        for field, similarities in offline._asdict().items():
            check_finite(similarities.detach()[None], f"offline.{field}", True)
    i2t, t2i = values[:, ::2], values[:, 1::2]
    return pairs.by_image(i2t), t2i


def join_offline(i2t: Tensor | None, t2i: Tensor | None, pairs: Positives) -> Offline | None:
    """The inverse of `split_offline`, for the weights."""
    if i2t is None or t2i is None:
        return None
    i2t = pairs.by_caption(i2t)
    return Offline(i2t[:, 0], t2i[:, 0], i2t[:, 1], t2i[:, 1])
