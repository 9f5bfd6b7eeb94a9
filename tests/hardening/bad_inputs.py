"""Input that cannot be right, over all rooms: recipes, studies, specs, checkpoints, commands.

Damaged data sets have a table of their own in tests/data; requests to the server are in
`bad_requests.py`.
"""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from simgrad.analysis.diagrams import read_triplets
from simgrad.core.files import sha256
from simgrad.data import open_dataset
from simgrad.data.vocabulary import read_published
from simgrad.evaluation import evaluate
from simgrad.mining import Candidates, mine
from simgrad.models import Inputs, build, load
from simgrad.models.unpickle import read_tensors
from simgrad.objectives import objective
from simgrad.retriever.counting import RunBatches
from simgrad.retriever.opening import open_folder
from simgrad.runs.recipe import read_recipe
from simgrad.studies.plan import read_plan
from simgrad.studies.study import Study
from simgrad.training import Run, train
from tests.hardening import lies
from tests.hardening.bad_files import FILES
from tests.hardening.bad_texts import RECIPES, RUNS, SPECS, STUDIES
from tests.hardening.jobs import recipe

Attempt = Callable[[Path, Path], object]  # (empty folder, a finished run) -> must not succeed


def _write(folder: Path, name: str, content: bytes | str) -> Path:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def _copied(folder: Path, run: Path) -> Path:
    return Path(shutil.copytree(run, folder / "run"))


def _described(change: Callable[[dict[str, Any]], object], rehash: bool = False) -> Attempt:
    """A checkpoint whose description was changed."""

    def attempt(folder: Path, run: Path) -> object:
        best = _copied(folder, run) / "best"
        value = json.loads((best / "model.json").read_text())
        change(value)
        (best / "model.json").write_text(json.dumps(value))
        return load(best)

    return attempt


def _file(name: str, change: Callable[[bytes], bytes], use: Callable[[Path], object]) -> Attempt:
    """A run with one file changed."""

    def attempt(folder: Path, run: Path) -> object:
        copy = _copied(folder, run)
        path = copy / name
        path.write_bytes(change(path.read_bytes()))
        return use(copy)

    return attempt


def _foreign_weights(folder: Path, run: Path) -> object:
    from safetensors.torch import save_file

    best = _copied(folder, run) / "best"
    save_file({"a": torch.zeros(2)}, best / "model.safetensors")
    value = json.loads((best / "model.json").read_text())
    value["weights_sha256"] = sha256(best / "model.safetensors")
    (best / "model.json").write_text(json.dumps(value))
    return load(best)


def _huge_header(folder: Path, run: Path) -> object:
    best = _copied(folder, run) / "best"
    (best / "model.safetensors").write_bytes((1 << 62).to_bytes(8, "little") + b"{}")
    return load(best)


def _link(folder: Path, run: Path) -> object:
    os.symlink(folder / "loop", folder / "loop")
    return open_dataset(folder / "loop")


def _vocabulary(value: object) -> Attempt:
    return lambda folder, run: read_published(_write(folder, "v.json", json.dumps(value)))


def _evaluated(change: Callable[[np.ndarray], object]) -> Attempt:
    def attempt(folder: Path, run: Path) -> object:
        images = np.eye(4, dtype=np.float32)
        change(images)
        return evaluate(images, np.eye(4, dtype=np.float32), np.arange(4), normalise=True)

    return attempt


def _set(place: object, value: float) -> Callable[[np.ndarray], object]:
    return lambda array: array.__setitem__(place, value)  # type: ignore[index]


