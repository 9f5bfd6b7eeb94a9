"""Tuned studies, whole: what a trial leaves behind, what is chosen, --check."""

import dataclasses
import json
import os
import shutil
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from simgrad.cli.study import study as command
from simgrad.core.derived import read_checked, write_checked
from simgrad.core.errors import InputError
from simgrad.core.spec import Range
from simgrad.evaluation import Ranks
from simgrad.objectives import Pairs, declare, objectives
from simgrad.pages.blocks import Figures
from simgrad.report.build import build_report
from simgrad.report.material import collect
from simgrad.report.page import page
from simgrad.report.tuning import tuning as tuning_section
from simgrad.studies.check import check_study
from simgrad.studies.cluster import run_ray
from simgrad.studies.engine import failures, run_local
from simgrad.studies.study import Study
from simgrad.studies.table import build_table, write_tables
from simgrad.studies.worker import work
from simgrad.training import Run
from tests.studies.small_study import SMALL, change_rank, plan

pytest.importorskip("optuna")
pytestmark = pytest.mark.usefixtures("forked_workers")


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Study:
    study = Study.create(plan(), tmp_path_factory.mktemp("study") / "small")
    assert work(study) == 0
    write_tables(build_table(study), study.path)
    return study


@pytest.fixture
def copy(done: Study, tmp_path: Path) -> Study:
    shutil.copytree(done.path, tmp_path / "copy")
    return Study(tmp_path / "copy")


# -- what a search leaves behind


@pytest.mark.long
def test_trials_are_never_tested_and_keep_no_weights(done: Study) -> None:
    folders = sorted(path for path in (done.path / "trials").iterdir())
    assert len(folders) == 2 * 3
    for folder in folders:
        names = {path.name for path in folder.iterdir()} - {".lock", "last"}
        assert names == {"recipe.yaml", "run.json", "metrics.jsonl", "val-ranks.parquet"}
        assert Run(folder).finished
        assert not Run(folder).test
        for path in folder.rglob("*"):
            assert "test" not in path.name
        ranks = Ranks.load(folder / "val-ranks.parquet")
        assert len(ranks.i2t) == 20


def test_the_test_split_is_evaluated_by_runs_of_the_table_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tested: list[Path] = []
    monkeypatch.setattr("simgrad.runs.run.write_test", lambda folder, _: tested.append(folder))
    assert work(Study.create(plan(seeds=1, tune={"trials": 2}), tmp_path / "s")) == 0
    assert {path.parent.name for path in tested} == {"runs"}
    assert len(tested) == 2


def test_the_best_on_validation_is_chosen_and_trained_with_every_seed(done: Study) -> None:
    for tuning in done.tunings:
        record = tuning.record
        assert record is not None
        scores = [one["score"] for one in record["tried"]]
        best = record["tried"][int(np.argmax(scores))]
        assert record["chosen"]["setting"] == best["setting"]
        for one in record["tried"]:
            run = Run(done.path / "trials" / f"{tuning.name}-t{one['number']:03d}")
            assert max(entry["val"]["rsum"] for entry in run.history) == one["score"]
            assert run.recipe.lr == one["setting"]["lr"]
            assert run.recipe.seed == 1000
        for seed in (0, 1):
            recipe = Run(done.path / "runs" / f"{tuning.name}-s{seed}").recipe
            assert recipe.lr == best["setting"]["lr"]
            assert recipe.clip == best["setting"]["clip"]
            assert recipe.reduction == "mean"
            assert not recipe.validation_only
    assert done.complete


def test_a_tuned_study_is_not_done_twice(done: Study) -> None:
    files = {p: p.stat().st_mtime_ns for p in done.path.rglob("*") if p.is_file()}
    before = {p: t for p, t in files.items() if p.suffix in (".json", ".jsonl", ".log", ".parquet")}
    assert work(Study(done.path)) == 0
    assert before == {p: p.stat().st_mtime_ns for p in before}


