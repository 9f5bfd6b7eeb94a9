"""The numbers that ours and theirs are asked about.

The angles and labels are those of pytorch-metric-learning's own tests, as are the seeds. Every
batch has images, texts and each text's image; signed similarities, duplicates, texts that are
nobody's and groups of several are among them.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import normalize

ANGLES = (0, 20, 40, 60, 80)  # degrees, of vectors in the plane
LABELS = (0, 0, 1, 1, 2)
SEEDS = (42, 1234, 5642, 9999, 3459)


@dataclass(frozen=True)
class Batch:
    """Images and texts that may be differentiated, and which belong together."""

    images: Tensor  # (images, d)
    texts: Tensor  # (texts, d)
    owner: Tensor  # (texts,) each text's image; -1: nobody's

    @property
    def labels(self) -> tuple[Tensor, Tensor]:
        """Two tensors whose equality is the pairing; one that is nobody's has a label alone."""
        alone = torch.arange(len(self.owner)) + len(self.images)
        return torch.arange(len(self.images)), torch.where(self.owner < 0, alone, self.owner)

    @property
    def mask(self) -> Tensor:
        labels, others = self.labels
        return labels[:, None] == others

    @property
    def similarities(self) -> Tensor:
        return normalize(self.images) @ normalize(self.texts).T

    def gradients(self, loss: Tensor) -> tuple[Tensor, ...]:
        return torch.autograd.grad(loss, [self.images, self.texts])


def _plane(degrees: "tuple[int, ...] | list[int]") -> Tensor:
    turned = [math.radians(d) for d in degrees]
    return torch.tensor([[math.cos(t), math.sin(t)] for t in turned])


def _made(images: Tensor, texts: Tensor, owner: "Tensor | None" = None) -> Batch:
    owner = torch.arange(len(texts)) if owner is None else owner
    return Batch(images.double().requires_grad_(), texts.double().requires_grad_(), owner)


def _random(seed: int, images: int, texts: int, width: int = 8) -> tuple[Tensor, Tensor]:
    random = torch.Generator().manual_seed(seed)
    both = torch.randn(images + texts, width, generator=random)
    return both[:images], both[images:]


def pairs(name: str) -> Batch:
    """As many texts as images, text i of image i."""
    if name == "angles":
        return _made(_plane(ANGLES), _plane([10, 35, 30, 70, 95]))
    if name == "opposite":  # every own pair is below 0
        return _made(_plane(ANGLES), _plane([170, 160, 220, 250, 200]))
    if name == "duplicates":  # two images, and two texts, that are the same vector
        return _made(_plane([0, 0, 50, 90]), _plane([10, 40, 40, 100]))
    if name == "long":  # lengths are nobody's business
        images, texts = _random(7, 12, 12)
        return _made(images * torch.arange(1, 13)[:, None], texts / 100)
    return _made(*_random(SEEDS[int(name)], 16, 16))


def groups(name: str) -> Batch:
    """Several texts to an image."""
    if name == "angles":  # three images, texts with PML's labels
        return _made(_plane([5, 45, 85]), _plane(ANGLES), torch.tensor(LABELS))
    if name == "uneven":
        images, texts = _random(3, 5, 11)
        return _made(images, texts, torch.tensor([0, 1, 1, 2, 2, 2, 3, 4, 4, 4, 4]))
    if name == "nobodys":  # a corpus: some texts are no image's
        images, texts = _random(4, 4, 9)
        return _made(images, texts, torch.tensor([0, 1, 2, 3, 3, -1, -1, -1, 0]))
    images, texts = _random(SEEDS[int(name)], 6, 18)
    return _made(images, texts, torch.arange(18) % 6)


PAIRS = ("angles", "opposite", "duplicates", "long", "0", "1")
GROUPS = ("angles", "uneven", "0", "1")
