"""VSRN's checkpoints, of COCO's form and of Flickr30k's."""

import re

import torch
from torch import Tensor

from simgrad.models.base import Inputs
from simgrad.models.published.file import Mapped, PublishedFile, PublishedPart, State
from simgrad.models.vsrn import Vsrn

REGIONS = 36


def vsrn(published: PublishedFile) -> Mapped:
    image = published.image
    image.size("Rs_GCN_1.theta.weight")
    layers = max(int(n) for n in re.findall(r"Rs_GCN_(\d+)\.", " ".join(image.names())))
    # On Flickr30k its code leaves the first normalisation out, and adds a batch norm: the file
    # shows which it was, with or without options.
    flickr = "bn.weight" in image
    config = Vsrn(
        **published.word_sizes(),
        layers=layers,
        published_axis=True,
        batch_norm=flickr,
        region_norm=not flickr,
        measure=str(published.only("measure", "cosine", "order")),
        absolute=bool(published.option("use_abs", False)),
        image_norm=not published.option("no_imgnorm", False),
    )
    width = image.size("fc.weight", 1)
    words = published.text.size("embed.weight")
    state = {**published.linear(), **image.gru("img_rnn", "region_rnn"), **published.words()}
    state |= image.under("bn", "norm")
    for i in range(layers):
        state |= _relations(image, f"Rs_GCN_{i + 1}", f"relations.{i}")
    return Mapped(config, Inputs("regions", (REGIONS, width), words), state)


def _relations(image: PublishedPart, theirs: str, ours: str) -> State:
    """1x1 convolutions are linear layers; three of them are one of ours."""
    found = image.under(f"{theirs}.W.1", f"{ours}.norm")
    for end in ("weight", "bias"):
        names = [f"{theirs}.{part}.{end}" for part in ("theta", "phi", "g")]
        found[f"{ours}.ask.{end}"] = torch.cat([_flat(image.take(name)) for name in names])
        found[f"{ours}.out.{end}"] = _flat(image.take(f"{theirs}.W.0.{end}"))
    return found


def _flat(convolution: Tensor) -> Tensor:
    return convolution.squeeze(-1) if convolution.dim() == 3 else convolution