def test_the_table_tells_setting_budget_and_interval(done: Study, tmp_path: Path) -> None:
    table = build_table(done)
    for row, tuning in zip(table.rows, done.tunings, strict=True):
        assert row.tuned is not None
        assert tuning.record is not None
        assert f"lr={tuning.record['chosen']['setting']['lr']:.12g}" in row.tuned.setting
        assert (row.tuned.trials, row.tuned.epochs) == (3, 6)
    write_tables(table, tmp_path)
    text = (tmp_path / "table.md").read_text()
    assert "3 trials, 6 epochs" in text
    assert "tau=" in text


def test_the_report_tells_how_settings_were_chosen(done: Study) -> None:
    made = build_report([done.path], batches=0, pictures=False)
    section = next(section for section in made.sections if section.anchor == "tuning")
    text = page(made)
    assert "How settings were chosen" in text
    assert "by number of trials" in text
    assert len(section.blocks) >= 3


def test_of_few_trials_no_expectation_is_drawn(done: Study) -> None:
    material = collect([done.path])

    def drawn(times: int) -> set[str]:
        """With every trial so many times."""
        systems = [
            dataclasses.replace(s, tuned=({**one, "tried": times * one["tried"]},))
            for s in material.systems
            for one in s.tuned
        ]
        section = tuning_section(dataclasses.replace(material, systems=tuple(systems)))
        assert section is not None
        shown = next(block for block in section.blocks if isinstance(block, Figures))
        return {figure.name for figure in shown.figures}

    assert drawn(1) == {"best-so-far"}
    assert drawn(2) == {"best-so-far", "expected-best"}


# -- finding what is known


@pytest.fixture
def windowed() -> Iterator[str]:
    """An objective that learns only where its knob is between 3 and 30, and breaks beyond 500."""

    @declare("windowed", mean=True, search={"knob": Range(0.1, 400)})
    def windowed(
        similarities: Tensor, positives: Tensor, pairs: Pairs, knob: float = 1.0
    ) -> tuple[Tensor, Tensor]:
        chances = torch.softmax(similarities / 0.1, 1)
        share = positives / positives.sum(1, keepdim=True).clamp(min=1)
        values = -(share * chances.clamp(min=1e-9).log()).sum(1)
        on = float("nan") if knob > 500 else float(3 < knob < 30)
        return on * values, on * (chances - share) / 0.1

    yield "windowed"
    objectives._declared.pop("windowed")


@pytest.mark.long
def test_a_tuned_study_finds_the_setting_that_learns(windowed: str, tmp_path: Path) -> None:
    tuned = plan(
        grid={"objective": [windowed]},
        recipe={**SMALL["recipe"], "epochs": 4},
        baseline=None,
        seeds=1,
        tune={"trials": 8, "space": {"lr": None, "clip": None}},
    )
    study = Study.create(tuned, tmp_path / "study")
    assert work(study) == 0
    record = study.tunings[0].record
    assert record is not None
    assert list(record["space"]) == ["objective.knob"]
    assert 3 < record["chosen"]["setting"]["objective.knob"] < 30
    idle = [t["score"] for t in record["tried"] if not 3 < t["setting"]["objective.knob"] < 30]
    assert record["chosen"]["score"] > max(idle)


def test_a_trial_that_diverges_costs_its_budget_and_another_is_chosen(
    windowed: str, tmp_path: Path
) -> None:
    space = {"objective.knob": [10.0, 1000.0], "lr": None, "clip": None}
    tuned = plan(
        grid={"objective": [windowed]}, baseline=None, seeds=1,
        tune={"trials": 4, "search": "grid", "space": space},
    )  # fmt: skip
    study = Study.create(tuned, tmp_path / "study")
    assert work(study) == 0
    record = study.tunings[0].record
    assert record is not None
    assert sorted(one["state"] for one in record["tried"]) == ["complete", "failed"]
    assert record["chosen"]["setting"] == {"objective.knob": 10.0}


# -- trials that fail, are shared, or go on


def test_a_trial_that_cannot_run_is_told_and_tried_again(tmp_path: Path) -> None:
    tuned = plan(seeds=1, tune={"trials": 2})
    broken = tuned.changed(data=str(tmp_path / "nothing"))
    study = Study.create(broken, tmp_path / "study")
    assert work(study) > 0
    told = failures(study)
    assert {name for name, _ in told} == {"triplet", "nt-xent"}
    assert all("a trial failed" in reason for _, reason in told)
    assert not list((tmp_path / "study").glob("tuned/*.json"))


