"""Two small runs on the embedded world, trained once for all tests of this folder."""

import json
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("fastapi", reason="needs the extra: pip install simgrad[serve]")

from fastapi.testclient import TestClient

from simgrad.data import open_dataset
from simgrad.data.found import FOUND, Pair, caption_names, write_found
from simgrad.runs.recipe import Recipe
from simgrad.serve.app import create_app
from simgrad.serve.embedder import Embedder
from simgrad.serve.lab import Lab
from simgrad.serve.search import Searcher
from simgrad.serve.server import listen
from simgrad.serve.server import server as server_for
from simgrad.serve.workers import Limits
from simgrad.studies.plan import plan_from_dict
from simgrad.studies.study import Study
from simgrad.training import train

DATA = "scenes(train=300, val=40, test=60, features=global)"
QUESTIONS = 5  # pairs to judge
LIMITS = Limits(bytes=1 << 20, pixels=2_000_000, seconds=5.0, body_seconds=1.0)


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("runs")
    made = {}
    for name, objective in (("nt", "nt-xent"), ("tri", "triplet")):
        recipe = Recipe(
            data=DATA,
            model="vse++(dimension=64, word_dimension=32)",
            objective=objective,
            epochs=3,
            lr=3e-3,
            batch=64,
        )
        train(recipe, folder / name, quiet=True)
        made[name] = folder / name
    return made


@pytest.fixture(scope="session")
def searcher(runs: dict[str, Path]) -> Searcher:
    return Searcher(Embedder.open(runs["nt"]))


@pytest.fixture(scope="session")
def easy(searcher: Searcher) -> tuple[str, int]:
    """A caption that finds its own picture first, and the picture's row."""
    assert searcher.split is not None
    for row, caption in enumerate(searcher.split.captions):
        image = int(searcher.split.image_of_caption[row])
        if searcher.sentence(caption, 1).images[0].row == image:
            return caption, image
    raise AssertionError("the model has learned nothing")


@pytest.fixture
def lab(runs: dict[str, Path]) -> Iterator[Lab]:
    made = Lab(runs.values(), limits=LIMITS)
    yield made
    made.close()


@pytest.fixture
def client(lab: Lab) -> Iterator[TestClient]:
    with TestClient(create_app(lab), base_url="http://127.0.0.1") as made:
        yield made


def with_questions(run: Path, copy: Path) -> Path:
    """A copy of a run with pairs to judge."""
    shutil.copytree(run, copy)
    split = open_dataset(DATA).split("test")
    names = caption_names(split)
    captions = [int(split.captions_of(k + 1)[0]) for k in range(QUESTIONS)]
    pairs = [
        Pair(split.image_names[0], names[c], split.captions[c], 0.9 - 0.1 * k)
        for k, c in enumerate(captions)
    ]
    write_found(copy / "false-negatives" / FOUND, pairs)
    told = json.dumps({"split": "test"})
    (copy / "false-negatives" / "false-negatives.json").write_text(told)
    return copy


@pytest.fixture(scope="session")
def study(runs: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The two runs as a study; one of them has pairs to judge."""
    told = {
        "title": "Both",
        "recipe": {"data": DATA},
        "grid": {"objective": ["nt-xent", "triplet"]},
        "baseline": "triplet",
    }
    made = Study.create(plan_from_dict(told, "both"), tmp_path_factory.mktemp("study") / "both")
    with_questions(runs["nt"], made.path / "runs" / "nt-xent-s0")
    shutil.copytree(runs["tri"], made.path / "runs" / "triplet-s0")
    return made.path


@pytest.fixture(scope="session")
def server(runs: dict[str, Path], study: Path) -> Iterator[str]:
    """A real server on this machine; its address."""
    lab = Lab([*runs.values(), study], limits=Limits(bytes=4 << 20))
    listening = listen("127.0.0.1", 0)
    running = server_for(create_app(lab), timeout_graceful_shutdown=1)
    thread = threading.Thread(target=running.run, args=([listening],), daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    running.should_exit = True
    thread.join(10)