OTHERS: dict[str, Attempt] = {
    "checkpoint: another format": _described(lambda v: v.update(format="x")),
    "checkpoint: no model": _described(lambda v: v.pop("model")),
    "checkpoint: model is a number": _described(lambda v: v.update(model=3)),
    "checkpoint: unknown model": _described(lambda v: v.update(model="gpt")),
    "checkpoint: another size": _described(lambda v: v.update(model="vse++(dimension=8)")),
    "checkpoint: negative size": _described(lambda v: v.update(model="vse++(dimension=-8)")),
    "checkpoint: absurd size": _described(lambda v: v.update(model="vse++(dimension=9000000000)")),
    "checkpoint: inputs are empty": _described(lambda v: v.update(inputs={})),
    "checkpoint: inputs are odd": _described(lambda v: v["inputs"].update(image_shape=["x"])),
    "checkpoint: inputs are negative": _described(lambda v: v["inputs"].update(image_shape=[-5])),
    "checkpoint: tokenizer is a list": _described(lambda v: v.update(tokenizer=[1])),
    "checkpoint: unknown tokenizer": _described(lambda v: v.update(tokenizer={"kind": "x"})),
    "checkpoint: words are numbers": _described(
        lambda v: v.update(tokenizer={"kind": "words", "words": [1]})
    ),
    "checkpoint: hash of others": _described(lambda v: v.update(weights_sha256="0" * 64)),
    "checkpoint: weights cut": _file(
        "best/model.safetensors", lambda b: b[:-1], lambda r: load(r / "best")
    ),
    "checkpoint: weights of others": _foreign_weights,
    "checkpoint: header beyond memory": _huge_header,
    "checkpoint: no folder": lambda folder, run: load(folder / "none"),
    "run: no folder": lambda folder, run: Run.open(folder / "none"),
    "run: no run": lambda folder, run: Run.open(folder),
    "run: run.json cut": _file("run.json", lambda b: b[:40], lambda r: Run.open(r).info),
    "run: run.json is a list": _file("run.json", lambda b: b"[1]", lambda r: Run.open(r).finished),
    "run: run.json of digits": _file(
        "run.json", lambda b: b'{"seed": ' + b"9" * 5000 + b"}", lambda r: Run.open(r).info
    ),
    "run: test.json cut": _file("test.json", lambda b: b[:9], lambda r: Run.open(r).test),
    "run: time is a list": _file(
        "run.json", lambda b: b'{"seconds": []}', lambda r: Run.open(r).info
    ),
    "run: a metric is a list": _file(
        "test.json", lambda b: b'{"rsum": []}', lambda r: Run.open(r).test
    ),
    "run: a metric of 400 digits": _file(
        "test.json", lambda b: b'{"rsum": %s}' % (b"7" * 400), lambda r: Run.open(r).test
    ),
    "run: triplets cut": _file("triplets.npz", lambda b: b[:-9], read_triplets),
    "run: triplets with two names": _file(
        "triplets.npz", lambda b: b.replace(b"early.npy", b"early.npx", 1), read_triplets
    ),
    "run: another objective than it learned with": _file(
        "recipe.yaml",
        lambda b: b.replace(b"nt-xent(learned=true)", b"triplet"),
        lambda r: RunBatches(open_folder(r)),
    ),
    "run: recipe damaged": _file("recipe.yaml", lambda b: b"{", lambda r: Run.open(r).recipe),
    "run: ranks cut": _file("ranks.parquet", lambda b: b[:-9], lambda r: Run.open(r).ranks()),
    "run: ranks are text": _file("ranks.parquet", lambda b: b"x", lambda r: Run.open(r).ranks()),
    "study: no folder": lambda folder, run: Study.open(folder / "none"),
    "study: no study": lambda folder, run: Study.open(folder),
    "candidates: none": lambda folder, run: Candidates.load(folder),
    "mining: another width": lambda folder, run: mine(torch.eye(3), torch.ones(3, 2), range(3)),
    "mining: rows beyond": lambda folder, run: mine(torch.eye(3), torch.eye(3), [0, 1, 9]),
    "mining: no depth": lambda folder, run: mine(torch.eye(3), torch.eye(3), range(3), 0),
    "data: link to itself": _link,
    "data: a device": lambda folder, run: open_dataset("/dev/null"),
    "data: empty folder": lambda folder, run: open_dataset(folder),
    "data: empty name": lambda folder, run: open_dataset(""),
    "model: regions of one vector": lambda folder, run: build("scan", Inputs("features", (8,), 10)),
    "vocabulary: a list": _vocabulary([1]),
    "vocabulary: empty": _vocabulary({}),
    "vocabulary: ids beyond": _vocabulary({"word2idx": {"a": 2**40}}),
    "vocabulary: an id twice": _vocabulary({"word2idx": {"a": 0, "b": 0}}),
    "vocabulary: numbers": _vocabulary({"words": [1, 2]}),
    "tensors: empty": lambda folder, run: read_tensors(_write(folder, "a.pth", b"")),
    "tensors: text": lambda folder, run: read_tensors(_write(folder, "a.pth", "hello")),
    "tensors: zip cut": lambda folder, run: read_tensors(_write(folder, "a.pth", b"PK\3\4 cut")),
    "evaluation: NaN": _evaluated(_set((1, 1), float("nan"))),
    "evaluation: infinite": _evaluated(_set((2, 0), float("inf"))),
    "evaluation: another width": lambda folder, run: evaluate(
        np.eye(4), np.ones((4, 3)), np.arange(4)
    ),
}


def attempts() -> dict[str, Attempt]:
    """Every case of this file by name, but for command lines."""

    def as_recipe(content: bytes | str) -> Attempt:
        return lambda folder, run: read_recipe(_write(folder, "r.yaml", content))

    def as_study(content: str) -> Attempt:
        return lambda folder, run: read_plan(_write(folder, "s.yaml", content))

    def as_run(changes: dict[str, Any]) -> Attempt:
        return lambda folder, run: train(recipe(**changes), folder / "out", quiet=True)

    return {
        **lies.attempts(),
        **{f"recipe: {name}": as_recipe(content) for name, content in RECIPES.items()},
        **{f"training: {name}": as_run(changes) for name, changes in RUNS.items()},
        **{f"study: {name}": as_study(content) for name, content in STUDIES.items()},
        **{f"spec: {name}": lambda f, r, s=spec: objective(s) for name, spec in SPECS.items()},
        **OTHERS,
        **FILES,
    }