@pytest.mark.long
def test_two_processes_share_the_trials(tmp_path: Path) -> None:
    tuned = plan(
        grid={"objective": ["nt-xent"]}, baseline=None, seeds=1,
        tune={"trials": 4, "finalists": 2},
    )  # fmt: skip
    study = Study.create(tuned, tmp_path / "study")
    run_local(study, processes=2, quiet=True)
    assert study.complete
    assert [t.state for t in study.tunings[0].search.trials()] == ["complete"] * 4
    assert len(list((study.path / "trials").iterdir())) == 4 + 2 * 2


def test_a_search_can_start_from_a_rows_own_values(tmp_path: Path) -> None:
    """And what is drawn is the same for all rows, as far as they search the same."""
    tuned = plan(
        grid={"objective": ["nt-xent", "goal(triplet=cir, pair=sig)"]},
        recipe={**SMALL["recipe"], "lr": 7e-4, "first_objective": "triplet", "first_epochs": 1},
        seeds=1,
        baseline=None,
        tune={
            "trials": 6,
            "search": "quasi-random",
            "start": True,
            "space": {"lr": {"low": 1e-3, "high": 1e-2}, "clip": None, "first_epochs": [0, 1]},
        },
    )
    study = Study.create(tuned, tmp_path / "study")
    asked = []
    for tuning in study.tunings:
        asked.append([tuning.search.ask() for _ in range(6)])
        assert tuning.search.ask() is None
    first = [trials[0].setting for trials in asked if trials[0] is not None]
    own = {"first_epochs": 1, "lr": 1e-3}  # 7e-4 is outside
    assert first[0] == {**own, "objective.tau": 0.1}
    assert first[1] == {**own, "objective.tau": 1.0, "objective.lambda": 0.5}
    drawn = [[t.setting["first_epochs"] for t in trials if t is not None] for trials in asked]
    assert drawn[0] == drawn[1]
    assert len(set(drawn[0])) == 2
    assert [t.how for t in asked[0] if t is not None] == ["start"] + ["quasi-random"] * 5


@pytest.mark.slow
def test_kills_leave_the_journal_whole_and_nothing_is_done_twice(tmp_path: Path) -> None:
    """Two workers at once, killed again and again wherever they are."""
    study = Study.create(plan(tune={"trials": 5, "finalists": 2}), tmp_path / "study")
    command = [sys.executable, "-m", "simgrad.studies.worker", str(study.path)]
    random = np.random.default_rng(0)
    for _ in range(4):
        crew = [subprocess.Popen(command, stderr=subprocess.DEVNULL) for _ in range(2)]
        time.sleep(5 + 8 * random.random())
        for process in crew:
            process.kill()
            process.wait()
    assert work(study) == 0
    for tuning in study.tunings:
        assert [t.number for t in tuning.search.trials() if t.state == "complete"] == [*range(5)]
    assert len(list((study.path / "trials").iterdir())) == 2 * (5 + 2 * 2)
    for folder in (study.path / "trials").iterdir():
        assert [entry["epoch"] for entry in Run(folder).history] == [1.0, 2.0]
    write_tables(build_table(study), study.path)
    assert check_study(study).problems == []


@pytest.mark.slow
def test_ray(tmp_path: Path) -> None:
    """Two workers of a local cluster."""
    ray = pytest.importorskip("ray", reason="the extra `ray` is not installed")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    try:
        study = Study.create(plan(seeds=1), tmp_path / "study")
        run_ray(study, quiet=True)
        assert study.complete
        assert all(len(tuning.search.trials()) == 3 for tuning in study.tunings)
    finally:
        ray.shutdown()


# -- more trials


def test_a_search_is_extended_before_the_table_is_begun_and_never_after(done: Study) -> None:
    with pytest.raises(InputError, match="another folder"):
        Study.create(plan(tune={"trials": 6}), done.path)
    with pytest.raises(InputError, match="another folder"):
        Study.create(plan(tune=None), done.path)


