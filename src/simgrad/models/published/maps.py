"""Published checkpoints to our models: VSE++, VSRN, SCAN and BFAN; and the table of all."""

import dataclasses
import re
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from simgrad.core.errors import InputError
from simgrad.models.base import Inputs
from simgrad.models.bfan import Bfan
from simgrad.models.networks.backbones import KNOWN
from simgrad.models.published.bert import vse_infinity, xvlm
from simgrad.models.published.file import Published, State
from simgrad.models.published.layers import REGIONS, Mapped, gru, plain
from simgrad.models.scan import Scan
from simgrad.models.vsepp import VsePlusPlus
from simgrad.models.vsrn import Vsrn

_CROP = 224  # pixels a side that VSE++ crops


def _words(published: Published) -> State:
    text = published.text
    return {**plain(text, "embed", "text.embed"), **gru(text, "rnn", "text.rnn")}


def _fc(image: State) -> State:
    """The linear layer on features; its weight may be split into length and direction."""
    if "fc.weight_v" in image:
        direction = image["fc.weight_v"]
        weight = direction * (image["fc.weight_g"] / direction.norm())
        return {"fc.weight": weight, **{k: v for k, v in image.items() if k == "fc.bias"}}
    return plain(image, "fc", "fc")


def _sizes(published: Published) -> dict[str, Any]:
    published.only("num_layers", 1)
    return {
        "dimension": published.size(published.text, "rnn.weight_hh_l0", 1),
        "word_dimension": published.size(published.text, "embed.weight", 1),
    }


def vsepp(published: Published) -> Mapped:
    config = VsePlusPlus(
        **_sizes(published),
        measure=str(published.option("measure", "cosine")),
        absolute=bool(published.option("use_abs", False)),
        image_norm=not published.option("no_imgnorm", False),
    )
    published.only("measure", "cosine", "order")
    state = {**_fc(published.image), **_words(published)}
    words = published.size(published.text, "embed.weight")
    network = str(published.option("cnn_type", "image network"))
    if not any(name.startswith("cnn.") for name in published.image):
        width = published.size(published.image, "fc.weight", 1)
        return config, Inputs("features", (width,), words), state, None
    if network in KNOWN:
        config = dataclasses.replace(
            config, backbone=network, finetune=bool(published.option("finetune", False))
        )
        state |= plain(_old_vgg(published.image), "cnn", "tower.body.network")
        return config, Inputs("pixels", (3, _CROP, _CROP), words), state, None
    left_out = f"its {network}: give the model that network's pooled features at unit length"
    width = published.size(published.image, "fc.weight", 1)
    return config, Inputs("features", (width,), words), state, left_out


def _old_vgg(image: State) -> State:
    """Before 2017, VGG's two hidden layers were numbered one higher."""
    if "cnn.classifier.1.weight" not in image:
        return image
    moved = {"cnn.classifier.1.": "cnn.classifier.0.", "cnn.classifier.4.": "cnn.classifier.3."}
    return {moved.get(k[:17], k[:17]) + k[17:]: v for k, v in image.items()}


def vsrn(published: Published) -> Mapped:
    image = published.image
    published.only("no_imgnorm", False)
    published.only("use_abs", False)
    published.only("measure", "cosine")
    published.size(image, "Rs_GCN_1.theta.weight")
    layers = max(int(n) for n in re.findall(r"Rs_GCN_(\d+)\.", " ".join(image)))
    config = Vsrn(
        **_sizes(published),
        layers=layers,
        published_axis=True,
        batch_norm="bn.weight" in image,
        # On Flickr30k the published code leaves the first normalisation out.
        region_norm=not str(published.option("data_name", "")).startswith("f30k"),
    )
    state = {**_fc(image), **gru(image, "img_rnn", "region_rnn"), **_words(published)}
    state |= plain(image, "bn", "norm")
    for i in range(layers):
        state |= _relations(published, f"Rs_GCN_{i + 1}", f"relations.{i}")
    width = published.size(image, "fc.weight", 1)
    words = published.size(published.text, "embed.weight")
    return config, Inputs("regions", (REGIONS, width), words), state, None


def _relations(published: Published, theirs: str, ours: str) -> State:
    """1x1 convolutions are linear layers; three of them are one of ours."""
    image = published.image
    found = plain(image, f"{theirs}.W.1", f"{ours}.norm")
    for end in ("weight", "bias"):
        names = [f"{theirs}.{part}.{end}" for part in ("theta", "phi", "g")]
        for name in [*names, f"{theirs}.W.0.{end}"]:
            published.size(image, name)
        found[f"{ours}.ask.{end}"] = torch.cat([_flat(image[name]) for name in names])
        found[f"{ours}.out.{end}"] = _flat(image[f"{theirs}.W.0.{end}"])
    return found


def _flat(convolution: Tensor) -> Tensor:
    return convolution.squeeze(-1) if convolution.dim() == 3 else convolution


def _sets(published: Published) -> tuple[Inputs, State]:
    """What SCAN and BFAN share."""
    for name in ("no_imgnorm", "no_txtnorm"):
        published.only(name, False)
    fc = _fc(published.image)
    if "fc.weight" not in fc:
        raise InputError(f"{published.path}: partial; the weight 'fc.weight' is missing.")
    words = published.size(published.text, "embed.weight")
    inputs = Inputs("regions", (REGIONS, int(fc["fc.weight"].shape[1])), words)
    return inputs, {**fc, **_words(published)}


def scan(published: Published) -> Mapped:
    published.only("raw_feature_norm", "clipped_l2norm")
    published.only("bi_gru", True)
    names = {"LogSumExp": "lse", "Mean": "mean", "Max": "max", "Sum": "sum"}
    published.only("agg_func", *names)
    published.only("cross_attn", "t2i", "i2t")
    config = Scan(
        **_sizes(published),
        direction={"t2i": "t-i", "i2t": "i-t"}[published.option("cross_attn", "t2i")],
        aggregate=names[published.option("agg_func", "LogSumExp")],
        smooth=float(published.option("lambda_softmax", 9.0)),
        sharpness=float(published.option("lambda_lse", 6.0)),
    )
    inputs, state = _sets(published)
    return config, inputs, state, None


def bfan(published: Published) -> Mapped:
    published.only("focal_type", "equal", "prob")
    config = Bfan(
        **_sizes(published),
        focal=str(published.option("focal_type", "equal")),
        smooth=float(published.option("lambda_softmax", 20.0)),
    )
    inputs, state = _sets(published)
    return config, inputs, state, None


MAPS: dict[str, Callable[[Published], Mapped]] = {
    "vse++": vsepp,
    "vsrn": vsrn,
    "vse-infinity": vse_infinity,
    "scan": scan,
    "bfan": bfan,
    "x-vlm": xvlm,
}
