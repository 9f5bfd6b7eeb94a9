"""VSE-infinity's checkpoints: BERT or a two-way GRU, with regions or grid cells."""

from typing import Any

from simgrad.models.base import Inputs
from simgrad.models.published.file import (
    Mapped,
    PublishedFile,
    PublishedPart,
    State,
    bert_sizes,
    bert_weights,
)
from simgrad.models.published.vsrn import REGIONS
from simgrad.models.vse_infinity import VseInfinity

_GRID_CELLS = 256
_BERT_MASK = 103  # [MASK] of bert-base-uncased


def vse_infinity(published: PublishedFile) -> Mapped:
    image, text, left_out = published.image, published.text, None
    if image.has("backbone."):
        image.pass_over(r"backbone\..*")
        image.drop_prefix("image_encoder.")
        left_out = "its image network: give the model that network's grid features"
    grid = "mlp.layers.0.weight" not in image
    dimension, width = image.size("fc.weight"), image.size("fc.weight", 1)
    state = {**image.under("fc", "fc"), **_pool(image, "image_pool"), **_pool(text, "text_pool")}
    for theirs, ours in (("layers.0", "first"), ("bns.0", "norm"), ("layers.1", "second")):
        state |= image.under(f"mlp.{theirs}", f"mlp.{ours}")
    image.pass_over(r"mlp\.bns\.1\..*")  # made, and never run
    settings: dict[str, Any] = {"image": "grid" if grid else "region", **published.norms()}
    if text.has("bert."):
        sizes, words = bert_sizes(text, "bert.")
        settings |= {"bert": None, **sizes}
        state |= bert_weights(text, "bert.", "bert") | text.under("linear", "linear")
    else:
        words = text.size("embed.weight")
        settings |= {"text": "bigru", **published.word_sizes()}
        state |= published.words("words")
    settings["dimension"] = dimension
    inputs = Inputs(
        "regions",
        (_GRID_CELLS if grid else REGIONS, width),
        words,
        mask_token=_BERT_MASK if text.has("bert.") else None,
    )
    return Mapped(VseInfinity(**settings), inputs, state, left_out)


def _pool(part: PublishedPart, ours: str) -> State:
    return {
        **part.gru("gpool.gru", f"{ours}.gru"),
        **part.under("gpool.linear", f"{ours}.linear"),
    }
