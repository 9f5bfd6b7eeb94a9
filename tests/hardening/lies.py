"""Checkpoints that lie, with the right hashes: a stranger can compute these, too."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save_file

from simgrad.core.files import sha256
from simgrad.models import load
from simgrad.models.checkpoint import _content_hash

Weights = dict[str, Any]

DESCRIPTIONS: dict[str, Callable[[dict[str, Any]], object]] = {
    "a dimension of a billion": lambda told: told.update(
        model=told["model"].replace("dimension=16", "dimension=1000000000")
    ),
    "another model": lambda told: told.update(model="scan(dimension=16, word_dimension=8)"),
    "a width of a billion": lambda told: told["inputs"].update(image_shape=[1_000_000_000]),
    "a vocabulary of a billion": lambda told: told["inputs"].update(vocabulary_size=1_000_000_000),
    "no inputs": lambda told: told.update(inputs=[]),
    "a tokenizer of lists": lambda told: told.update(tokenizer=[[[]]]),
    "parts that are a number": lambda told: told.update(parts=3),
}


def _largest(weights: Weights) -> str:
    return max(weights, key=lambda name: weights[name].size)


def _changed(change: Callable[[Any], Any]) -> Callable[[Weights], Weights]:
    return lambda w: {**w, _largest(w): change(w[_largest(w)])}


WEIGHTS: dict[str, Callable[[Weights], Weights]] = {
    "no weights": lambda w: {},
    "weights of other shapes": _changed(lambda x: x.reshape(-1)),
    "weights that are whole numbers": _changed(lambda x: x.astype(np.int64)),
    "weights that are NaN": _changed(lambda x: x * np.float32("nan")),
    "weights that are infinite": _changed(lambda x: x + np.float32("inf")),
    "a weight too many": lambda w: {**w, "hidden": np.zeros(3, dtype=np.float32)},
}


def attempts() -> dict[str, Callable[[Path, Path], object]]:
    """Each lie by name: (an empty folder, a finished run) -> what must be refused."""

    def lying(name: str) -> Callable[[Path, Path], object]:
        def attempt(folder: Path, run: Path) -> object:
            shutil.copytree(run / "best", folder / "best")
            weights, file = folder / "best" / "model.safetensors", folder / "best" / "model.json"
            if name in WEIGHTS:
                save_file(WEIGHTS[name](load_file(weights)), weights)
            told = {k: v for k, v in json.loads(file.read_text()).items() if k != "sha256"}
            told["weights_sha256"] = sha256(weights)
            if name in DESCRIPTIONS:
                DESCRIPTIONS[name](told)
            file.write_text(json.dumps({**told, "sha256": _content_hash(told)}))
            return load(folder / "best")

        return attempt

    return {f"lie: {name}": lying(name) for name in (*DESCRIPTIONS, *WEIGHTS)}
