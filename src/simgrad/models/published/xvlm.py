"""X-VLM's checkpoints: a Swin, a BERT with fusion layers, and the heads of retrieval."""

import math
import re

from simgrad.core.errors import InputError
from simgrad.models.base import Inputs
from simgrad.models.published.file import (
    Mapped,
    PublishedFile,
    PublishedPart,
    bert_sizes,
    bert_weights,
)
from simgrad.models.xvlm import Xvlm

_BERT_MASK = 103  # [MASK] of bert-base-uncased
_PATCH = 4
# What pretraining learns and retrieval never runs.
_OTHER_HEADS = (r"bbox_head\..*", r"text_encoder\.cls\..*")


def xvlm(published: PublishedFile) -> Mapped:
    part = published.image
    if "vision_encoder.patch_embed.proj.weight" not in part:
        raise InputError(f"{published.path}: its image tower is no Swin; only that is imported.")
    start = "text_encoder.bert." if part.has("text_encoder.bert.") else "text_encoder."
    bert, words = bert_sizes(part, start)
    names = " ".join(part.names())
    fusion = len(set(re.findall(r"layer\.(\d+)\.crossattention", names)))
    depths, heads, window = _swin_sizes(part)
    size = _picture_size(published)
    config = Xvlm(
        size=size,
        dimension=part.size("vision_proj.weight"),
        rerank=int(published.option("k_test", 256)),
        swin_width=part.size("vision_encoder.patch_embed.proj.weight"),
        swin_depths="-".join(map(str, depths)),
        swin_heads="-".join(map(str, heads)),
        swin_window=window,
        bert_hidden=bert["bert_hidden"],
        bert_heads=bert["bert_heads"],
        text_layers=bert["bert_layers"] - fusion,
        fusion_layers=fusion,
        temperature=round(float(part.take("temp")), 6) if "temp" in part else 0.07,
        most_words=int(published.option("max_words", 30)),
        most_tokens=int(published.option("max_tokens", 40)),
    )
    # Constants that follow from the sizes.
    part.pass_over(r"vision_encoder\..*\.(relative_position_index|attn_mask)")
    left_out = None
    if part.has("bbox_head.") or part.has("text_encoder.cls."):
        part.pass_over(*_OTHER_HEADS)
        left_out = "the heads of its pretraining (boxes, hidden words)"
    state = {**part.under("vision_encoder", "swin"), **bert_weights(part, start, "bert")}
    for theirs, ours in (
        ("vision_proj", "vision_proj"), ("text_proj", "text_proj"), ("itm_head", "matching_head"),
    ):  # fmt: skip
        state |= part.under(theirs, ours)
    inputs = Inputs("pixels", (3, size, size), words, mask_token=_BERT_MASK)
    return Mapped(config, inputs, state, left_out)


def _tables(part: PublishedPart) -> dict[tuple[int, int], str]:
    """The names of Swin's tables of relative positions, by stage and block."""
    found = {}
    for name in part.names():
        match = re.search(r"layers\.(\d+)\.blocks\.(\d+)\.attn\.relative_position_bias", name)
        if match:
            found[int(match[1]), int(match[2])] = name
    return found


def _window(part: PublishedPart, table: str) -> int:
    return (math.isqrt(part.size(table)) + 1) // 2


def _swin_sizes(part: PublishedPart) -> tuple[list[int], list[int], int]:
    """Depths, heads and window of a Swin, from the shapes of its weights."""
    tables = _tables(part)
    stages = range(1 + max((stage for stage, _ in tables), default=-1))
    if not all((i, 0) in tables for i in stages) or not stages:
        raise InputError(f"{part.path}: partial; blocks of its Swin are missing.")
    depths = [sum(1 for stage, _ in tables if stage == i) for i in stages]
    heads = [part.size(tables[i, 0], 1) for i in stages]
    # The last stage's window may be cut to its resolution; the first one's is the window.
    return depths, heads, _window(part, tables[0, 0])


def _picture_size(published: PublishedFile) -> int:
    """Pixels a side: as the user says, as the masks of shifted windows show, as its config says."""
    if "size" in published.given:
        return int(published.given["size"])
    part = published.image
    for (stage, block), table in _tables(part).items():
        mask = f"vision_encoder.layers.{stage}.blocks.{block}.attn_mask"
        if mask in part:
            side = math.isqrt(part.size(mask)) * _window(part, table)
            return side * _PATCH << stage
    if "image_res" in published.options:
        return int(published.options["image_res"])
    raise InputError(
        f"{published.path}: nothing in it tells the size of pictures; say it, as in "
        '`model="x-vlm(size=384)"`.'
    )
