"""Checkpoints as the published code writes them, from one of our models' weights."""

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from simgrad.models.base import RetrievalModel

State = dict[str, Tensor]


def gru(state: State, ours: str, theirs: str) -> State:
    found = {}
    for name in ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0"):
        if f"{ours}.{name}" in state:
            found[f"{theirs}.{name}"] = state[f"{ours}.{name}"]
        else:
            found[f"{theirs}.{name}"] = state[f"{ours}.onward.{name}"]
            found[f"{theirs}.{name}_reverse"] = state[f"{ours}.backward_.{name}"]
    return found


def under(state: State, ours: str, theirs: str) -> State:
    start = f"{ours}."
    return {theirs + k[len(ours) :]: v for k, v in state.items() if k.startswith(start)}


def words(state: State) -> State:
    return {"embed.weight": state["text.embed.weight"], **gru(state, "text.rnn", "rnn")}


def vsrn_image(state: State) -> State:
    found = {**under(state, "fc", "fc"), **gru(state, "region_rnn", "img_rnn")}
    found |= under(state, "norm", "bn")
    for i in range(4):
        ours, theirs = f"relations.{i}", f"Rs_GCN_{i + 1}"
        for end in ("weight", "bias"):
            parts = state[f"{ours}.ask.{end}"].chunk(3)
            for name, part in zip(("theta", "phi", "g"), parts, strict=True):
                found[f"{theirs}.{name}.{end}"] = part[..., None] if end == "weight" else part
            out = state[f"{ours}.out.{end}"]
            found[f"{theirs}.W.0.{end}"] = out[..., None] if end == "weight" else out
        found |= under(state, f"{ours}.norm", f"{theirs}.W.1")
    return found


def bert(state: State, ours: str, theirs: str) -> State:
    found = {}
    for a, b in (("words", "word"), ("positions", "position"), ("kinds", "token_type")):
        found[f"{theirs}embeddings.{b}_embeddings.weight"] = state[f"{ours}.{a}.weight"]
    found |= under(state, f"{ours}.norm", f"{theirs}embeddings.LayerNorm")
    found[f"{theirs}embeddings.position_ids"] = torch.arange(512)[None]
    i = 0
    while f"{ours}.layers.{i}.inner.weight" in state:
        here, there = f"{ours}.layers.{i}", f"{theirs}encoder.layer.{i}"
        for a, b in (("attention", "attention"), ("cross", "crossattention")):
            if f"{here}.{a}.ask.weight" not in state:
                continue
            found |= under(state, f"{here}.{a}.ask", f"{there}.{b}.self.query")
            for end in ("weight", "bias"):
                key, value = state[f"{here}.{a}.look.{end}"].chunk(2)
                found[f"{there}.{b}.self.key.{end}"] = key
                found[f"{there}.{b}.self.value.{end}"] = value
            found |= under(state, f"{here}.{a}.out", f"{there}.{b}.output.dense")
            found |= under(state, f"{here}.{a}.norm", f"{there}.{b}.output.LayerNorm")
        found |= under(state, f"{here}.inner", f"{there}.intermediate.dense")
        found |= under(state, f"{here}.outer", f"{there}.output.dense")
        found |= under(state, f"{here}.norm", f"{there}.output.LayerNorm")
        i += 1
    return found


def pool(state: State, ours: str) -> State:
    return {
        **gru(state, f"{ours}.gru", "gpool.gru"),
        "gpool.linear.weight": state[f"{ours}.linear.weight"],
    }


def infinity_image(state: State) -> State:
    found = {**under(state, "fc", "fc"), **pool(state, "image_pool")}
    if "mlp.first.weight" in state:
        found |= under(state, "mlp.first", "mlp.layers.0") | under(state, "mlp.norm", "mlp.bns.0")
        found |= under(state, "mlp.second", "mlp.layers.1")
        found["mlp.bns.1.weight"] = torch.ones(len(state["fc.bias"]))  # published, never used
    return found


def infinity_text(state: State) -> State:
    found = pool(state, "text_pool")
    if "words.embed.weight" in state:
        return {
            **found,
            "embed.weight": state["words.embed.weight"],
            **gru(state, "words.rnn", "rnn"),
        }
    return {**found, **under(state, "linear", "linear"), **bert(state, "bert", "bert.")}


def xvlm_state(state: State) -> State:
    found = {**under(state, "swin", "vision_encoder"), **bert(state, "bert", "text_encoder.")}
    for block in ("layers.0.blocks.1", "layers.1.blocks.1"):
        found[f"vision_encoder.{block}.attn.relative_position_index"] = torch.zeros(16, 16)
    found["vision_encoder.layers.0.blocks.1.attn_mask"] = torch.zeros(4, 16, 16)
    for ours, theirs in (("vision_proj",) * 2, ("text_proj",) * 2, ("matching_head", "itm_head")):
        found |= under(state, ours, theirs)
    return {**found, "temp": torch.tensor(0.05)}


def checkpoint(kind: str, model: RetrievalModel) -> dict[str, Any]:
    """The content of a published file."""
    state = model.state_dict()
    if kind == "x-vlm":
        return {"model": xvlm_state(state), "config": {"image_res": 32, "k_test": 128}}
    options: dict[str, Any] = {"embed_size": 16, "word_dim": 8, "num_layers": 1, "margin": 0.2}
    if kind == "vsrn":
        encoders = [vsrn_image(state), words(state)]
        options |= {"data_name": "f30k_precomp"} if "norm.weight" in state else {}
    elif kind == "vse-infinity":
        encoders = [infinity_image(state), infinity_text(state)]
    else:
        encoders = [under(state, "fc", "fc"), words(state)]
        options |= {
            "vse++": {"measure": "cosine", "use_abs": False, "no_imgnorm": False},
            "scan": {
                "cross_attn": "t2i",
                "agg_func": "LogSumExp",
                "lambda_lse": 6.0,
                "lambda_softmax": 9.0,
                "bi_gru": True,
                "raw_feature_norm": "clipped_l2norm",
            },
            "bfan": {"focal_type": "prob", "lambda_softmax": 20.0},
        }[kind]
    return {
        "epoch": 7,
        "model": encoders,
        "best_rsum": np.float64(412.25),
        "opt": argparse.Namespace(**options),
        "Eiters": 1000,
    }


def parallel(state: State) -> State:
    """Names as data-parallel training writes them."""
    return {f"module.{name}": tensor for name, tensor in state.items()}


def write(path: Path, content: Any, *, old_format: bool = False) -> Path:
    torch.save(content, path, _use_new_zipfile_serialization=not old_format)
    return path
