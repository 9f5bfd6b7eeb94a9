"""README and docs/: code blocks run as they stand; commands and options that they name exist."""

import json
import os
import re
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

import simgrad
from simgrad.runs.recipe import read_recipe
from simgrad.studies.plan import plan_from_dict
from tests.named_commands import FENCE, commands, misread
from tests.test_contributing import PAGES as DECLARED_ELSEWHERE

ROOT = Path(__file__).parents[1]
PAGES = {
    path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
    for path in (
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        *sorted((ROOT / "docs").glob("*.md")),
        ROOT / "examples" / "README.md",
        ROOT / "benchmarks" / "README.md",
        *sorted((ROOT / "results").rglob("*.md")),
    )
}


# -- Python


def python_blocks(text: str) -> list[str]:
    """Those that declare something of one's own run in a process of their own, elsewhere:
    tests/test_contributing.py and tests/test_readme.py."""
    blocks = [code for language, code in FENCE.findall(text) if language == "python"]
    return [
        code for code in blocks if not re.search(r"^@.*\b(declare|metric)\(", code, re.MULTILINE)
    ]


SKETCH = "benchmarks/README.md"  # of a benchmark; its names are given below
WITH_PYTHON = [name for name, text in PAGES.items() if python_blocks(text) and name != SKETCH]
GRID = {
    "recipe": {
        "data": "scenes(train=40, val=10, test=10, features=global)",
        "model": "vse++(dimension=16, word_dimension=8)",
        "batch": 16,
        "epochs": 1,
    },
    "grid": {"objective": ["triplet-sh", "nt-xent"]},
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with what the pages name: a study, runs, a data set."""
    folder, before = tmp_path_factory.mktemp("pages"), Path.cwd()
    os.chdir(folder)
    try:
        study = simgrad.Study.create(plan_from_dict(GRID, "grid"), "my-study")
        for path, recipe in study.jobs():
            simgrad.train(recipe, path, quiet=True)
        shutil.copytree("my-study", "studies/mine")
        for name, run in zip("ab", sorted(Path("my-study/runs").iterdir()), strict=True):
            shutil.copytree(run, f"runs/{name}")
        flickr8k(Path("flickr8k"))
        yield folder
    finally:
        os.chdir(before)


def flickr8k(folder: Path) -> None:
    """A tiny data set in Karpathy's layout."""
    (folder / "images").mkdir(parents=True)
    listed = []
    for i in range(20):
        name = f"{i}.jpg"
        Image.new("RGB", (16, 16), (12 * i, 90, 255 - 12 * i)).save(folder / "images" / name)
        said = [f"a picture of shade {i} seen {k} times" for k in range(5)]
        sentences = [
            {"raw": raw, "tokens": raw.split(), "sentid": 5 * i + k, "imgid": i}
            for k, raw in enumerate(said)
        ]
        split = "test" if i % 5 == 4 else "val" if i % 5 == 3 else "train"
        listed.append({"filename": name, "split": split, "imgid": i, "sentences": sentences,
                       "sentids": [s["sentid"] for s in sentences]})  # fmt: skip
    text = json.dumps({"images": listed, "dataset": "flickr8k"})
    (folder / "dataset_flickr8k.json").write_text(text, encoding="utf-8")


def given() -> dict[str, Any]:
    """What the pages take as given: embeddings, similarities, a model, its inputs."""
    torch.manual_seed(0)
    images, texts = torch.randn(2, 20, 16, requires_grad=True).unbind()
    metrics = [simgrad.evaluate(images.detach() + i, texts.detach(), range(20)) for i in range(6)]
    words = simgrad.data.Vocabulary.build(["a red heart", "a blue star"], min_count=1)
    model = torch.nn.Module()
    model.images, model.texts = torch.nn.Linear(8, 16), torch.nn.Linear(6, 16)
    return {
        "simgrad": simgrad, "torch": torch, "images": images, "texts": texts,
        "positives": torch.arange(20), "image_of_caption": list(range(20)),
        "S": torch.nn.functional.cosine_similarity(images[:, None], texts[None], dim=2),
        "other": metrics[1], "a": metrics[0], "b": metrics[1],
        **{f"a{i + 1}": metrics[i] for i in range(3)},
        **{f"b{i + 1}": metrics[3 + i] for i in range(3)},
        "tokenizer": words, "features": torch.randn(2, 36, 2048),
        "tokens": torch.ones(2, 4, dtype=torch.long), "lengths": torch.tensor([4, 3]),
        "model": model, "pictures": torch.randn(20, 8), "captions": torch.randn(20, 6),
    }  # fmt: skip


@pytest.mark.parametrize("name", WITH_PYTHON)
def test_code_runs(name: str, place: Path) -> None:
    """All blocks of a page, one after another."""
    known = given()
    for number, code in enumerate(python_blocks(PAGES[name]), 1):
        exec(compile(code, f"{name}, block {number}", "exec"), known)


def test_the_sketch_of_a_benchmark_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    (code,) = python_blocks(PAGES[SKETCH])
    known: dict[str, Any] = {"ours": lambda: None, "theirs": lambda: sum(range(100)), "least": 0.0}
    exec(compile(code, SKETCH, "exec"), known)
    assert [made["name"] for made in known["run"]()] == ["sorting", "sorting / numpy"]


@pytest.mark.parametrize("name", ["docs/negatives.md"])
def test_recipes_are_read(name: str, tmp_path: Path) -> None:
    """Those of docs/training.md: tests/studies/test_docs.py."""
    for language, text in FENCE.findall(PAGES[name]):
        if language == "yaml":
            (tmp_path / "recipe.yaml").write_text(text, encoding="utf-8")
            assert read_recipe(tmp_path / "recipe.yaml").positives


def test_every_block_of_yaml_is_read_somewhere() -> None:
    here = {
        name for name, text in PAGES.items() for kind, _ in FENCE.findall(text) if kind == "yaml"
    }
    assert here == {"docs/training.md", "docs/negatives.md", "docs/scale.md"}


# -- commands


@pytest.mark.parametrize("name", [name for name, text in PAGES.items() if commands(text)])
def test_commands_exist(name: str) -> None:
    wrong = {line: misread(line) for line in commands(PAGES[name])}
    assert not {line: why for line, why in wrong.items() if why}


@pytest.mark.parametrize(
    ("line", "is_right"),
    [
        ("simgrad mine RUN --depth 5", True),
        ("simgrad mine RUN --deep 5", False),
        ("simgrad mien RUN", False),
        ("simgrad mine RUN --depth many", False),
        ("simgrad --with own.py objectives # all", True),
        ("python -m benchmarks scale --quick", True),
        ("python -m benchmarks scale --quickly", False),
        ("python benchmarks/scale.py --cuda", True),
        ("python benchmarks/scale.py --gpu", False),
        ("python benchmarks/scales.py", False),
        ("python -m benchmarks.scales", False),
        ("torchrun --nproc-per-node 2 -m simgrad.cli train recipe.yaml --epochs 2", True),
        ("torchrun --nproc-per-node 2 -m simgrad.cli train recipe.yaml --epoch 2", False),
        ("make demo", True),
        ("make tea", False),
    ],
)
def test_a_wrong_command_is_found(line: str, is_right: bool) -> None:
    assert (misread(line) == "") == is_right


def test_what_declares_something_runs_elsewhere() -> None:
    """No block is left out of both."""
    elsewhere = Counter(page for page, _ in DECLARED_ELSEWHERE.values())
    elsewhere |= {"README.md": 1, "docs/own.md": 7}  # tests/test_readme.py, tests/test_own.py
    for name, text in PAGES.items():
        blocks = [code for language, code in FENCE.findall(text) if language == "python"]
        assert len(blocks) - len(python_blocks(text)) <= elsewhere[name], name
