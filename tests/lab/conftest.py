"""The lab page of two small runs."""

import json
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("fastapi", reason="needs the extra: pip install 'simgrad[serve]'")

from fastapi.testclient import TestClient

from simgrad.data import open_dataset
from simgrad.data.found import FOUND, Pair, caption_names, write_found
from simgrad.lab.app import create_app
from simgrad.lab.lab import Lab
from simgrad.lab.server import listen
from simgrad.lab.server import server as server_for
from simgrad.lab.workers import UploadLimits
from simgrad.runs.run import Run
from simgrad.studies.plan import plan_from_dict
from simgrad.studies.study import Study
from tests.retriever.conftest import DATA, easy, runs, searcher

__all__ = ["DATA", "easy", "runs", "searcher"]

QUESTIONS = 5  # pairs to judge
LIMITS = UploadLimits(bytes=1 << 20, pixels=2_000_000, seconds=5.0, body_seconds=1.0)


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
    recipe = Run(runs["nt"]).recipe.to_dict()
    common = {name: value for name, value in recipe.items() if name not in ("objective", "seed")}
    told = {
        "title": "Both",
        "recipe": {
            name: value for name, value in common.items() if name not in ("objective", "seed")
        },
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
    lab = Lab([*runs.values(), study], limits=UploadLimits(bytes=4 << 20))
    listening = listen("127.0.0.1", 0)
    running = server_for(create_app(lab), timeout_graceful_shutdown=1)
    thread = threading.Thread(target=running.run, args=([listening],), daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    running.should_exit = True
    thread.join(10)
