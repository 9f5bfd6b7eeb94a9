"""Published checkpoints with BERT or learnt pooling: VSE-infinity and X-VLM."""

import math
import re
from typing import Any

from simgrad.core.errors import InputError
from simgrad.models.base import Inputs
from simgrad.models.networks.bert import from_transformers
from simgrad.models.published.file import Published, State
from simgrad.models.published.layers import REGIONS, Mapped, gru, plain
from simgrad.models.vse_infinity import VseInfinity
from simgrad.models.xvlm import Xvlm

_GRID_CELLS = 256
_BERT_MASK = 103  # [MASK] of bert-base-uncased


def _pool(part: State, theirs: str, ours: str) -> State:
    return {
        **gru(part, f"{theirs}.gru", f"{ours}.gru"),
        **plain(part, f"{theirs}.linear", f"{ours}.linear"),
    }


def vse_infinity(published: Published) -> Mapped:
    for name in ("no_imgnorm", "no_txtnorm"):
        published.only(name, False)
    whole, text = published.image, published.text
    network = any(name.startswith("backbone.") for name in whole)
    image = plain(whole, "image_encoder", "x") if network else whole
    image = {name.removeprefix("x."): tensor for name, tensor in image.items()}
    state = {**plain(image, "fc", "fc"), **_pool(image, "gpool", "image_pool")}
    grid = "mlp.layers.0.weight" not in image
    for theirs, ours in (("layers.0", "first"), ("bns.0", "norm"), ("layers.1", "second")):
        state |= plain(image, f"mlp.{theirs}", f"mlp.{ours}")
    state |= _pool(text, "gpool", "text_pool")
    bert = any(name.startswith("bert.") for name in text)
    settings: dict[str, Any] = {"image": "grid" if grid else "region"}
    if bert:
        more, words = _bert_text(published)
        state |= {f"bert.{k}": v for k, v in _bert_state(text).items()}
        state |= plain(text, "linear", "linear")
        settings |= more
    else:
        words = published.size(text, "embed.weight")
        state |= {**plain(text, "embed", "words.embed"), **gru(text, "rnn", "words.rnn")}
        settings |= {"text": "bigru", "word_dimension": published.size(text, "embed.weight", 1)}
    config = VseInfinity(dimension=published.size(image, "fc.weight"), **settings)
    shape = (_GRID_CELLS if grid else REGIONS, published.size(image, "fc.weight", 1))
    inputs = Inputs("regions", shape, words, mask_token=_BERT_MASK if bert else None)
    left_out = "its image network: give the model that network's grid features" if network else None
    return config, inputs, state, left_out


def _bert_text(published: Published) -> tuple[dict[str, Any], int]:
    name = "bert.embeddings.word_embeddings.weight"
    hidden = published.size(published.text, name, 1)
    settings = {
        "bert": None,
        "bert_hidden": hidden,
        "bert_layers": _bert_layers(published.text),
        "bert_heads": max(1, hidden // 64),
    }
    return settings, published.size(published.text, name)


def _bert_layers(state: State) -> int:
    return 1 + max(
        (int(n) for n in re.findall(r"encoder\.layer\.(\d+)\.", " ".join(state))), default=-1
    )


def _bert_state(text: State) -> State:
    return from_transformers(
        {k: v for k, v in text.items() if k.startswith("bert.")}, _bert_layers(text)
    )


def xvlm(published: Published) -> Mapped:
    everything = published.image
    vision = {
        name: tensor
        for name, tensor in plain(everything, "vision_encoder", "swin").items()
        if not name.endswith(("relative_position_index", "attn_mask"))
    }
    if "swin.patch_embed.proj.weight" not in vision:
        raise InputError(f"{published.path}: its image tower is no Swin; only that is imported.")
    text = {
        k.removeprefix("bert."): v for k, v in plain(everything, "text_encoder", "bert").items()
    }
    text = {k.removeprefix("bert."): v for k, v in text.items()}
    layers = _bert_layers(text)
    fusion = len(set(re.findall(r"layer\.(\d+)\.crossattention", " ".join(text))))
    hidden = published.size(text, "embeddings.word_embeddings.weight", 1)
    depths, heads, window = _swin_sizes(vision)
    size = int(published.option("image_res", 384))
    config = Xvlm(
        size=size,
        dimension=published.size(everything, "vision_proj.weight"),
        rerank=int(published.option("k_test", 256)),
        swin_width=published.size(vision, "swin.patch_embed.proj.weight"),
        swin_depths=depths,
        swin_heads=heads,
        swin_window=window,
        bert_hidden=hidden,
        bert_heads=max(1, hidden // 64),
        text_layers=layers - fusion,
        fusion_layers=fusion,
        temperature=_temperature(everything),
    )
    state = {**vision, **{f"bert.{k}": v for k, v in from_transformers(text, layers).items()}}
    for ours, theirs in (("vision_proj",) * 2, ("text_proj",) * 2, ("matching_head", "itm_head")):
        state |= plain(everything, theirs, ours)
    words = published.size(text, "embeddings.word_embeddings.weight")
    return config, Inputs("pixels", (3, size, size), words, mask_token=_BERT_MASK), state, None


def _temperature(state: State) -> float:
    learnt = state.get("temp")
    return 0.07 if learnt is None else round(float(learnt), 6)


def _swin_sizes(vision: State) -> tuple[str, str, int]:
    """Depths, heads and window of a Swin, from the shapes of its weights."""
    tables = {
        (int(match[1]), int(match[2])): tensor
        for name, tensor in vision.items()
        if (match := re.search(r"layers\.(\d+)\.blocks\.(\d+)\.attn\.relative", name))
    }
    stages = range(1 + max((stage for stage, _ in tables), default=-1))
    depths = [sum(1 for stage, _ in tables if stage == i) for i in stages]
    heads = [int(tables[i, 0].shape[1]) for i in stages]
    # The last stage's window may be cut to its resolution; the first one's is the window.
    window = (math.isqrt(int(tables[0, 0].shape[0])) + 1) // 2
    return "-".join(map(str, depths)), "-".join(map(str, heads)), window
