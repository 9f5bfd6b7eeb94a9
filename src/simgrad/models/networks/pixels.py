"""Pictures as models get them: (n, 3, height, width), bytes or numbers from 0 to 1."""

import torch
from torch import Tensor, nn

CLIP_MEAN, CLIP_STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
HALF = (0.5, 0.5, 0.5)


class Standardise(nn.Module):
    """Pixels to the mean and spread that a network was trained on."""

    def __init__(self, mean: tuple[float, ...], std: tuple[float, ...]) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor(mean).view(3, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(std).view(3, 1, 1), persistent=False)

    def forward(self, pixels: Tensor) -> Tensor:
        if pixels.dtype == torch.uint8:
            pixels = pixels.float() / 255
        return (pixels - self.get_buffer("mean")) / self.get_buffer("std")
