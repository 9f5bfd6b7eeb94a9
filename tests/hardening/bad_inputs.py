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

from simgrad.data import open_dataset
from simgrad.data.vocabulary import read_published
from simgrad.evaluation import evaluate
from simgrad.files import sha256
from simgrad.models import Inputs, build, load
from simgrad.models.unpickle import read_tensors
from simgrad.objectives import objective
from simgrad.studies.plan import read_plan
from simgrad.studies.study import Study
from simgrad.training import Run
from simgrad.training.loop import train
from simgrad.training.mining import Candidates, mine
from simgrad.training.recipe import read_recipe
from tests.hardening.jobs import recipe

Attempt = Callable[[Path, Path], object]  # (empty folder, a finished run) -> must not succeed

LAUGHS = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{b}: &{b} [{','.join(['*' + a] * 9)}]\n" for a, b in zip("abcdefgh", "bcdefghi", strict=True)
)
RECIPES: dict[str, bytes | str] = {
    "empty": "",
    "a list": "- data: scenes\n",
    "a word": "scenes",
    "a number": "7",
    "unknown field": "objectiv: triplet\n",
    "tab for a space": "data:\n\t- scenes\n",
    "not closed": 'data: "scenes\n',
    "latin-1": "data: caf\xe9\n".encode("latin-1"),
    "utf-16": "data: scenes\n".encode("utf-16"),
    "nul": b"data: sc\0enes\n",
    "binary": bytes(range(256)),
    "billion laughs": LAUGHS,
    "recursive": "data: &a [*a]\n",
    "a merge of itself": "<<: &a {<<: *a}\n",
    "nested without end": "data: " + "[" * 20_000,
    "braces without end": "{" * 20_000,
    "python object": "data: !!python/object/apply:os.system ['touch pwned']\n",
    "python name": "data: !!python/name:os.system\n",
    "too large": "#" * (1 << 20) + "\ndata: scenes\n",
    "two documents": "data: scenes\n---\ndata: scenes\n",
    "number for a field": "1: scenes\n",
    "text for a number": "batch: many\n",
    "fraction for a number": "batch: 1.5\n",
    "yes for a number": "epochs: true\n",
    "number for yes": "drop_last: 1\n",
    "list for a text": "data: [scenes]\n",
    "null for a text": "model:\n",
    "absurd seed": "seed: 1000000000000000000000000000000\n",
    "digits without end": "seed: " + "9" * 5000 + "\n",
    "negative batch": "batch: -1\n",
    "no epochs": "epochs: 0\n",
    "not a number": "lr: .nan\n",
    "infinite": "lr: .inf\n",
    "beyond floats": "lr: 1e400\n",
    "one beta": "betas: [0.9]\n",
    "betas above one": "betas: [2, 3]\n",
    "unknown choice": "sampler: tripels\n",
    "unhashable choice": "sampler: [pairs]\n",
    "text for two rounds": "second_round: yes please\n",
    "numbers for fields": "second_round: {1: 2}\n",
    "a date": "seed: 2024-01-01\n",
}
RUNS: dict[str, dict[str, Any]] = {  # well-formed recipes that cannot be run
    "no such metric": {"select": "nonsense"},
    "no such device": {"device": "banana"},
    "a GPU that is not there": {"device": "cuda:99"},
    "no such data": {"data": "nowhere/at/all"},
    "nul in a path": {"data": "a\0b"},
    "name longer than names": {"data": "x" * 5000},
    "no such features": {"features": "nowhere"},
    "no such vocabulary": {"vocabulary": "nowhere.json"},
    "no such split": {"vocabulary_splits": ("nowhere",)},
    "no such start": {"start_from": "nowhere"},
    "no such candidates": {"candidates": "nowhere", "objective": "off-tri"},
    "offline without candidates": {"objective": "off-quin"},
    "regions wanted": {"model": "scan"},
    "no dimension": {"model": "vse++(dimension=0)"},
    "negative dimension": {"model": "vse++(dimension=-1)"},
    "absurd dimension": {"model": "vse++(dimension=10000000000)"},
    "no train split": {"data": "scenes(train=0, val=20, test=20, features=global)"},
    "no val split": {"data": "scenes(train=20, val=0, test=20, features=global)"},
    "negative scenes": {"data": "scenes(train=-5)"},
    "scenes without end": {"data": "scenes(train=100000000000)"},
    "absurd learning rate": {"lr": 1e300},
    "absurd weight decay": {"weight_decay": 1e308},
    "unknown second round": {"second_round": {"nope": 1}},
    "second round in a second round": {"second_round": {"second_round": {"epochs": 1}, "lr": "x"}},
    "only a partial batch": {"batch": 10**6, "drop_last": True},
}
STUDIES: dict[str, str] = {
    "nothing to run": "title: a\n",
    "unknown key": "tilte: a\ngrid: {objective: [triplet]}\n",
    "grid is a list": "grid: [triplet]\n",
    "grid of no list": "grid: {objective: triplet}\n",
    "grid of nothing": "grid: {objective: []}\n",
    "unknown field in a grid": "grid: {objektive: [a, b]}\n",
    "unknown objective": "grid: {objective: [tripel]}\n",
    "unknown model": "grid: {model: [vse+++]}\n",
    "rows is a text": "rows: a\n",
    "row without label": "rows: [{set: {lr: 1}}]\n",
    "row with more": "rows: [{label: a, colour: red}]\n",
    "two of one name": "rows: [{label: a}, {label: a}]\n",
    "set is a list": "rows: [{label: a, set: [1]}]\n",
    "no seeds": "grid: {objective: [triplet]}\nseeds: 0\n",
    "seeds without end": "grid: {objective: [triplet]}\nseeds: 1000000000\n",
    "seeds of text": "grid: {objective: [triplet]}\nseeds: [a]\n",
    "absurd seeds": "grid: {objective: [triplet]}\nseeds: [99999999999999999999]\n",
    "recipe is a text": "recipe: a\ngrid: {objective: [triplet]}\n",
    "unhashable baseline": "grid: {objective: [triplet]}\nbaseline: [a]\nrows: 3\n",
    "metrics is a number": "grid: {objective: [triplet]}\nmetrics: 5\n",
    "grid without end": "grid: {seed: [" + "1," * 3000 + "1], lr: [" + "1," * 3000 + "1]}\n",
    "wrong second round": "rows: [{label: a, set: {second_round: {nope: 1}}}]\n",
}
SPECS: dict[str, str] = {
    "empty": "",
    "space": "   ",
    "unknown": "tripel",
    "not closed": "triplet(margin=1",
    "closed twice": "triplet(margin=1))",
    "no value": "triplet(margin=)",
    "no key": "triplet(=1)",
    "no equals": "triplet(1)",
    "twice": "triplet(margin=1, margin=1)",
    "unknown parameter": "triplet(marge=1)",
    "not a number": "triplet(margin=nan)",
    "infinite": "triplet(margin=inf)",
    "beyond floats": "triplet(margin=1e999)",
    "text": "triplet(margin=wide)",
    "code": "triplet(margin=__import__('os'))",
    "zero temperature": "nt-xent(tau=0)",
    "unknown choice": "goal(triplet=square)",
    "nul": "triplet\0",
    "full-width": "ｔｒｉｐｌｅｔ",
    "right to left": "\u202etelpirt",
    "zero width": "trip\u200blet",
    "too long": "triplet(" + " " * 5000 + ")",
    "commas without end": "triplet(" + "," * 1500 + ")",
    "nested without end": "triplet(margin=" + "(" * 900 + ")" * 900 + ")",
    "another script's digits": "triplet(margin=\u0667e\u0667\u0667\u0667)",
}
COMMANDS: dict[str, list[str]] = {
    "no such command": ["trian"],
    "no such option": ["train", "--objektive", "triplet"],
    "option without value": ["train", "--seed"],
    "text for a number": ["train", "--seed", "x"],
    "no such recipe": ["train", "nowhere.yaml"],
    "recipe is a folder": ["train", "."],
    "nul in a name": ["train", "a\0b"],
    "no such objective": ["train", "--objective", "tripel", "--output", "out"],
    "no such data": ["train", "--data", "nowhere", "--output", "out"],
    "no such study": ["study", "nowhere.yaml"],
    "study of a run's folder": ["study", "."],
    "no seeds": ["study", "nowhere.yaml", "--seeds", "0"],
    "no such run to evaluate": ["evaluate", "nowhere"],
    "nothing to evaluate": ["evaluate"],
    "no such run to report": ["report", "nowhere"],
    "no such format": ["report", "nowhere", "--format", "docx"],
    "no such run to mine": ["mine", "nowhere"],
    "no such run to search": ["search", "nowhere", "a dog"],
    "no such run to count": ["cocos", "nowhere"],
    "no such objective to draw": ["diagram", "tripel"],
    "no such file to import": ["import", "nowhere.pth", "--to", "out"],
    "no such data to look at": ["datasets", "nowhere"],
    "no such data for features": ["features", "nowhere"],
    "no such backbone": ["features", "scenes(train=2)", "--backbone", "resnet51"],
    "no pictures at all": ["features", "scenes(train=2)", "--limit", "0"],
    "no such port": ["serve", "--port", "99999999"],
    "no such file to run first": ["--with", "nowhere.py", "objectives"],
    "nothing to run first": ["--with"],
}


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
    "run: test.json cut": _file("test.json", lambda b: b[:9], lambda r: Run.open(r).test),
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
        **{f"recipe: {name}": as_recipe(content) for name, content in RECIPES.items()},
        **{f"training: {name}": as_run(changes) for name, changes in RUNS.items()},
        **{f"study: {name}": as_study(content) for name, content in STUDIES.items()},
        **{f"spec: {name}": lambda f, r, s=spec: objective(s) for name, spec in SPECS.items()},
        **OTHERS,
    }
