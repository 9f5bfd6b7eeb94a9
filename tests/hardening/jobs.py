"""Everything that takes time and writes files, each as a job that can be killed and begun again.

`work` does the job in a folder, or goes on with it; `outcome` is what must not depend on how often
it was killed on the way.
"""

import contextlib
import io
import json
import random
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from simgrad.core.files import sha256
from simgrad.data import Dataset, open_dataset
from simgrad.data.candidates import Candidates
from simgrad.report.build import write_report
from simgrad.runs import features as features_module
from simgrad.runs.recipe import Recipe
from simgrad.studies.plan import plan_from_dict
from simgrad.studies.study import Study
from simgrad.studies.table import build_table, write_tables
from simgrad.studies.worker import work as work_on
from simgrad.training import Run, train
from simgrad.training.rounds import mine_run
from tests.data.test_features import tiny
from tests.models import published_files
from tests.models.small import small

DATA = "scenes(train=60, val=20, test=20, features=global)"


@dataclass(frozen=True)
class Job:
    """Something that can be killed."""

    name: str
    work: Callable[[Path], object]
    outcome: Callable[[Path], Any]
    crew: int = 1  # processes that do it together


def recipe(**changes: Any) -> Recipe:
    """A run of a third of a second that writes a checkpoint after every step."""
    base = Recipe(
        data=DATA,
        model="vse++(dimension=16, word_dimension=8)",
        batch=32,
        epochs=2,
        evaluate_every=4,
        lr=1e-3,
        checkpoint_seconds=0.0,
        device="cpu",
        workers=0,
        min_count=1,
    )
    return base.replace(**changes)


@cache
def dataset() -> Dataset:
    """Read once, before the first fork."""
    return open_dataset(DATA)


def outcome_of_run(folder: Path) -> dict[str, Any]:
    """All that a run found out, without its times."""
    run = Run.open(folder)
    assert run.finished, f"{folder}: {run.info}"
    times = ("seconds", "samples_per_second", "batch_seconds")
    with np.load(folder / "triplets.npz") as triplets:
        kept = {name: array.tolist() for name, array in triplets.items()}
    return {
        "weights": sha256(folder / "best" / "model.safetensors"),
        "description": json.loads((folder / "best" / "model.json").read_text()),
        "test": run.test,
        "ranks": sha256(folder / "ranks.parquet"),
        "history": [{k: v for k, v in e.items() if k not in times} for e in run.history],
        "triplets": kept,
        "steps": run.info["steps"],
        "files": sorted(p.name for p in folder.rglob("*") if p.is_file()),
    }


def _study(folder: Path) -> Study:
    values = {
        "title": "killed",
        "recipe": recipe(epochs=1).to_dict(),
        "grid": {"objective": ["triplet", "nt-xent(learned=true)", "smooth-ap"]},
        "baseline": "triplet",
    }
    return Study.create(plan_from_dict(values, "killed"), folder)


def _work_on_study(folder: Path) -> None:
    study = _study(folder)
    assert work_on(study) == 0
    write_tables(build_table(study), folder)


def _outcome_of_study(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = {p.name: outcome_of_run(p) for p, _ in Study.open(folder).jobs()}
    table = json.loads((folder / "table.json").read_text())
    return {**found, "table": json.dumps(table), "files": sorted(p.name for p in folder.iterdir())}


def _extract(folder: Path) -> None:
    split = open_dataset("scenes(train=60, val=20, test=20, size=32)").split("train")
    job = features_module.make_job(tiny(), batch=4, device="cpu", workers=1)
    # A marker after every batch: more moments to be killed in.
    with mock.patch.object(features_module, "_SAVE_EVERY", 0.0):
        features_module.compute(split, job, folder / "train.npy", report=lambda done: None)


def _files(folder: Path) -> dict[str, str]:
    # Not the locks: a killed holder's name may stay in its file.
    found = (p for p in sorted(folder.rglob("*")) if p.is_file() and p.suffix != ".lock")
    return {p.name: sha256(p) for p in found}


def _mined(folder: Path) -> dict[str, Any]:
    found = Candidates.load(folder)
    return {"i2t": found.i2t.tolist(), "t2i": found.t2i.tolist(), "info": found.info}


def _index(run: Path, folder: Path) -> None:
    from simgrad.retriever.opening import open_folder
    from simgrad.retriever.search import Searcher

    folder.mkdir(parents=True, exist_ok=True)
    for name in ("best", "recipe.yaml", "run.json"):
        if not (folder / name).exists():  # the kill may have come between two of them
            (folder / name).symlink_to((run / name).resolve())
    Searcher(open_folder(folder), dataset=dataset())


def _import(folder: Path) -> None:
    """A published file becomes a checkpoint."""
    from simgrad.cli.import_checkpoint import import_checkpoint

    with contextlib.redirect_stdout(io.StringIO()):
        import_checkpoint(_published(), folder)


@cache
def _published() -> Path:
    """A file as VSE++ published it, of a few weights."""
    place = Path(tempfile.mkdtemp(prefix="published-")) / "model_best.pth.tar"
    return published_files.write(place, published_files.checkpoint("vse++", small("vse++")))


def _report(run: Path, folder: Path) -> None:
    write_report([run], folder / "report.html", batches=1, pictures=False)


def _whole_page(folder: Path) -> tuple[list[str], bool]:
    text = (folder / "report.html").read_text()
    return sorted(p.name for p in folder.iterdir()), text.rstrip().endswith("</html>")


def run_job(**changes: Any) -> Job:
    """Training."""
    learned = recipe(objective="nt-xent(learned=true)", **changes)
    return Job("run", lambda f: train(learned, f, dataset=dataset(), quiet=True), outcome_of_run)


def jumping() -> Callable[[], float]:
    """A clock that is set some years forward or back whenever somebody looks."""
    chance, real = random.Random(0), time.time
    return lambda: real() + chance.uniform(-3e8, 3e8)


def clock_job() -> Job:
    """Training, while the clock jumps."""
    run = run_job()

    def work(folder: Path) -> None:
        with mock.patch("time.time", jumping()):
            run.work(folder)

    return Job("clock", work, run.outcome)


def study_job() -> Job:
    """Three runs, two workers."""
    return Job("study", _work_on_study, _outcome_of_study, crew=2)


def other_jobs(run: Path) -> list[Job]:
    """What is made of pictures, and of a finished run."""
    finished = Run.open(run)
    return [
        Job("features", _extract, _files),
        Job("mining", lambda f: mine_run(finished, f, 20, dataset=dataset()), _mined),
        Job("index", lambda f: _index(run, f), lambda f: _files(f / "search")),
        Job("import", _import, _files),
        Job("report", lambda f: _report(run, f), _whole_page),
    ]
