"""The losses as anybody would write them in PyTorch, and those of other packages, both ways.

Helpers of `objectives.py`: `step(name)` is a function of two embedding matrices.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, logsigmoid, normalize, softplus
from torch.utils.checkpoint import checkpoint

# What the name of a peer begins with.
KINDS = ("plain", "compiled", "PML", "open_clip", "Liger", "cut-cross", "Inf-CL", "MemoryEfficient")
Loss = Callable[[Tensor, Tensor], Tensor]


def nt_xent(x: Tensor, y: Tensor) -> Tensor:
    logits = normalize(x) @ normalize(y).t() / 0.1
    every = torch.arange(len(x), device=x.device)
    return (cross_entropy(logits, every) + cross_entropy(logits.t(), every)) / 2


def siglip(x: Tensor, y: Tensor) -> Tensor:
    logits = normalize(x) @ normalize(y).t() * 10 - 10
    sign = 2 * torch.eye(len(x), device=x.device, dtype=logits.dtype) - 1
    return -logsigmoid(sign * logits).sum() / len(x)


def chunked_siglip(x: Tensor, y: Tensor, rows: int = 4096) -> Tensor:
    """Some images at a time, made again on the way back: memory grows with the batch."""
    x, y = normalize(x), normalize(y)
    total = x.new_zeros((), dtype=torch.float32)
    for start in range(0, len(x), rows):
        part = checkpoint(_siglip_of_rows, x[start : start + rows], y, start, use_reentrant=False)
        total = total + part
    return total / len(x)


def _siglip_of_rows(x: Tensor, y: Tensor, start: int) -> Tensor:
    logits = x @ y.t() * 10 - 10
    own = logits[:, start : start + len(x)].diagonal()
    return softplus(logits).sum() - own.sum()  # softplus(-s) = softplus(s) - s


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


def _open_clip(name: str) -> Loss:
    from open_clip.loss import ClipLoss, SigLipLoss

    loss = ClipLoss() if name.endswith("ClipLoss") and "Sig" not in name else SigLipLoss()
    ten = torch.tensor(10.0)

    def both(x: Tensor, y: Tensor) -> Tensor:
        given = (normalize(x), normalize(y), ten.to(x.device))
        return loss(*given) if isinstance(loss, ClipLoss) else loss(*given, -ten.to(x.device))  # type: ignore[no-any-return]

    return both


def _liger() -> Loss:
    from liger_kernel.transformers import LigerFusedLinearCrossEntropyLoss

    loss = LigerFusedLinearCrossEntropyLoss()

    def both(x: Tensor, y: Tensor) -> Tensor:
        x, y, every = normalize(x) / 0.1, normalize(y), torch.arange(len(x), device=x.device)
        return (loss(y, x, every) + loss(x, y, every)) / 2  # type: ignore[no-any-return]

    return both


def _cut_cross_entropy() -> Loss:
    """Its default leaves out gradients that bfloat16 would round away."""
    from cut_cross_entropy import linear_cross_entropy

    def both(x: Tensor, y: Tensor) -> Tensor:
        x, y, every = normalize(x), normalize(y), torch.arange(len(x), device=x.device)
        there = linear_cross_entropy(x / 0.1, y, every)
        return (there + linear_cross_entropy(y / 0.1, x, every)) / 2  # type: ignore[no-any-return]

    return both


def _inf_cl() -> Loss:
    from inf_cl import cal_flash_loss

    def both(x: Tensor, y: Tensor) -> Tensor:
        x, y = normalize(x), normalize(y)
        there, back = cal_flash_loss(x, y, scale=10.0), cal_flash_loss(y, x, scale=10.0)
        return (there.mean() + back.mean()) / 2  # type: ignore[no-any-return]

    return both


def _memory_efficient_clip() -> Loss:
    """`stable` would give another gradient."""
    from memeff import MemoryEfficientCLIPLoss

    return MemoryEfficientCLIPLoss(temperature=0.1, stable=False)  # type: ignore[no-any-return]


def step(name: str) -> Loss:
    """A loss by the name of its row, e.g. `plain nt-xent` or `PML NTXentLoss`."""
    if name.startswith("compiled"):
        return torch.compile(step(name.replace("compiled", "plain")), dynamic=False)
    if name.startswith("open_clip"):
        return _open_clip(name)
    packages = {
        "Liger": _liger, "cut-cross": _cut_cross_entropy, "Inf-CL": _inf_cl,
        "MemoryEfficient": _memory_efficient_clip,
    }  # fmt: skip
    for beginning, make in packages.items():
        if name.startswith(beginning):
            return make()
    if name.startswith("PML"):
        from pytorch_metric_learning import distances, losses

        if name == "PML NTXentLoss":
            return _metric_learning(losses.NTXentLoss(temperature=0.1))
        cosine = distances.CosineSimilarity()
        return _metric_learning(losses.TripletMarginLoss(margin=0.2, distance=cosine))
    return {
        "plain nt-xent": nt_xent, "plain siglip": siglip, "plain triplet": triplet,
        "plain triplet-sh": triplet_sh, "plain smooth-ap": smooth_ap,
        "plain chunked siglip": chunked_siglip,
    }[name]  # fmt: skip