@pytest.mark.parametrize(
    "tune",
    [
        {"trials": 3, "space": {"lr": {"low": 1e-5, "high": 1e-4}}},
        {"trials": 5, "space": {"lr": {"low": 1e-5, "high": 1e-4}}},
        {"trials": 3, "search": "grid"},
        {"trials": 2},
        None,
    ],
)
def test_a_search_that_has_begun_changes_in_nothing_but_its_length(
    tmp_path: Path, tune: dict[str, Any] | None
) -> None:
    study = Study.create(plan(), tmp_path / "study")
    (study.path / "trials").mkdir()  # no run of the table has begun
    with pytest.raises(InputError, match="another folder"):
        Study.create(plan(tune=tune), study.path)
    assert Study(study.path).plan.tune == plan().tune
    assert Study.create(plan(tune={"trials": 4}), study.path).plan.tune.trials == 4  # type: ignore[union-attr]


def test_before_its_first_trial_a_search_may_change(tmp_path: Path) -> None:
    study = Study.create(plan(), tmp_path / "study")
    changed = Study.create(plan(tune={"trials": 2, "search": "grid"}), study.path)
    assert changed.plan.tune == plan(tune={"trials": 2, "search": "grid"}).tune


def test_more_trials_go_on_from_those_there_are(copy: Study) -> None:
    shutil.rmtree(copy.path / "runs")
    study = Study.create(plan(tune={"trials": 5}), copy.path)
    assert work(study) == 0
    assert all(len(tuning.search.trials()) == 5 for tuning in study.tunings)


# -- every number again


def test_a_whole_study_passes_its_check(done: Study, capsys: pytest.CaptureFixture[str]) -> None:
    command(str(done.path), check=True)
    assert "all the same" in capsys.readouterr().out


def _test_json(study: Study) -> None:
    path = study.path / "runs" / "triplet-s0" / "test.json"
    values = json.loads(path.read_text())
    values.pop("checksum")
    values["i2t_r1"] += 0.1
    values["checksum"] = zlib.crc32(json.dumps(values, sort_keys=True).encode())
    path.write_text(json.dumps(values))


def _test_ranks(study: Study) -> None:
    change_rank(study.path / "runs" / "nt-xent-s1" / "ranks.parquet")


def _trial_ranks(study: Study) -> None:
    change_rank(study.path / "trials" / "nt-xent-t001" / "val-ranks.parquet")


def _history(study: Study) -> None:
    folder = study.path / "trials" / "triplet-t000"
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    best = max(lines, key=lambda line: line["val"]["rsum"])
    best["val"]["rsum"] += 1
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    info = read_checked(folder / "run.json")
    info["files"] = {}
    write_checked(folder / "run.json", info)


def _record(study: Study) -> None:
    path = study.path / "tuned" / "triplet.json"
    record = read_checked(path)
    record["tried"][0]["score"] += 0.5
    write_checked(path, record)


def _choice(study: Study) -> None:
    path = study.path / "tuned" / "triplet.json"
    record = read_checked(path)
    other = min(record["tried"], key=lambda one: one["score"])
    record["chosen"] = {key: other[key] for key in record["chosen"]}
    write_checked(path, record)


def _in_file(name: str, old: Callable[[str], str]) -> Callable[[Study], None]:
    def change(study: Study) -> None:
        path = study.path / name
        text = path.read_text()
        path.write_text(old(text))
        assert path.read_text() != text

    return change


def _next_digit(text: str) -> str:
    """The last digit that stands behind a point, one higher."""
    at = max(i for i in range(2, len(text)) if text[i].isdigit() and text[i - 2 : i][1] == ".")
    return text[:at] + str((int(text[at]) + 1) % 10) + text[at + 1 :]


@pytest.mark.parametrize(
    "change",
    [
        _test_json, _test_ranks, _trial_ranks, _history, _record, _choice,
        *(_in_file(f"table.{kind}", _next_digit) for kind in ("json", "csv", "md", "tex")),
    ],
)  # fmt: skip
def test_a_number_that_was_changed_is_found(change: Callable[[Study], None], copy: Study) -> None:
    change(copy)
    with pytest.raises(InputError, match="differ when computed again"):
        command(str(copy.path), check=True)


def test_an_unfinished_study_is_not_checked(copy: Study) -> None:
    shutil.rmtree(copy.path / "runs" / "triplet-s0")
    with pytest.raises(InputError, match="not finished"):
        check_study(copy)
