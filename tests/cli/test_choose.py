"""`simgrad choose`: the plan is decided once; the answer follows from it, however often stopped."""

import dataclasses
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import simgrad
from simgrad.choosing.answer import Answer, _elsewhere, _ended, answer_of
from simgrad.choosing.choice import CHOICE, Choice
from simgrad.choosing.planning import TIMING, Wish, decide, estimate
from simgrad.choosing.probe import Pace
from simgrad.choosing.sizing import Size
from simgrad.choosing.telling import plan_text
from simgrad.cli.choose import choose
from simgrad.cli.report import report
from simgrad.core.console import say_wrapped
from simgrad.core.derived import write_checked
from simgrad.core.errors import InputError
from simgrad.core.files import write_json
from simgrad.lab import facts
from simgrad.report.build import write_report
from simgrad.retriever.opening import open_folder
from simgrad.retriever.search import Searcher, ask
from simgrad.runs.feature_files import TooSlow
from simgrad.runs.outcome import what_is_best
from simgrad.runs.recipe import read_recipe
from simgrad.runs.run import Run, write_info
from simgrad.studies.check import check_study
from simgrad.studies.study import Study
from simgrad.studies.table import build_table
from simgrad.studies.verdict import outlook, verdict

pytest.importorskip("optuna")
pytestmark = pytest.mark.usefixtures("forked_workers")

DATA = "scenes(train=60, val=20, test=20, features=global)"
TABLE = ("table.csv", "table.json", "table.md", "answer.txt", "full-run.yaml")


def small(folder: Path, **changes: Any) -> Path:
    """A folder with a small plan, as the probe would have left it."""
    told: dict[str, Any] = {
        "data": DATA,
        "features": None,
        "skip": None,
        "model": "vse++(dimension=16, word_dimension=16)",
        "objectives": ("triplet-sh", "nt-xent"),
        "device": "cpu",
        "size": Size(4, full_epochs=8, trials=2, seeds=2, evaluate_every=None, finalists=2),
        "steps": 3,
        "processes": 2,
        "minutes": 1.0,
        "expected": 1.0,
        "clip": 0.01,
        "start": 2e-3,
        "first_epochs": (0, 1),
    }
    folder.mkdir(parents=True, exist_ok=True)
    Choice(**{**told, **changes}).write(folder)
    return folder


def replicated(folder: Path) -> Path:
    """A folder with a plan such as are made today: searched and tested three times."""
    size = Size(4, full_epochs=8, trials=2, seeds=1, evaluate_every=None, replicates=3)
    return small(folder, size=size, crossed=True)


def outcome(folder: Path) -> dict[str, str]:
    """What must not depend on how often it was stopped; folders have names of their own."""
    found = {name: (folder / name).read_text() for name in TABLE}
    found["answer.txt"] = re.sub(r"about \d+ min more", "", found["answer.txt"])  # a clock's
    return {name: text.replace(str(folder), "FOLDER") for name, text in found.items()}


