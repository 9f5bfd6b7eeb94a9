"""Finalists of a search: trained with more seeds, chosen by their mean."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from simgrad.core.errors import InputError
from simgrad.report.build import build_report
from simgrad.report.page import page
from simgrad.runs.recipe import Recipe
from simgrad.studies.check import check_study
from simgrad.studies.engine import failures
from simgrad.studies.study import Study
from simgrad.studies.table import build_table, write_tables
from simgrad.studies.tuned import Tuning, chosen
from simgrad.studies.worker import work
from simgrad.training import Run
from simgrad.training.rounds import train
from simgrad.training.trouble import TrainingError
from tests.studies.small_study import change_rank, plan

pytest.importorskip("optuna")
pytestmark = pytest.mark.usefixtures("forked_workers")


@pytest.fixture(scope="module")
def repeated(tmp_path_factory: pytest.TempPathFactory) -> Study:
    tuned = plan(seeds=1, tune={"trials": 4, "finalists": 3, "repeats": 2})
    study = Study.create(tuned, tmp_path_factory.mktemp("study") / "repeated")
    assert work(study) == 0
    write_tables(build_table(study), study.path)
    return study


def test_finalists_are_trained_with_more_seeds_and_chosen_by_their_mean(repeated: Study) -> None:
    for tuning in repeated.tunings:
        record = tuning.record
        assert record is not None
        order = sorted(record["tried"], key=lambda one: -one["score"])
        assert ["repeats" in one for one in order] == [True, True, True, False]
        means = []
        for one in order[:3]:
            name = f"{tuning.name}-t{one['number']:03d}"
            runs = [Run(repeated.path / "trials" / f"{name}-r{place}") for place in (1, 2)]
            assert [run.recipe.seed for run in runs] == [1001, 1002]
            first = Run(repeated.path / "trials" / name).recipe
            assert all(run.recipe.replace(seed=1000) == first for run in runs)
            best = [max(entry["val"]["rsum"] for entry in run.history) for run in runs]
            assert one["repeats"] == best
            means.append((one["score"] + sum(best)) / 3)
        assert record["chosen"]["number"] == order[int(np.argmax(means))]["number"]
        assert record["budget"] == {**record["budget"], "trials": 4, "epochs": 2 * (4 + 3 * 2)}
        found = next(r.tuned for r in build_table(repeated).rows if r.label == tuning.name)
        assert found is not None
        assert found.score == pytest.approx(max(means))
    text = page(build_report([repeated.path], batches=0, pictures=False))
    assert "one trial may be luck" in text
    assert len(list((repeated.path / "trials").iterdir())) == 2 * (4 + 3 * 2)


def test_one_lucky_trial_is_not_chosen() -> None:
    lucky = {"number": 0, "score": 270.0, "repeats": [200.0, 210.0]}
    steady = {"number": 1, "score": 265.0, "repeats": [264.0, 266.0]}
    alike = {"number": 2, "score": 264.0, "repeats": [265.0, 266.0]}
    single = {"number": 3, "score": 263.0}
    broken = {"number": 4, "score": None}
    assert chosen([lucky, steady, alike, single, broken]) is steady
    assert chosen([single, broken]) is single
    assert chosen([broken]) is None


def test_a_repetition_is_checked_like_a_trial(repeated: Study, tmp_path: Path) -> None:
    assert check_study(repeated).problems == []
    shutil.copytree(repeated.path, tmp_path / "copy")
    copy = Study(tmp_path / "copy")
    record = copy.tunings[0].record
    assert record is not None
    folder = copy.path / "trials" / f"{copy.tunings[0].name}-t{record['chosen']['number']:03d}-r2"
    change_rank(folder / "val-ranks.parquet")
    told = "\n".join(check_study(copy).problems)
    assert folder.name in told


def test_a_finalist_that_diverges_with_another_seed_is_not_chosen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tuned = plan(seeds=1, tune={"trials": 3, "finalists": 2, "repeats": 1})
    study = Study.create(tuned, tmp_path / "study")

    def diverging(tuning: Tuning) -> Path:
        best = max(tuning.search.trials(), key=lambda trial: trial.score or 0)
        return tuning.run_of(best, 1)[0]

    def broken(recipe: Recipe, folder: Path, **more: Any) -> Run:
        for tuning in study.tunings:
            if folder.name.endswith("-r1") and folder == diverging(tuning):
                raise TrainingError("the loss is not a number")
        return train(recipe, folder, **more)

    monkeypatch.setattr("simgrad.studies.worker.train", broken)
    assert work(study) == 0
    for tuning in study.tunings:
        record = tuning.record
        assert record is not None
        best = max(record["tried"], key=lambda one: one["score"])
        assert best["repeats"] == [0.0]
        assert record["chosen"]["number"] != best["number"]


def test_a_repetition_that_cannot_run_is_told_and_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = Study.create(
        plan(seeds=1, tune={"trials": 2, "finalists": 2, "repeats": 1}), tmp_path / "study"
    )

    def broken(recipe: Recipe, folder: Path, **more: Any) -> Run:
        if folder.name == "nt-xent-t001-r1":
            raise InputError("the disk is full")
        return train(recipe, folder, **more)

    with monkeypatch.context() as patched:
        patched.setattr("simgrad.studies.worker.train", broken)
        assert work(study) == 1
    assert failures(study) == [("nt-xent", "a trial failed: the disk is full")]
    assert work(study) == 0
    assert study.complete


def test_seeds_of_finalists_are_no_seeds_of_the_table() -> None:
    plan(seeds=[1002], tune={"trials": 2})
    with pytest.raises(InputError, match="seed 1002 is among the seeds of the table"):
        plan(seeds=[0, 1002], tune={"trials": 2, "finalists": 2})
