"""Every declared model in a size that tests can afford, and batches for it."""

from dataclasses import dataclass

import torch
from torch import Tensor

from simgrad.models import Inputs, RetrievalModel, build

WORDS, REGIONS, WIDTH, SIZE = 23, 6, 10, 32
FEATURES = Inputs("features", (WIDTH,), WORDS)
SETS = Inputs("regions", (REGIONS, WIDTH), WORDS)
PIXELS = Inputs("pixels", (3, SIZE, SIZE), WORDS)

_BERT = "bert_hidden=16, bert_heads=2"
_SWIN = f"size={SIZE}, swin_width=8, swin_depths=2-2, swin_heads=1-2, swin_window=4"
_RAW = "raw_norm=no_norm, image_norm=false, text_norm=false"
_CLIP = f"size={SIZE}, width=16, layers=1, heads=2, patch=16, positions=16"

# name -> spec and inputs; every declared model is here at least once.
SMALL: dict[str, tuple[str, Inputs]] = {
    "vse++": ("vse++(dimension=16, word_dimension=8)", FEATURES),
    "vse++ order": (
        "vse++(dimension=16, word_dimension=8, measure=order, absolute=true)",
        FEATURES,
    ),
    "vse++ bert": (f"vse++(dimension=16, text=bert, bert=none, bert_layers=1, {_BERT})", FEATURES),
    "scan bert": (f"scan(dimension=16, text=bert, bert=none, bert_layers=1, {_BERT})", SETS),
    "vse++ two layers": ("vse++(dimension=16, word_dimension=8, gru_layers=2)", FEATURES),
    "vsrn": ("vsrn(dimension=16, word_dimension=8)", SETS),
    "vsrn order": (
        "vsrn(dimension=16, word_dimension=8, measure=order, absolute=true, image_norm=false)",
        SETS,
    ),
    "vsrn f30k": ("vsrn(dimension=16, word_dimension=8, batch_norm=true, region_norm=false)", SETS),
    "scan t-i": ("scan(dimension=16, word_dimension=8)", SETS),
    "scan i-t": ("scan(dimension=16, word_dimension=8, direction=i-t, smooth=4)", SETS),
    "scan gru": ("scan(dimension=16, word_dimension=8, text=gru, raw_norm=softmax)", SETS),
    "scan raw": (
        f"scan(dimension=16, word_dimension=8, gru_layers=2, {_RAW})",
        SETS,
    ),
    "bfan equal": ("bfan(dimension=16, word_dimension=8)", SETS),
    "bfan prob": ("bfan(dimension=16, word_dimension=8, focal=prob)", SETS),
    "vse-infinity": (f"vse-infinity(dimension=16, bert=none, bert_layers=2, {_BERT})", SETS),
    "vse-infinity bigru": (
        "vse-infinity(dimension=16, text=bigru, word_dimension=8, image=grid)",
        SETS,
    ),
    "x-vlm": (
        f"x-vlm(dimension=16, text_layers=1, fusion_layers=1, {_BERT}, {_SWIN})",
        PIXELS,
    ),
    "clip": (f"clip(source=none, dimension=16, {_CLIP})", PIXELS),
    "light": ("light(dimension=16, word_dimension=8)", FEATURES),
    "light hidden": ("light(dimension=16, word_dimension=8, hidden=12)", FEATURES),
    "towers": ("towers(text=none, width=32, layers=2, dimension=16)", FEATURES),
    "siglip": (f"clip(source=none, family=siglip, {_CLIP})", PIXELS),
}


def small(name: str, seed: int = 0) -> RetrievalModel:
    """A small model whose weights are all away from their starting points."""
    torch.manual_seed(seed)
    spec, inputs = SMALL[name]
    model = build(spec, inputs)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.05)
    return model.eval()


@dataclass
class CaptionBatch:
    tokens: Tensor
    lengths: Tensor
    image_of_caption: Tensor


def images(inputs: Inputs, n: int = 5, seed: int = 1) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(n, *inputs.image_shape, generator=generator)


def captions(m: int = 7, longest: int = 9, seed: int = 2, *, shortest: int = 1) -> CaptionBatch:
    """Captions of different lengths, one of a single word, padded with 0."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(2, longest + 1, (m,), generator=generator)
    lengths[0], lengths[-1] = longest, shortest
    tokens = torch.randint(4, WORDS, (m, longest), generator=generator)
    tokens = tokens * (torch.arange(longest) < lengths[:, None])
    return CaptionBatch(tokens, lengths, torch.arange(m) % 5)
