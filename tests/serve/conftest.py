"""Two small runs on the embedded world, trained once for all tests of this folder."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("fastapi", reason="needs the extra: pip install simgrad[serve]")

from fastapi.testclient import TestClient

from simgrad.runs.recipe import Recipe
from simgrad.serve.app import create_app
from simgrad.serve.embedder import Embedder
from simgrad.serve.lab import Lab
from simgrad.serve.search import Searcher
from simgrad.serve.server import listen
from simgrad.serve.server import server as server_for
from simgrad.serve.workers import Limits
from simgrad.training import train

DATA = "scenes(train=300, val=40, test=60, features=global)"
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


@pytest.fixture(scope="session")
def server(runs: dict[str, Path]) -> Iterator[str]:
    """A real server on this machine; its address."""
    lab = Lab(runs.values(), limits=Limits(bytes=4 << 20))
    listening = listen("127.0.0.1", 0)
    running = server_for(create_app(lab), timeout_graceful_shutdown=1)
    thread = threading.Thread(target=running.run, args=([listening],), daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    running.should_exit = True
    thread.join(10)
