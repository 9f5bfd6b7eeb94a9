"""results/generalise: study files that say what was registered, collect.py on a made-up study."""

import csv
import importlib.util
import shutil
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from simgrad.core.errors import InputError
from simgrad.core.spec import Range
from simgrad.evaluation import Ranks, metrics_of
from simgrad.runs.run import write_info
from simgrad.studies.plan import read_plan
from simgrad.studies.study import Study
from simgrad.studies.tune import CrossedRanges
from simgrad.studies.worker import work
from tests.processes import script as run_script
from tests.studies.test_replicates import plan

pytest.importorskip("optuna")
FOLDER = Path(__file__).parents[2] / "results" / "generalise"


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"generalise_{name}", FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("part", "runs", "resplit"),
    [
        ("flickr8k", 864, "new(test=1000, val=1000, pool=train)"),
        ("coco", 540, "new(test=2000, val=1000)"),
    ],
)
def test_the_study_files_say_what_was_registered(
    part: str, runs: int, resplit: str, tmp_path: Path
) -> None:
    told, analyse = read_plan(FOLDER / f"{part}.yaml"), script("analyse")
    assert told.tune is not None
    assert told.trainings + len(told.runs()) == runs
    assert tuple(row.label for row in told.rows) == analyse.OBJECTIVES
    assert len(told.replicates) == analyse.REPLICATES[part]
    assert told.base.resplit == resplit
    assert (told.tune.trainings, len(told.seeds)) == (12 + 4, 2)
    for tuning in Study.create(told, tmp_path / "study").tunings:
        space = tuning.search.space
        assert space["lr"] == Range(5e-4, 1.2e-2)
        assert space["first_epochs"] == CrossedRanges((0, 1))
        assert "clip" not in space
        assert space.get("objective.lambda", Range(0.3, 0.9, False)) == Range(0.3, 0.9, False)
        assert ("objective.lambda" in space) == (
            "triplet-sh" not in tuning.name and "nt-xent" not in tuning.name
        )
        assert not tuning.search.extended([])


def test_no_seed_of_one_part_is_one_of_the_other() -> None:
    used = []
    for part in ("flickr8k", "coco"):
        for one in read_plan(FOLDER / f"{part}.yaml").replicates:
            assert one.tune is not None
            used += [*one.seeds, *one.tune.seeds]
    assert len(used) == len(set(used)) == 13 * (2 + 3)


def test_what_a_photo_adds_by_a_slow_loop() -> None:
    random = np.random.default_rng(4)
    pairing = np.sort(random.integers(0, 9, 30))
    pairing[:9] = np.arange(9)
    scores = random.normal(size=(9, 30))
    scores[pairing, np.arange(30)] += 1
    from simgrad import evaluate_similarities

    ranks = evaluate_similarities(scores, pairing).ranks
    found = script("collect").parts_of_photos(ranks)
    for image in range(9):
        own = [c for c in range(30) if pairing[c] == image]
        expected = sum(float(ranks.i2t[image] <= k) for k in (1, 5, 10))
        expected += sum(float(ranks.t2i[c] <= k) for c in own for k in (1, 5, 10)) * 9 / 30
        assert found[image] == pytest.approx(100 * expected)
    assert found.mean() == pytest.approx(metrics_of(ranks)["rsum"])


@pytest.mark.long
def test_runs_are_collected_from_kept_ranks(tmp_path: Path) -> None:
    collect = script("collect")
    study = Study.create(
        plan({"replicates": 2, "splits": "new", "trials": 2, "finalists": 1}), tmp_path / "study"
    )
    with pytest.raises(InputError, match="has not ended"):
        collect.keep(study, tmp_path / "flickr8k")
    assert work(study) == 0
    diverged = study.path / "runs" / "nt-xent-r2-s10001"
    shutil.rmtree(diverged)
    diverged.mkdir()
    shutil.copy(study.path / "runs" / "nt-xent-r2-s10000" / "recipe.yaml", diverged / "recipe.yaml")
    text = (diverged / "recipe.yaml").read_text().replace("seed: 10000", "seed: 10001")
    (diverged / "recipe.yaml").write_text(text)
    write_info(diverged, {"status": "failed", "error": "NaN", "diverged": True})
    collect.keep(Study(study.path), tmp_path / "flickr8k")
    tests = {run.name: run.test for runs in study.groups.values() for run in runs}
    shutil.rmtree(study.path)  # from what was kept alone
    lines = list(collect.collect(tmp_path / "flickr8k"))
    assert len(lines) == 2 * 2 * 2
    with (tmp_path / "flickr8k" / "tests.csv").open() as file:
        names = [line["run"] for line in csv.DictReader(file)]
    for name, line in zip(names, lines, strict=True):
        if name == diverged.name:
            assert (line["outcome"], line["rsum"], line["photo"]) == ("diverged", 0, 0)
            continue
        assert line["rsum"] == pytest.approx(tests[name]["rsum"], abs=1e-5)
        ranks = Ranks.load(tmp_path / "flickr8k" / "ranks" / f"{name}.parquet")
        assert line["photo"] == pytest.approx(
            collect.parts_of_photos(ranks).var(ddof=1) / 20, abs=1e-5
        )
    collect._write(tmp_path / "runs.csv", lines)
    read = script("analyse").read(tmp_path / "runs.csv")
    assert [(run.replicate, run.objective, run.seed) for run in read] == [
        (1, "triplet", 0), (1, "triplet", 1), (1, "nt-xent", 0), (1, "nt-xent", 1),
        (2, "triplet", 10_000), (2, "triplet", 10_001),
        (2, "nt-xent", 10_000), (2, "nt-xent", 10_001),
    ]  # fmt: skip
    assert {path.stem for path in (tmp_path / "flickr8k" / "tuned").iterdir()} == {
        "triplet-r1", "triplet-r2", "nt-xent-r1", "nt-xent-r2",
    }  # fmt: skip


def test_a_number_on_the_page_that_nothing_gives_is_named() -> None:
    known = {"10.6", "76 of 76"}
    text = "ahead by 10.6 ([1.25](a.md)); **76 of\n76** fail, and 75 of 76, by 10.7 and 3e-4"
    assert script("check").nowhere(text, known) == ["1.25", "75 of 76", "10.7"]


@pytest.mark.long
def test_every_number_is_computed_again() -> None:
    """Of the registered study: from the ranks and searches that were kept."""
    done = run_script(FOLDER / "check.py")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "all the same" in done.stdout
