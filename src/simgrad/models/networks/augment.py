"""Size augmentation: sets of random size while training, so that pooling learns every size.

All of it is drawn and applied on the device, in fixed shapes, so that a training step can be
captured as a CUDA graph.
"""

import torch
from torch import Tensor

from simgrad.models.networks.layers import valid


def keep_regions(n: int, k: int, rate: float, device: torch.device) -> Tensor:
    """(n, k) mask: each region is dropped with this rate, never all of an image's."""
    draw = torch.rand(n, k, device=device)
    return draw >= draw.amax(1, keepdim=True).clamp_max(rate)


def keep_cells(n: int, k: int, rate: float, device: torch.device) -> Tensor:
    """(n, k) mask for grids: a rate for each image, `rate` times a uniform draw u, if u > rate."""
    share = torch.rand(n, 1, device=device)
    dropped = torch.where(share > rate, share * rate, torch.zeros_like(share))
    draw = torch.rand(n, k, device=device)
    return draw >= torch.minimum(dropped, draw.amax(1, keepdim=True))


def change_words(
    tokens: Tensor,
    lengths: Tensor,
    *,
    rate: float,
    mask_token: int,
    words: int,
    continues: Tensor | None,
    whole: bool,
) -> tuple[Tensor, Tensor]:
    """Hide half of the words selected with this rate, replace a tenth, delete the rest.

    `continues` marks the word pieces that continue a word: they share its fate. `whole` keeps
    the first and the last token, which are no words. Returns new tokens and lengths.
    """
    m, longest = tokens.shape
    place = torch.arange(longest, device=tokens.device).expand(m, longest)
    draw = torch.rand(m, longest, device=tokens.device)
    if continues is not None:
        first = torch.where(continues[tokens], torch.zeros_like(place), place).cummax(1).values
        draw = draw.gather(1, first)
    real = valid(lengths, longest)
    if whole:
        draw = torch.where((place == 0) | (place == lengths[:, None] - 1), 1.0, draw)
    other = torch.randint(1, words, (m, longest), device=tokens.device)
    changed = torch.where(draw < 0.6 * rate, other, tokens)
    changed = torch.where(draw < 0.5 * rate, torch.full_like(tokens, mask_token), changed)
    kept = ((draw >= rate) | (draw < 0.6 * rate)) & real
    # A caption of which nothing is left keeps its first word.
    kept[:, 0] |= ~kept.any(1)
    # A word goes where its number among those kept says, what is deleted to a place before.
    number = kept.cumsum(1)
    packed = tokens.new_zeros(m, longest + 1).scatter_(1, number * kept, changed)
    return packed[:, 1:], number[:, -1]