@pytest.fixture(scope="module")
def done(forked_workers: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = small(tmp_path_factory.mktemp("choose") / "whole")
    choose(str(folder))
    return folder


def test_the_answer_has_all_that_was_promised(
    done: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    study = Study.open(done)
    assert study.complete
    assert [len(runs) for runs in study.groups.values()] == [2, 2]
    said = (done / "answer.txt").read_text()
    assert len(said.splitlines()) <= 5
    told = ("triplet-sh", "nt-xent", "95%", "4 of 8 epochs", "vse++(dimension=16", "any language")
    assert all(one in said for one in told)
    assert not check_study(study).problems
    assert "<html" in (done / "report.html").read_text()
    choose(str(done))  # nothing is left to do, and it says the same again
    assert said.splitlines()[0] in capsys.readouterr().out.replace("\n", " ").replace("  ", " ")


def test_in_python_the_same_answer_is_an_object(done: Path) -> None:
    answer = simgrad.choose(done, quiet=True)
    assert answer.text == (done / "answer.txt").read_text().strip() == str(answer)
    assert answer.standing == verdict(Study.open(done))
    assert answer.report.is_file()
    assert read_recipe(answer.recipe).epochs == 8
    assert Run.open(answer.model).finished
    read = Answer.open(done)  # as it was written, without a look at the runs
    assert (read.text, read.standing) == (answer.text, answer.standing)


def test_where_nothing_was_answered_nothing_is_read(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no answer"):
        Answer.open(tmp_path)


def test_the_recipe_trains_the_leader_at_full_length(done: Path) -> None:
    study = Study.open(done)
    found = verdict(study)
    recipe = read_recipe(done / "full-run.yaml")
    run = study.groups[found.leader][0].recipe
    assert recipe.epochs == 8
    assert not recipe.validation_only
    assert (recipe.objective, recipe.lr, recipe.model) == (run.objective, run.lr, run.model)
    assert (recipe.reduction, recipe.clip) == (run.reduction, run.clip)
    assert (recipe.first_objective, recipe.first_epochs) == (run.first_objective, run.first_epochs)


def test_the_model_is_the_leaders_and_can_be_searched_with(done: Path) -> None:
    study = Study.open(done)
    runs = study.groups[verdict(study).leader]
    scores = {run.name: run.info["best"]["rsum"] for run in runs}
    model = Run.open(done / "model")
    assert model.info["best"]["rsum"] == max(scores.values())
    found = ask(Searcher(open_folder(done / "model", device="cpu"), "test"), "a red circle", 3)
    assert len(found.images) == 3


def test_the_report_of_a_choice_goes_where_its_own_lies(
    copied: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(copied.parent)
    (copied / "report.html").unlink()
    report(("copied",), batches=0, pictures=False)
    assert (copied / "report.html").is_file()
    assert str(Path("copied", "report.html")) in capsys.readouterr().out
    assert not Path("report.html").exists()


def test_the_model_is_called_by_what_it_is(done: Path) -> None:
    label = verdict(Study.open(done)).leader
    model = Run.open(done / "model")
    told = f" ({model.recipe.objective}, seed {model.recipe.seed}, the best of 2)"
    assert what_is_best(model) == told
    assert what_is_best(Study.open(done).groups[label][0]) == ""


@pytest.mark.long
def test_a_plan_with_replicates_is_answered(tmp_path: Path) -> None:
    folder = replicated(tmp_path / "replicated")
    answer = simgrad.choose(folder, quiet=True)
    study = Study.open(folder)
    assert [[len(draw) for draw in draws] for draws in study.draws.values()] == [[1] * 3] * 2
    tried = [tuning.record["tried"] for tuning in study.tunings if tuning.record]
    assert len(tried) == 6
    for two in tried:  # the usual setting, with and without a first epoch
        assert [one["setting"]["first_epochs"] for one in two] == [0, 1]
    recipe, model = read_recipe(answer.recipe), Run.open(answer.model).recipe
    same = ("objective", "lr", "first_epochs", "reduction", "clip", "model", "data")
    assert all(getattr(recipe, key) == getattr(model, key) for key in same)
    assert (recipe.epochs, recipe.seed, recipe.validation_only) == (8, 0, False)
    assert len(answer.text.splitlines()) <= 5
    assert "no rate but the usual one was tried" in answer.text


def test_more_seeds_go_into_the_answer(done: Path) -> None:
    found = verdict(Study.open(done))
    assert found.draws == (2, 2)
    assert found.worded("open")
    ahead = outlook(Study.open(done), found)
    assert ahead is not None
    assert ahead.decision.draws is None or ahead.decision.draws > 2


def test_a_run_that_diverged_counts_in_the_answer(
    done: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "diverged"
    shutil.copytree(done, folder)
    monkeypatch.setattr("simgrad.choosing.procedure.run_local", lambda *_: None)
    run = Run(folder / "runs" / "nt-xent-s1")
    write_info(run.path, {**run.info, "status": "failed", "error": "stopped"})
    with pytest.raises(InputError, match="did not finish"):
        choose(str(folder))
    write_info(run.path, {**run.info, "status": "failed", "error": "nan", "diverged": True})
    choose(str(folder))
    text = (folder / "answer.txt").read_text()
    assert "Failed, which counts: nt-xent diverged in 1 of 2 seeds." in text
    checked = check_study(Study.open(folder))
    assert not checked.problems
    assert (
        checked.runs == 2 * (2 + 2 * 2) + 3
    )  # trials, repeated ones, and what is left of the table


@pytest.fixture
def copied(done: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """To be altered and answered from, without a report."""
    monkeypatch.setattr("simgrad.choosing.answer.write_report", lambda *_, **__: None)
    shutil.copytree(done, tmp_path / "copied")
    return tmp_path / "copied"


def answered(folder: Path) -> str:
    choice = Choice.read(folder)
    assert choice is not None
    return answer_of(choice, Study.open(folder)).text


def spread_of(folder: Path, label: str, *spreads: float) -> None:
    """As if the similarities of its runs had spread so much at every evaluation."""
    for run, spread in zip(Study.open(folder).groups[label], spreads, strict=True):
        told = [{**entry, "spread": spread} for entry in run.history]
        path = run.path / "metrics.jsonl"
        path.write_text("".join(json.dumps(entry) + "\n" for entry in told))
        write_info(run.path, run.info)  # with the hash of that file


def test_an_objective_that_failed_with_every_seed_is_not_compared(copied: Path) -> None:
    spread_of(copied, "nt-xent", 1e-5, 1e-5)
    first, means, *_ = told = answered(copied).splitlines()
    assert first == (
        "No fair comparison: nt-xent collapsed in all 2 seeds; give 2 minutes or more."
    )
    assert means.startswith("Test rsum: ")
    assert not any(word in line for line in told for word in ("leads", "behind", "p <"))


def test_an_objective_that_failed_with_one_seed_is_named(copied: Path) -> None:
    spread_of(copied, "nt-xent", 0.1, 1e-5)
    assert "Failed, which counts: nt-xent collapsed in 1 of 2 seeds." in answered(copied)


def test_a_short_comparison_calls_nobody_ahead(copied: Path) -> None:
    choice = Choice.read(copied)
    assert choice is not None
    size = dataclasses.replace(choice.size, full_epochs=30)
    short = dataclasses.replace(choice, size=size, for_all=7.2)
    short.write(copied)
    answer = answer_of(short, Study.open(copied))
    assert answer.standing is not None
    assert {rival.word for rival in answer.standing.rivals} <= {"open", "equivalent"}
    told = answer.text.splitlines()
    assert told[0] == "Too short to compare: 4 of 30 epochs. Nobody is called ahead or behind."
    assert told[-1] == "To compare all of them takes about 8 minutes."
    assert len(told) <= 5
    assert not any(word in line for line in told[1:] for word in ("lead", "behind", "ahead", "p <"))


def end_of(folder: Path, label: str, *rises: float) -> None:
    """As if validation of its runs had risen so much from the best look before to the last."""
    for run, rise in zip(Study.open(folder).groups[label], rises, strict=True):
        *before, last = run.history
        best = max(entry["val"]["rsum"] for entry in before)
        told = [*before, {**last, "val": {**last["val"], "rsum": best + rise}}]
        path = run.path / "metrics.jsonl"
        path.write_text("".join(json.dumps(entry) + "\n" for entry in told))
        write_info(run.path, run.info)


@pytest.mark.parametrize(
    ("rises", "length", "advice"),
    [
        ((20.0, 20.0), "epochs", "name no epochs, so that a pilot finds how long to train"),
        ((20.0, 20.0), "pilot", "give 2 minutes or more"),
        ((5.0, 20.0), "pilot", ""),  # of half the runs
        ((5.0, 5.0), "epochs", ""),
    ],
)
def test_where_validation_still_rose_nobody_is_called_ahead(
    copied: Path,
    monkeypatch: pytest.MonkeyPatch,
    rises: tuple[float, float],
    length: str,
    advice: str,
) -> None:
    """4 epochs of 8, as if they were as many as had been asked for."""
    monkeypatch.setattr("simgrad.choosing.procedure.run_local", lambda *_: None)
    for label, found in (("triplet-sh", (0.0, 0.0)), ("nt-xent", rises)):
        end_of(copied, label, *found)
    choice = Choice.read(copied)
    assert choice is not None
    dataclasses.replace(choice, length_from=length).write(copied)  # type: ignore[arg-type]
    answer = simgrad.choose(copied, quiet=True)
    assert answer.standing is not None
    assert answer.standing.short is bool(advice)
    assert Study.open(copied).plan.short is bool(advice)  # as the report and the lab see it
    first, *_, last = answer.text.splitlines()
    said = "Too short to compare: validation still rose after 4 epochs, so this says who starts "
    assert (first == f"{said}quickly. Nobody is called ahead or behind.") is bool(advice)
    if advice:
        assert last == f"To compare: {advice}, and another folder."
        assert not any(word in answer.text for word in ("leads", "is behind", "p <"))


def test_every_page_says_that_it_was_looked_at_before(
    copied: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After more seeds, its p is no longer one."""
    monkeypatch.setattr(Study, "looked", property(lambda _: ("2 seeds (2026-11-18)",)))
    told = answered(copied)
    write_report((copied,), copied / "again.html", device="cpu")
    report = re.sub(r"<[^>]+>", "", (copied / "again.html").read_text())
    table = " ".join(build_table(Study.open(copied)).notes)
    lab = " ".join(facts.verdict(Study.open(copied)))
    for where, text in {"answer": told, "report": report, "table": table, "lab": lab}.items():
        assert "Looked at before, with 2 seeds (2026-11-18)" in " ".join(text.split()), where
        assert "by luck in up to 10% of such studies, not 5%" in " ".join(text.split()), where


def test_objectives_for_which_there_was_no_time_are_named(copied: Path) -> None:
    choice = Choice.read(copied)
    assert choice is not None
    less = dataclasses.replace(choice, left_out=("siglip", "triplet"), for_all=7.2)
    told = answer_of(less, Study.open(copied)).text
    assert "No time for siglip and triplet (all: 8 minutes)." in told


def test_an_objective_whose_trials_all_diverged_is_named(
    copied: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = Study.open(copied).ended
    three = {**ended, "third": []}
    monkeypatch.setattr(Study, "ended", property(lambda _: three))
    assert answered(copied).startswith("No fair comparison: third diverged in every trial; give ")
    two = {"nt-xent": ended["nt-xent"], "triplet-sh": []}
    monkeypatch.setattr(Study, "ended", property(lambda _: two))
    with pytest.raises(InputError, match="every trial of triplet-sh diverged; give 2 minutes"):
        answered(copied)


def test_training_that_was_best_early_stops_early(copied: Path) -> None:
    def best_at(*shares: float) -> int | None:
        for runs in Study.open(copied).groups.values():
            for run, share in zip(runs, shares, strict=True):
                best = {**run.info["best"], "step": share * run.info["steps"]}
                write_info(run.path, {**run.info, "best": best})
        answered(copied)
        return read_recipe(copied / "full-run.yaml").early_stop

    assert best_at(0.5, 1.0) is None  # of half the runs
    assert best_at(0.25, 0.5) == 10


def test_on_a_terminal_lines_are_broken_between_words(
    copied: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def printed() -> list[str]:
        choose(str(copied), dry_run=True)
        told = answered(copied).splitlines()
        out = capsys.readouterr().out
        say_wrapped("\n".join(told))
        lines = [*out.splitlines(), *capsys.readouterr().out.splitlines()]
        assert max(map(len, told)) > 80
        return [line for line in lines if str(copied) not in line]

    assert max(map(len, printed())) > 80  # in a pipe they stay whole
    monkeypatch.setenv("COLUMNS", "80")
    for stream in (sys.stdout, sys.stderr):
        monkeypatch.setattr(stream, "isatty", lambda: True)
    assert max(map(len, printed())) <= 80


def test_a_plan_is_not_changed_by_another_call(done: Path) -> None:
    before = (done / CHOICE).read_bytes()
    choose(DATA, minutes=500, output=done, dry_run=True)
    assert (done / CHOICE).read_bytes() == before
    with pytest.raises(InputError, match="objectives"):
        choose(DATA, objectives=("triplet", "siglip"), output=done)
    with pytest.raises(InputError, match="data"):
        choose("scenes", output=done)
    with pytest.raises(InputError, match="model"):
        choose(DATA, model="vse++", output=done)
    with pytest.raises(InputError, match="epochs"):
        choose(DATA, epochs=12, output=done)
    choose(DATA, epochs=8, output=done, dry_run=True)


def test_a_plan_of_an_earlier_version_keeps_what_it_meant(tmp_path: Path) -> None:
    told = json.loads((small(tmp_path) / CHOICE).read_text())
    new = ("rates", "start", "clip", "reduction", "precision", "first_epochs", "sha256")
    told["size"].pop("finalists")
    write_checked(tmp_path / CHOICE, {key: told[key] for key in told if key not in new})
    choice = Choice.read(tmp_path)
    assert choice is not None
    plan = choice.plan("it")
    assert plan.base.clip == 2.0
    assert plan.base.first_objective is None
    assert plan.tune is not None
    assert plan.tune.reduction == "mean"
    assert not plan.tune.start
    assert plan.tune.finalists == 1
    assert "first_epochs" not in plan.tune.space
    assert plan.tune.space["lr"].high == 3e-3


@pytest.mark.parametrize("dry_run", [True, False])
def test_a_folder_with_other_things_is_left_alone(tmp_path: Path, dry_run: bool) -> None:
    """In it `model`, say, would be replaced."""
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "mine.txt").write_text("my notes")
    with pytest.raises(InputError, match="holds model already, and no choice: give a new"):
        choose(DATA, output=tmp_path, dry_run=dry_run)
    assert [one.name for one in tmp_path.rglob("*")] == ["model", "mine.txt"]


def test_an_edited_plan_is_refused(tmp_path: Path) -> None:
    folder = small(tmp_path / "edited")
    told = json.loads((folder / CHOICE).read_text())
    write_json(folder / CHOICE, {**told, "processes": 3})
    with pytest.raises(InputError, match="edited by hand"):
        choose(str(folder))


def test_what_cannot_be_chosen_from_is_said_at_once(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="two or more"):
        choose(DATA, objectives=("triplet",), output=tmp_path)
    with pytest.raises(InputError, match="nothing-such"):
        choose(DATA, objectives=("triplet", "nothing-such"), output=tmp_path)
    with pytest.raises(InputError, match="minutes"):
        choose(DATA, minutes=0, output=tmp_path)
    with pytest.raises(InputError, match="80 pictures are too few: there is none for test"):
        choose("scenes(train=60, val=20, test=0, features=global)", output=tmp_path, device="cpu")
    with pytest.raises(InputError, match="split 'test'"):
        choose("scenes(train=90, val=20, test=0, features=global)", output=tmp_path, device="cpu")


def test_what_could_not_begin_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="no such file or folder"):
        choose("nowhere", device="cpu")
    assert list(tmp_path.iterdir()) == []
    own = tmp_path / "mine"  # a folder that was there stays
    own.mkdir()
    with pytest.raises(InputError, match="no such file or folder"):
        choose("nowhere", output=own, device="cpu")
    assert list(tmp_path.rglob("*")) == [own]


def test_a_dry_run_computes_and_writes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("measure", "full_length", "write_features", "check"):
        monkeypatch.setattr(f"simgrad.choosing.planning.{name}", None)
    folder = tmp_path / "planned"
    choose(DATA, minutes=600, device="cpu", output=folder, dry_run=True)
    told = capsys.readouterr().out
    assert "an estimate from stated rates of idle cores: nothing was timed" in told
    assert re.search(r"takes: .* min of 600, \d+\.\d of it before training", told)
    assert all(f"  {one}:" in told for one in ("compares", "trains", "shows", "length", "takes"))
    assert "any language" in told
    choose(DATA, minutes=2, device="cpu", output=folder, dry_run=True)
    assert "no two objectives fit" in capsys.readouterr().out
    with pytest.raises(InputError, match=r"too little .* of focused-deviance .* give .*`minutes="):
        choose(DATA, minutes=0.1, device="cpu", output=folder, dry_run=True)
    with pytest.raises(InputError, match="nobody has measured"):
        choose(DATA, model="vsrn", device="cpu", output=folder, dry_run=True)
    assert not folder.exists()


@pytest.mark.parametrize(("processes", "rounds"), [(1, 5), (2, 3), (8, 1)])
def test_a_dry_run_counts_that_processes_time_side_by_side(
    monkeypatch: pytest.MonkeyPatch, processes: int, rounds: int
) -> None:
    monkeypatch.setattr("simgrad.choosing.planning._processes", lambda _: processes)
    before = estimate(Wish(DATA, 30, epochs=10, device="cpu")).before
    assert before == pytest.approx((8 + 18 * rounds) / 60, abs=0.01)


def test_objectives_may_be_objects() -> None:
    two = simgrad.objective("nt-xent", tau=0.05), "triplet"
    plan = simgrad.choose(DATA, 600, objectives=two, device="cpu", dry_run=True)
    assert "nt-xent(tau=0.05), triplet" in plan


@pytest.mark.long
def test_a_probe_and_a_pilot_make_the_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, names = tmp_path / "planned", ("triplet", "nt-xent")
    model = "vse++(dimension=16, word_dimension=16)"
    wish = Wish(DATA, 60, names, model, device="cpu")
    for name in ("_SHORTEST", "_LONGEST"):
        monkeypatch.setattr(f"simgrad.choosing.planning.{name}", 0.5)
    choice = decide(wish, folder)
    assert choice.objectives == names
    assert (choice.length_from, choice.steps) == ("pilot", 3)
    assert choice.size.share >= 0.5
    assert choice.size.replicates >= 3
    assert choice.expected > 0
    assert not (folder / "pilot").exists()


@pytest.mark.parametrize(("step", "piloted"), [(0.001, True), (2.0, False)])
def test_no_pilot_begins_where_nothing_could_be_compared_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: float, piloted: bool
) -> None:
    given: list[float] = []

    def pilot(*told: Any) -> None:
        given.append(told[3])

    # The second was not timed: there was no time.
    pace = {"triplet": Pace(step=step, evaluation=0.1, start=1.0)}
    monkeypatch.setattr("simgrad.choosing.planning.measure", lambda *_: pace)
    monkeypatch.setattr("simgrad.choosing.planning.full_length", pilot)
    choice = decide(Wish(DATA, 3, ("triplet", "nt-xent"), device="cpu"), tmp_path, quiet=True)
    assert bool(given) is piloted
    assert choice.expected <= 3
    if not piloted:
        assert choice.alone
        assert choice.short
        assert 1 <= choice.size.epochs < choice.size.full_epochs
        assert "is begun instead" in plan_text(choice, "here")


@pytest.mark.parametrize(("timing", "given"), [(6, 36), (39, 15), (54, None), (170, None)])
def test_timing_and_pilot_leave_most_of_the_time_for_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, timing: float, given: float | None
) -> None:
    """Of 180 seconds 54 at most; timing begins so many processes as it must, and may take long."""
    passed, told, clock = [0.0], [], time.monotonic()

    def timed(*_: Any) -> dict[str, Pace]:
        passed.append(float(timing))
        return dict.fromkeys(("triplet", "nt-xent"), Pace(step=1e-4, evaluation=1e-3, start=0.1))

    monkeypatch.setattr("simgrad.choosing.planning.time.monotonic", lambda: clock + sum(passed))
    monkeypatch.setattr("simgrad.choosing.planning.measure", timed)
    monkeypatch.setattr("simgrad.choosing.planning.full_length", lambda *a: told.append(a[3]))
    decide(Wish(DATA, 3, ("triplet", "nt-xent"), device="cpu"), tmp_path, quiet=True)
    assert told == ([] if given is None else [pytest.approx(given)])


def test_where_not_one_epoch_fits_nothing_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pace = dict.fromkeys(("triplet", "nt-xent"), Pace(step=30.0, evaluation=9.0, start=5.0))
    monkeypatch.setattr("simgrad.choosing.planning.measure", lambda *_: pace)
    monkeypatch.setattr("simgrad.choosing.planning.full_length", None)
    wish = Wish(DATA, 1, ("triplet", "nt-xent"), device="cpu")
    with pytest.raises(InputError, match="`minutes=1` is too little to train anything") as told:
        decide(wish, tmp_path, quiet=True)
    said = str(told.value)
    assert "Less time is needed with `epochs` (no pilot) or `short=True` (shorter" in said
    needed = int(said.partition("about `minutes=")[2].split("`")[0])
    monkeypatch.setattr("simgrad.choosing.planning.measure", None)  # steps were timed already
    choice = decide(dataclasses.replace(wish, minutes=needed + 1, epochs=30), tmp_path, quiet=True)
    assert len(choice.objectives) == 2  # what it names is enough
    assert list(tmp_path.iterdir()) == []  # the next plan is timed anew


def test_the_timing_of_other_runs_is_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    timed: list[list[str]] = []

    def measure(recipes: dict[str, Any], *_: Any) -> dict[str, Pace]:
        timed.append(list(recipes))
        return dict.fromkeys(recipes, Pace(step=30.0, evaluation=9.0, start=5.0))

    monkeypatch.setattr("simgrad.choosing.planning.measure", measure)
    for names in (("triplet", "nt-xent"), ("triplet", "siglip"), ("triplet", "siglip")):
        with pytest.raises(InputError, match="too little to train"):
            decide(Wish(DATA, 1, names, epochs=9, device="cpu"), tmp_path, quiet=True)
    assert timed == [["triplet", "nt-xent"], ["triplet", "siglip"]]
    for damaged in ("{}", "[]", "{"):
        (tmp_path / TIMING).write_text(damaged)
        with pytest.raises(InputError, match="too little to train"):
            decide(Wish(DATA, 1, names, epochs=9, device="cpu"), tmp_path, quiet=True)
    assert timed[2:] == [["triplet", "siglip"]] * 3


def test_features_that_took_all_the_time_are_kept_and_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def late(*_: Any) -> str:
        passed.append(61.0)
        return str(tmp_path)

    passed, clock = [0.0], time.monotonic
    monkeypatch.setattr("simgrad.choosing.planning._features", late)
    monkeypatch.setattr("simgrad.choosing.planning.measure", None)
    monkeypatch.setattr("simgrad.choosing.planning.time.monotonic", lambda: clock() + sum(passed))
    with pytest.raises(InputError, match=r"took 1\.\d minutes.*same call goes on with them"):
        decide(Wish(DATA, 1, ("triplet", "nt-xent"), device="cpu"), tmp_path, quiet=True)


def test_features_that_cannot_end_in_time_are_said_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slow(*_: Any, within: float) -> None:
        assert 0 < within <= 60
        raise TooSlow(311)

    monkeypatch.setattr("simgrad.choosing.planning.write_features", slow)
    monkeypatch.setattr("simgrad.choosing.planning._needs_features", lambda *_: True)
    monkeypatch.setattr("simgrad.choosing.planning.measure", None)
    with pytest.raises(InputError, match=r"take about 5\.2 minutes.*`dry_run`.* go.* on with them"):
        decide(Wish(DATA, 1, ("triplet", "nt-xent"), device="cpu"), tmp_path, quiet=True)


@pytest.mark.parametrize(
    ("full", "words"), [(2, "It reached a test rsum of"), (47, "had 1 of 47 epochs, too few")]
)
def test_where_two_do_not_fit_one_is_trained_by_default(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], full: int, words: str
) -> None:
    folder = small(
        tmp_path / "alone",
        objectives=("nt-xent",),
        size=Size(1, full_epochs=full, trials=0, seeds=1, evaluate_every=None),
        left_out=("triplet-sh",),
        for_two=2.5,
    )
    choose(str(folder))
    told = (folder / "answer.txt").read_text()
    assert told.startswith("No comparison: two objectives need about 3 minutes here; 1 given.")
    assert "nt-xent, a default and no finding" in told
    assert words in told
    assert ("It reached" in told) == (full == 2)
    assert read_recipe(folder / "full-run.yaml").epochs == full
    assert Run.open(folder / "model").finished
    said = capsys.readouterr().err
    assert "no two objectives fit" in said
    assert said.endswith("writing the report ...\n")
    assert Answer.open(folder).standing is None
    choose(str(folder))  # again: the same
    assert (folder / "answer.txt").read_text() == told
    report = (folder / "report.html").read_text()
    assert "<title>Which objective for alone?" in report
    assert report.index("No comparison: two objectives") < report.index("test rsum")


@pytest.mark.parametrize(("best", "told"), [(18, True), (60, False)])
def test_a_length_that_was_assumed_gives_way_to_what_validation_said(
    best: int, told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    choice = SimpleNamespace(
        short=True, steps=3, length_from="usual", size=SimpleNamespace(epochs=21, full_epochs=62)
    )
    run = SimpleNamespace(info={"best": {"step": best}, "steps": 63}, test={"rsum": 295.9})
    monkeypatch.setattr("simgrad.choosing.answer.outcome_of", lambda run: "trained")
    said = _ended(choice, run)  # type: ignore[arg-type]
    assert said.startswith("had 21 of 62 epochs")
    assert ("best after 6: more may not help" in said) == told
    assert ("give 12 epochs" in said) == told
    assert ("too few to call it trained" in said) != told


@pytest.mark.parametrize("own", [True, False])
def test_features_that_lie_there_serve_the_next_attempt(tmp_path: Path, own: bool) -> None:
    """Those that somebody named are in the same command already."""
    folder = small(tmp_path, features=str((tmp_path / "features").resolve() if own else "mine"))
    choice = Choice.read(folder)
    assert choice is not None
    told = f", and the features in {folder / 'features'}" if own else ""
    assert _elsewhere(choice, folder) == f"another folder{told}"


# -- stopped


def begin(folder: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "simgrad.cli", "choose", str(folder)]
    quiet = subprocess.DEVNULL
    return subprocess.Popen(command, stdout=quiet, stderr=quiet, start_new_session=True)


def work_done(folder: Path) -> int:
    """Grows with everything that is written down."""
    files = [*folder.glob("*/*/metrics.jsonl"), *folder.glob("journal.log")]
    return sum(path.stat().st_size for path in files if path.is_file())


def killed_once(folder: Path, chance: random.Random) -> bool:
    """Let it work for a while, then kill it with all its workers; whether it had not finished."""
    before, running = work_done(folder), begin(folder)
    while running.poll() is None and work_done(folder) == before:
        time.sleep(0.01)
    time.sleep(chance.uniform(0, 0.3))
    alive = running.poll() is None
    if alive:
        os.killpg(running.pid, signal.SIGKILL)
    running.wait()
    return alive


def killed_at(folder: Path, moment: float, chance: random.Random) -> bool:
    """The same, when so much is written down; in between it may lose what no checkpoint has."""
    running = begin(folder)
    while running.poll() is None and work_done(folder) < moment:
        time.sleep(0.05)
    time.sleep(chance.uniform(0, 1))
    alive = running.poll() is None
    if alive:
        os.killpg(running.pid, signal.SIGKILL)
    running.wait()
    return alive


kills_groups = pytest.mark.skipif(os.name == "nt", reason="kills a group of processes")


def heard() -> None:
    """Ctrl-C is, also where the tests run in the background of a shell, which ignores it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@kills_groups
@pytest.mark.long
@pytest.mark.parametrize("later", [0.5, 4.0])  # while processes import, and while they time
def test_ctrl_c_in_timing_says_one_line(tmp_path: Path, later: float) -> None:
    """A terminal sends it to all processes."""
    words = ["choose", DATA, "--minutes", "60", "--device", "cpu", "--output", str(tmp_path / "c")]
    with open(tmp_path / "told", "w+") as told:
        running = subprocess.Popen(
            [sys.executable, "-m", "simgrad.cli", *words],
            stderr=told,
            start_new_session=True,
            preexec_fn=heard,
        )
        while "timing" not in (said := (tmp_path / "told").read_text()):
            assert running.poll() is None, said
            time.sleep(0.05)
        time.sleep(later)
        os.killpg(running.pid, signal.SIGINT)
        assert running.wait(20) == 130
    said = (tmp_path / "told").read_text().rpartition("timing")[2]
    assert said.splitlines()[1:] == ["simgrad: stopped. Run the same command again to resume."]


@kills_groups
@pytest.mark.timeout(3600)
@pytest.mark.slow
def test_kills_do_not_change_the_answer(tmp_path: Path) -> None:
    folder, chance = replicated(tmp_path / "killed"), random.Random(2)
    struck = sum(killed_once(folder, chance) for _ in range(2))
    assert struck == 2
    choose(str(folder))
    whole = replicated(tmp_path / "whole")
    choose(str(whole))
    assert outcome(folder) == outcome(whole)


@kills_groups
@pytest.mark.timeout(3600)
@pytest.mark.slow
def test_twenty_kills_of_a_plan_of_five_minutes(tmp_path: Path) -> None:
    """Everything through the command; kills are spread over the whole work, not over its start."""
    whole, folder = tmp_path / "whole", tmp_path / "killed"
    whole.mkdir()
    folder.mkdir()
    plan = decide(Wish("scenes", 5, device="cpu"), whole)
    if plan.alone:
        pytest.skip("this machine is too slow, or too busy, to compare two in five minutes")
    plan.write(whole)
    shutil.copy(whole / CHOICE, folder / CHOICE)
    assert begin(whole).wait() == 0
    chance = random.Random(20)
    for moment in sorted(chance.uniform(0, 0.99 * work_done(whole)) for _ in range(20)):
        assert killed_at(folder, moment, chance)
    assert begin(folder).wait() == 0
    assert outcome(folder) == outcome(whole)
