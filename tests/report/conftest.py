"""A tiny study and a tiny data set of features, trained once for all tests of the report."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from simgrad.runs.recipe import Recipe
from simgrad.runs.run import Run
from simgrad.studies.plan import Plan
from simgrad.studies.study import Study
from simgrad.studies.study_file import Row
from simgrad.training import train

EVIL = "<script>alert('x')</script> & \"quoted\" `code` | *star*"

PUBLISHED = {"loss": "Triplet"}
BASE = Recipe(
    data="scenes(train=80, val=20, test=30, features=global)",
    model="vse++(dimension=32, word_dimension=16)",
    epochs=2,
    lr=2e-3,
    batch=64,
    min_count=1,
    device="cpu",
)


def make_plan() -> Plan:
    """Two settings that are run, one that never begins; published numbers beside the first."""
    rows = (
        Row(label="triplet", set={"objective": "triplet"}, baseline=True, published=PUBLISHED),
        Row(label="nt-xent", set={"objective": "nt-xent(tau=0.1)"}),
        Row(label="smooth-ap", set={"objective": "smooth-ap"}),
    )
    published = {"table": "bleeker_table1.csv", "where": {"dataset": "f30k", "method": "VSE++"}}
    return Plan("A tiny study", BASE, rows, (0, 1), claim="Less is more.", published=published)


@pytest.fixture(scope="session")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four finished runs; the third setting has not begun."""
    made = Study.create(make_plan(), tmp_path_factory.mktemp("report") / "study")
    for folder, recipe in made.jobs():
        if recipe.objective != "smooth-ap":
            train(recipe, folder, quiet=True)
    return made.path


@pytest.fixture(scope="session")
def features_run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run on features without pictures and without a test split, its texts full of markup."""
    folder = tmp_path_factory.mktemp("features") / "data"
    folder.mkdir()
    random = np.random.default_rng(0)
    for split, images in (("train", 20), ("dev", 8)):
        np.save(folder / f"{split}_ims.npy", random.normal(size=(images, 12)).astype(np.float32))
        captions = [f"{EVIL} thing {i} seen {k}" for i in range(images) for k in range(5)]
        (folder / f"{split}_caps.txt").write_text("\n".join(captions) + "\n", encoding="utf-8")
        names = [f"<img src=x onerror=alert({i})>.jpg" for i in range(images)]
        (folder / f"{split}_ids.txt").write_text("\n".join(names) + "\n", encoding="utf-8")
    recipe = BASE.replace(data=str(folder), objective="triplet", epochs=1)
    return train(recipe, folder.parent / "run", quiet=True)


@pytest.fixture
def unfinished(study: Path, tmp_path: Path) -> Run:
    """A run as it is found in the middle of its training."""
    folder = tmp_path / "half"
    shutil.copytree(study / "runs" / "triplet-s0", folder)
    for name in ("test.json", "ranks.parquet", "triplets.npz"):
        (folder / name).unlink()
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    (folder / "metrics.jsonl").write_text(lines[0] + '\n{"step": 99, "ep')  # cut off by a kill
    info = Run(folder).info
    (folder / "run.json").write_text(json.dumps({**info, "status": "running"}))
    return Run.open(folder)
