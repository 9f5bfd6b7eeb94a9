"""The losses as anybody would write them in PyTorch, and pytorch-metric-learning's, both ways.

Helpers of `objectives.py`: `step(name)` is a function of two embedding matrices.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, logsigmoid, normalize

Loss = Callable[[Tensor, Tensor], Tensor]


def nt_xent(x: Tensor, y: Tensor) -> Tensor:
    logits = normalize(x) @ normalize(y).t() / 0.1
    every = torch.arange(len(x), device=x.device)
    return (cross_entropy(logits, every) + cross_entropy(logits.t(), every)) / 2


def siglip(x: Tensor, y: Tensor) -> Tensor:
    logits = normalize(x) @ normalize(y).t() * 10 - 10
    sign = 2 * torch.eye(len(x), device=x.device, dtype=logits.dtype) - 1
    return -logsigmoid(sign * logits).sum() / len(x)


def _costs(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    S = normalize(x) @ normalize(y).t()
    own = S.diagonal()
    itself = torch.eye(len(x), dtype=torch.bool, device=x.device)
    by_image = (0.2 + S - own[:, None]).clamp(min=0).masked_fill(itself, 0)
    return by_image, (0.2 + S - own[None]).clamp(min=0).masked_fill(itself, 0)


def triplet(x: Tensor, y: Tensor) -> Tensor:
    by_image, by_caption = _costs(x, y)
    return by_image.sum() + by_caption.sum()


def triplet_sh(x: Tensor, y: Tensor) -> Tensor:
    by_image, by_caption = _costs(x, y)
    return by_image.max(1).values.sum() + by_caption.max(0).values.sum()


def smooth_ap(x: Tensor, y: Tensor) -> Tensor:
    """All candidates x candidates of every query, as published."""
    S = normalize(x) @ normalize(y).t()
    itself = torch.eye(len(x), dtype=torch.bool, device=x.device)
    total = S.new_zeros(())
    for one in (S, S.t()):
        above = ((one[:, None, :] - one[:, :, None]) / 0.01).sigmoid().masked_fill(itself, 0)
        rank = (1 + above.sum(2)).diagonal()
        total = total + (1 - 1 / rank).mean() / 2
    return total


def _metric_learning(loss: Any) -> Loss:
    def both(x: Tensor, y: Tensor) -> Tensor:
        labels = torch.arange(len(x), device=x.device)
        there = loss(x, labels, ref_emb=y, ref_labels=labels.clone())
        back = loss(y, labels, ref_emb=x, ref_labels=labels.clone())
        return (there + back) / 2  # type: ignore[no-any-return]

    return both


def step(name: str) -> Loss:
    """A loss by the name of its row, e.g. `plain nt-xent` or `PML NTXentLoss`."""
    if name.startswith("PML"):
        from pytorch_metric_learning import distances, losses

        if name == "PML NTXentLoss":
            return _metric_learning(losses.NTXentLoss(temperature=0.1))
        cosine = distances.CosineSimilarity()
        return _metric_learning(losses.TripletMarginLoss(margin=0.2, distance=cosine))
    return {
        "plain nt-xent": nt_xent, "plain siglip": siglip, "plain triplet": triplet,
        "plain triplet-sh": triplet_sh, "plain smooth-ap": smooth_ap,
    }[name]  # fmt: skip
