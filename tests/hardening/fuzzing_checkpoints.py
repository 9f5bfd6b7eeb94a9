"""Damaged checkpoints and vocabularies: bytes of whole files changed, cut out and put in."""

import io
import json
import pickle
import tempfile
import warnings
from contextlib import suppress
from functools import cache
from pathlib import Path

import torch
from hypothesis import strategies as st

from simgrad.core.errors import InputError
from simgrad.core.files import sha256
from simgrad.data.vocabulary import read_published
from simgrad.models import load
from simgrad.models.unpickle import read_tensors
from tests.hardening.jobs import run_job

Edit = tuple[int, int, bytes]  # place, how many bytes go, what comes instead
_NAMES = ["new.pth", "old.pth", "vocabulary.pkl", "old_vocabulary.pkl", "model.json", "weights"]
DAMAGED = st.tuples(
    st.sampled_from(_NAMES),
    st.lists(
        st.tuples(st.integers(0, 5000), st.integers(0, 40), st.binary(max_size=8)),
        min_size=1,
        max_size=3,
    ),
)


@cache
def _trained() -> tempfile.TemporaryDirectory[str]:
    folder = tempfile.TemporaryDirectory(prefix="fuzzed")
    run_job().work(Path(folder.name) / "run")
    return folder


@cache
def _whole(name: str) -> bytes:
    """A file that can be read."""
    buffer = io.BytesIO()
    value = {"model": {"a": torch.ones(3, 4), "b": [1, 2.0, "x"]}, "epoch": 3}
    words = {"word2idx": {"<pad>": 0, "<start>": 1, "<end>": 2, "<unk>": 3, "dog": 4}, "idx": 5}
    best = Path(_trained().name) / "run" / "best"
    match name:
        case "new.pth" | "old.pth":
            torch.save(value, buffer, _use_new_zipfile_serialization=name.startswith("new"))
            return buffer.getvalue()
        case "vocabulary.pkl" | "old_vocabulary.pkl":
            return pickle.dumps(words, protocol=0 if name.startswith("old") else 4)
        case "model.json":
            return (best / "model.json").read_bytes()
        case _:
            return (best / "model.safetensors").read_bytes()


def _read(name: str, content: bytes, folder: Path) -> None:
    if name.endswith(".pth"):
        (folder / name).write_bytes(content)
        read_tensors(folder / name)
    elif name.endswith(".pkl"):
        (folder / name).write_bytes(content)
        read_published(folder / name)
    else:
        _load(name, content, folder)


def _load(name: str, content: bytes, folder: Path) -> None:
    """A checkpoint of ours; damaged weights pass its checksum, to get to the reader behind it."""
    weights = content if name == "weights" else _whole("weights")
    (folder / "model.safetensors").write_bytes(weights)
    description = content if name == "model.json" else _whole("model.json")
    if name == "weights":
        told = {**json.loads(description), "weights_sha256": sha256(folder / "model.safetensors")}
        description = json.dumps(told).encode()
    (folder / "model.json").write_bytes(description)
    load(folder)


def checkpoints(damage: tuple[str, list[Edit]]) -> None:
    """Read, or refused in plain words."""
    name, edits = damage
    content = bytearray(_whole(name))
    for place, gone, come in edits:
        place %= len(content) + 1
        content[place : place + gone] = come
    with tempfile.TemporaryDirectory() as folder, suppress(InputError), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _read(name, bytes(content), Path(folder))
