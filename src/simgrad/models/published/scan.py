"""SCAN's and BFAN's checkpoints: the same encoders, told apart by their options."""

from typing import Any

from simgrad.models.base import Inputs, ModelConfig
from simgrad.models.bfan import Bfan
from simgrad.models.networks.cross_attention import RAW_NORMS
from simgrad.models.published.file import Mapped, PublishedFile
from simgrad.models.published.vsrn import REGIONS
from simgrad.models.scan import Scan

_AGGREGATES = {"LogSumExp": "lse", "Mean": "mean", "Max": "max", "Sum": "sum"}
_DIRECTIONS = {"t2i": "t-i", "i2t": "i-t"}


def scan(published: PublishedFile) -> Mapped:
    two_way = "rnn.weight_ih_l0_reverse" in published.text
    config = Scan(
        **_shared(published),
        text="bigru" if two_way else "gru",
        direction=_DIRECTIONS[published.only("cross_attn", *_DIRECTIONS)],
        aggregate=_AGGREGATES[published.only("agg_func", *_AGGREGATES)],
        smooth=float(published.option("lambda_softmax", 9.0)),
        sharpness=float(published.option("lambda_lse", 6.0)),
        raw_norm=str(published.only("raw_feature_norm", *RAW_NORMS)),
    )
    return _mapped(published, config)


def bfan(published: PublishedFile) -> Mapped:
    config = Bfan(
        **_shared(published),
        focal=str(published.only("focal_type", "equal", "prob")),
        smooth=float(published.option("lambda_softmax", 20.0)),
    )
    return _mapped(published, config)


def _shared(published: PublishedFile) -> dict[str, Any]:
    return {**published.word_sizes(), **published.norms()}


def _mapped(published: PublishedFile, config: ModelConfig) -> Mapped:
    image = published.image
    width = image.size("fc.weight_v" if "fc.weight_v" in image else "fc.weight", 1)
    words = published.text.size("embed.weight")
    state = {**published.linear(), **published.words()}
    return Mapped(config, Inputs("regions", (REGIONS, width), words), state)
