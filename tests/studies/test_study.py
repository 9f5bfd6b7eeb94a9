"""Studies: plans, workers, extension, tables, engines."""

import csv
import json
import os
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from simgrad.cli.study import show
from simgrad.cli.study import study as command
from simgrad.core import extras
from simgrad.core.errors import InputError
from simgrad.core.files import held, sha256
from simgrad.core.text import told_once
from simgrad.evaluation import Estimate
from simgrad.objectives import objectives
from simgrad.runs.run import LOCK, TEST
from simgrad.studies.cluster import run_ray
from simgrad.studies.earlier_looks import looks_of, note_look
from simgrad.studies.engine import failures, run_local
from simgrad.studies.plan import Plan, plan_from_dict
from simgrad.studies.study import Study
from simgrad.studies.table import (
    StudyTable,
    TableRow,
    build_table,
    number,
    write_tables,
)
from simgrad.studies.worker import work
from simgrad.training import Run
from tests.processes import simgrad

SMALL: dict[str, Any] = {
    "title": "small",
    "recipe": {
        "data": "scenes(train=40, val=10, test=10, features=global)",
        "model": "vse++(dimension=8, word_dimension=8)",
        "epochs": 1,
        "batch": 32,
        "device": "cpu",
        "workers": 0,
        "min_count": 1,
    },
    "grid": {"objective": ["triplet", "nt-xent"]},
    "seeds": 2,
    "baseline": "triplet",
}


def plan(**changes: Any) -> Plan:
    return plan_from_dict({**SMALL, **changes}, "test")


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Study:
    study = Study.create(plan(), tmp_path_factory.mktemp("study") / "small")
    assert work(study) == 0
    return study


def test_every_run_is_done_once(done: Study) -> None:
    assert len(done.runs) == 4
    assert all(run.finished for run in done.runs)
    assert {label: len(runs) for label, runs in done.groups.items()} == {"triplet": 2, "nt-xent": 2}
    before = {run.path: (run.path / "run.json").stat().st_mtime_ns for run in done.runs}
    work(done)
    assert before == {r.path: (r.path / "run.json").stat().st_mtime_ns for r in done.runs}


def test_printed_figures_stand_under_their_names(capsys: pytest.CaptureFixture[str]) -> None:
    names = ("i2t_r1", "i2t_map5_hits", "t2i_r1", "rsum")  # as published: not recalls first
    ours = {name: Estimate(float(i)) for i, name in enumerate(names, 11)}
    theirs = {name: (float(i), None) for i, name in enumerate(names, 21)}
    row = TableRow("a", "", 1, ours, frozenset(), False, None, theirs)
    show(StudyTable("t", "", names, (row,)))
    _, ways, kinds, first, second = capsys.readouterr().out.splitlines()
    assert ways.split() == ["i2t", "t2i"]
    assert kinds.split() == ["R@1", "R@1", "i2t", "mAP@5", "over", "hits", "rsum"]
    assert first.split() == ["a", "11.0", "13.0", "12.000", "14.0"]
    assert second.split() == ["published", "21.0", "23.0", "22.000", "24.0"]


def test_a_table_names_the_data_of_published_numbers(tmp_path: Path) -> None:
    rows = [{"label": "x", "published": {"method": "VSE++", "loss": "Triplet"}}]
    published = {"table": "bleeker_table1.csv", "where": {"dataset": "f30k"}}
    study = Study.create(plan(grid={}, rows=rows, published=published), tmp_path)
    write_tables(build_table(study), tmp_path)
    assert "| published, NOT like ours: flickr30k-1k | 30.8" in (tmp_path / "table.md").read_text()
    with pytest.raises(InputError, match="published: where"):
        plan(published={"where": "f30k"})


def test_fast_is_smaller_and_says_so() -> None:
    whole = plan_from_dict({**SMALL, "recipe": {"epochs": 30, "batch": 192}, "seeds": 5}, "test")
    small = whole.fast()
    recipe = small.recipe(small.rows[0], 0)
    assert (recipe.epochs, recipe.batch, len(small.seeds)) == (3, 96, 2)
    assert recipe.model == "vse++(dimension=128, word_dimension=64)"
    assert "fast" in small.title
    assert "0.001" in small.title
    assert recipe.lr == 1e-3


@pytest.mark.parametrize(
    ("rows", "kept"),
    [
        ([{"lr": 2e-4}, {"lr": 1e-3}], {"lr": [2e-4, 1e-3]}),
        (
            [{}, {"first_objective": "triplet", "first_epochs": 1}, {"batch": 512}],
            {"first_objective": [None, "triplet", None], "first_epochs": [0, 1, 0]},
        ),
        ([{"epochs": 10}, {"epochs": 12}], {"epochs": [10, 12], "lr": [1e-3, 1e-3]}),
        ([{"model": "vse++(dimension=64)"}, {"model": "vse++"}], {"lr": [1e-3, 1e-3]}),
    ],
)
def test_fast_keeps_what_tells_rows_apart(
    rows: list[dict[str, Any]], kept: dict[str, list[Any]]
) -> None:
    told = [{"label": f"row {i}", "set": changes} for i, changes in enumerate(rows)]
    small = plan_from_dict({"rows": told}, "test").fast()
    recipes = [small.recipe(row, 0) for row in small.rows]
    assert len({repr(recipe.to_dict()) for recipe in recipes}) == len(rows)
    for field, values in kept.items():
        assert [getattr(recipe, field) for recipe in recipes] == values


def test_the_table_says_what_the_runs_say(done: Study) -> None:
    table = build_table(done)
    for row in table.rows:
        values = [run.test["rsum"] for run in done.groups[row.label]]
        cell = row.cells["rsum"]
        assert cell.mean == pytest.approx(sum(values) / 2)
        assert cell.low is not None
        assert cell.high is not None
        assert cell.low < cell.mean < cell.high
    assert [row.baseline for row in table.rows] == [True, False]
    difference = table.rows[1].difference
    assert difference is not None
    gap = table.rows[1].cells["rsum"].mean - table.rows[0].cells["rsum"].mean
    assert difference.difference == pytest.approx(gap)


def test_table_files(done: Study, tmp_path: Path) -> None:
    table = build_table(done)
    write_tables(table, tmp_path)
    rows = list(csv.DictReader((tmp_path / "table.csv").open(encoding="utf-8")))
    assert {r["label"] for r in rows} == {"triplet", "nt-xent"}
    assert {r["metric"] for r in rows if float(r["low"]) <= float(r["mean"])} >= {"rsum"}
    assert len(json.loads((tmp_path / "table.json").read_text())["rows"]) == 2
    assert "| triplet |" in (tmp_path / "table.md").read_text(encoding="utf-8")
    assert "\\toprule" in (tmp_path / "table.tex").read_text(encoding="utf-8")


def test_labels_of_strangers_leave_a_table_whole(tmp_path: Path) -> None:
    """They run nothing in LaTeX, in a spreadsheet or on the terminal."""
    rows = [{"label": "=HYPERLINK(1) & \\input{x}\n| [/b] \x1b[31m"}, {"label": "plain"}]
    study = Study.create(plan(grid={}, rows=rows, claim="half [/b] a claim"), tmp_path)
    write_tables(build_table(study), tmp_path)
    show(build_table(study))
    assert "\n'=HYPERLINK(1)" in (tmp_path / "table.csv").read_text()
    tex = (tmp_path / "table.tex").read_text()
    assert "\\input" not in tex.replace("\\textbackslash{}input", "")
    assert "=HYPERLINK(1) \\&" in tex
    table = [line for line in (tmp_path / "table.md").read_text().splitlines() if "|" in line]
    assert len(table) == 4


def test_each_seed_is_a_draw_of_its_own(done: Study) -> None:
    seeds = {
        label: [[r.recipe.seed for r in d] for d in found] for label, found in done.draws.items()
    }
    assert seeds == {row.label: [[seed] for seed in done.plan.seeds] for row in done.plan.rows}
    assert {k: [run.path for (run,) in draws] for k, draws in done.draws.items()} == {
        label: [run.path for run in runs] for label, runs in done.ended.items()
    }
    assert not done.new_splits


def test_a_study_is_extended_by_seeds_and_never_changed(done: Study) -> None:
    assert Study.create(plan(seeds=2), done.path).looked == ()  # the same once more
    more = Study.create(plan(seeds=3), done.path)
    assert [one.partition(" (")[0] for one in more.looked] == ["2 seeds"]
    told = " ".join(build_table(more).notes)
    assert "Looked at before, with 2 seeds (" in told
    assert "in up to 10% of such studies, not 5%" in told
    assert Study.create(plan(seeds=3), done.path).looked == more.looked  # nothing new came
    assert len(more.jobs()) == 6
    assert sum(Run(path).finished for path, _ in more.jobs()) == 4
    with pytest.raises(InputError, match="another recipe"):
        Study.create(plan(recipe={**SMALL["recipe"], "lr": 0.1}), done.path)


def test_a_corrected_study_goes_on_and_failed_runs_are_replaced(tmp_path: Path) -> None:
    good = {"label": "good", "set": {"objective": "triplet"}}

    def made(**fields: Any) -> Study:
        rows = [good, {"label": "bad", "set": fields}]
        return Study.create(plan(grid={}, rows=rows, seeds=1), tmp_path / "study")

    study = made(data=str(tmp_path / "nowhere"))
    assert work(study) == 1
    first = (study.jobs()[0][0] / "run.json").read_bytes()
    study = made(lr=1e-3)
    assert Run(study.jobs()[1][0]).info["status"] == "waiting"  # nothing of it is left
    assert work(study) == 0
    assert (study.jobs()[0][0] / "run.json").read_bytes() == first
    assert Run(study.jobs()[1][0]).recipe.lr == 1e-3
    with pytest.raises(InputError, match=r"bad-s0 were trained .*lr differ"):
        made(lr=1e-2)
    assert Study.open(study.path).plan.rows[1].changes == {"lr": 1e-3}


def test_a_row_that_never_began_and_is_gone_leaves_no_folder(tmp_path: Path) -> None:
    lost = {"label": "lost", "set": {"data": str(tmp_path / "nowhere")}}
    study = Study.create(plan(grid={}, rows=[lost], seeds=1), tmp_path / "study")
    assert work(study) == 1
    assert [path.name for path in (study.path / "runs").iterdir()] == ["lost-s0"]
    study = Study.create(plan(grid={}, rows=[{"label": "found", "set": {}}], seeds=1), study.path)
    assert not (study.path / "runs" / "lost-s0").exists()


def test_finished_runs_that_are_in_no_row_are_told(tmp_path: Path) -> None:
    study = Study.create(plan(seeds=1), tmp_path / "study")
    for path, _ in study.jobs():
        path.mkdir(parents=True)
        (path / TEST).write_text("{}")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Study.create(plan(seeds=2), study.path)  # more seeds, a plan that is resumed
    told = r"2 finished runs are in no row of this plan: nt-xent-s0, triplet-s0\.$"
    with pytest.warns(UserWarning, match=told):
        Study.create(plan(grid={"objective": ["smooth-ap"]}), study.path)


def test_rows_keep_their_folders_when_the_study_grows(tmp_path: Path) -> None:
    """A second goal would give the first another name."""
    one, two = "goal(triplet=con, pair=sig)", "goal(triplet=cir, pair=sig-ms)"
    study = Study.create(plan(grid={"objective": ["triplet", one]}, seeds=1), tmp_path)
    assert [path.name for path, _ in study.jobs()] == ["triplet-s0", "goal-s0"]
    study = Study.create(plan(grid={"objective": ["triplet", one, two]}, seeds=1), tmp_path)
    assert [path.name for path, _ in study.jobs()] == [
        "triplet-s0",
        "goal-s0",
        "goal-cir-sig-ms-s0",
    ]


def test_a_damaged_plan_is_noticed(tmp_path: Path) -> None:
    study = Study.create(plan(), tmp_path)
    whole = (tmp_path / "study.yaml").read_bytes()
    (tmp_path / "study.yaml").write_bytes(whole.replace(b"nt-xent", b"nt-xenu", 1))
    with pytest.raises(InputError, match="not what was written"):
        _ = Study.open(tmp_path).plan
    (tmp_path / "study.yaml").write_bytes(whole)
    assert Study.open(tmp_path).plan == study.plan


def test_paths_of_a_study_hold_wherever_one_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "photos").mkdir()
    rows = [{"label": "a", "set": {"data": "photos"}}]
    study = Study.create(plan(grid={}, rows=rows), tmp_path / "study")
    assert study.jobs()[0][1].data == str(tmp_path / "photos")


def test_a_dry_run_opens_everything_and_fails_as_the_study_would(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "s.yaml"
    file.write_text(yaml.safe_dump(SMALL))
    command(str(file), dry_run=True)
    told = capsys.readouterr().out
    assert "features 256" in told
    assert "train: 40 images, 200 captions" in told
    assert [path.name for path in tmp_path.iterdir()] == ["s.yaml"]
    with pytest.raises(InputError, match="2 of 2 rows cannot be run"):
        command(str(file), dry_run=True, data="nonsense")
    said = capsys.readouterr().err
    assert said.count("nonsense") == 1
    assert "triplet, nt-xent" in said
    for field, value, words in (
        ("model", "scan", "reads regions"),
        ("candidates", "nowhere", "nowhere"),
    ):
        changed = {**SMALL, "recipe": {**SMALL["recipe"], field: value, "objective": "triplet"}}
        changed["grid"] = {"objective": ["off-tri" if field == "candidates" else "triplet"]}
        file.write_text(yaml.safe_dump(changed))
        with pytest.raises(InputError, match="1 of 1 rows"):
            command(str(file), dry_run=True)
        assert words in capsys.readouterr().err


def test_equal_failures_are_told_once() -> None:
    same = [(f"run-{i}", "no disk") for i in range(8)]
    lines = told_once([*same, ("other", "no light")])
    assert lines == [
        "run-0, run-1, run-2, run-3 and 4 more: no disk",
        "other: no light",
    ]


@pytest.fixture
def own_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A file of one's own, imported by `--with` in this process for one test."""
    monkeypatch.setenv("SIMGRAD_CACHE", str(tmp_path / "cache"))
    file = tmp_path / "own.py"
    file.write_text(OWN)
    extras.import_file(file)
    yield file
    objectives._declared.pop("double")


@pytest.mark.long
def test_a_study_remembers_files_of_one_s_own(own_file: Path, tmp_path: Path) -> None:
    study = Study.create(plan(grid={"objective": ["double"]}, seeds=1), tmp_path / "study")
    assert work(study) == 0
    environment = {k: v for k, v in os.environ.items() if k != "SIMGRAD_WITH"}

    def count() -> tuple[int, str]:
        command = ["cocos", "study/runs/double-s0", "--batches", "1"]
        done = simgrad(*command, cwd=tmp_path, env=environment)
        return done.returncode, done.stdout + done.stderr

    code, said = count()
    assert code == 0, said
    assert f"importing {own_file}" in said
    own_file.write_text(OWN + "# changed\n")
    code, said = count()
    assert code == 2
    assert "has changed since" in said
    assert "no objective 'double'" in said


def test_a_copy_of_a_file_that_was_given_is_not_imported_as_well(
    own_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A study that was made in another checkout names the file there."""
    copy = tmp_path / "copy.py"
    copy.write_text(OWN)
    extras.bring_back(tmp_path, [{"path": str(copy), "sha256": sha256(copy)}])
    assert "importing" not in capsys.readouterr().err


def test_a_file_that_this_user_never_ran_is_not_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A study from a stranger may name any file and its hash."""
    monkeypatch.setenv("SIMGRAD_CACHE", str(tmp_path / "cache"))
    file = tmp_path / "theirs.py"
    file.write_text("raise SystemExit('it ran')\n")
    extras.bring_back(tmp_path, [{"path": str(file), "sha256": sha256(file)}])
    assert "nobody has given to --with" in capsys.readouterr().err


OWN = """
from dataclasses import dataclass
import simgrad
from simgrad.objectives.base import objectives
from simgrad.objectives import Objective

@objectives.declare("double", paper="", description="pushes everything apart, twice")
@dataclass(eq=False, repr=False)
class Double(Objective):
    def rule(self, similarities, positives, batch):
        weights = 2.0 * (~positives).to(similarities.dtype)
        return (similarities * weights).sum(1), weights
"""


@pytest.mark.long
@pytest.mark.parametrize("processes", [1, 2])  # started one by one, and forked
def test_a_worker_is_started_as_users_start_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, processes: int
) -> None:
    """Its runs note the command that the user typed, not the worker's own."""
    monkeypatch.setattr(sys, "argv", ["/bin/simgrad", "choose", "my photos/"])
    study = Study.create(plan(grid={"objective": ["triplet"]}, seeds=1), tmp_path / "study")
    run_local(study, processes=processes, quiet=True)
    assert [run.finished for run in study.runs] == [True], failures(study)
    assert [run.info["command"] for run in study.runs] == ["simgrad choose 'my photos/'"]


def test_two_processes_share_the_work(forked_workers: None, tmp_path: Path) -> None:
    study = Study.create(plan(), tmp_path / "study")
    run_local(study, processes=2, quiet=True)
    assert all(Run(path).finished for path, _ in study.jobs())
    assert failures(study) == []


def test_a_command_that_joins_in_leaves_the_plan_alone(tmp_path: Path) -> None:
    """One was killed while it wrote the same plan again: the study had lost its seal."""
    study = Study.create(plan(), tmp_path / "study")
    files = [study.path / name for name in ("study.yaml", "study.json")]
    before, count = [(file.stat().st_ino, file.read_bytes()) for file in files], len(study.jobs())
    Study.create(plan(), tmp_path / "study")
    assert [(file.stat().st_ino, file.read_bytes()) for file in files] == before
    Study.create(plan(seeds=3), tmp_path / "study")  # a changed plan is written, and sealed
    assert all(file.read_bytes() != old for file, (_, old) in zip(files, before, strict=True))
    assert len(Study.open(study.path).jobs()) > count


@pytest.mark.long
@pytest.mark.parametrize(
    "sent", [signal.SIGTERM, pytest.param(signal.SIGKILL, marks=pytest.mark.slow)]
)
def test_workers_end_with_the_command_that_started_them(sent: int, tmp_path: Path) -> None:
    """A batch system ends the command alone; its workers once went on by themselves."""
    fields = {**SMALL["recipe"], "epochs": 500}
    study = Study.create(plan(recipe=fields), tmp_path / "study")
    code = (
        "import sys\nfrom simgrad.studies.engine import run_local\n"
        "from simgrad.studies.study import Study\n"
        "run_local(Study.open(sys.argv[1]), processes=2, quiet=True)\n"
    )
    started = subprocess.Popen(
        [sys.executable, "-c", code, str(study.path)], stderr=subprocess.DEVNULL
    )
    paths = [path for path, _ in study.jobs()]
    until = time.monotonic() + 120  # beside other work imports alone take half a minute
    while not any(held(path / LOCK) for path in paths):
        assert time.monotonic() < until
        time.sleep(0.05)
    started.send_signal(sent)
    started.wait(120)
    until = time.monotonic() + 120
    while any(held(path / LOCK) for path in paths):  # with SIGTERM they are awaited
        assert sent == signal.SIGKILL, "a worker is still there"
        assert time.monotonic() < until
        time.sleep(0.05)
    assert not study.complete


def test_a_failing_run_is_named_and_the_others_finish(tmp_path: Path) -> None:
    rows = [
        {"label": "good", "set": {"objective": "triplet"}},
        {"label": "bad", "set": {"objective": "off-tri"}},
    ]
    study = Study.create(plan(grid={}, rows=rows, seeds=1), tmp_path / "study")
    assert work(study) == 1
    assert Run(study.jobs()[0][0]).finished
    (name, reason), *rest = failures(study)
    assert name == "bad-s0"
    assert not rest
    assert "offline" in reason or "candidates" in reason


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"seeds": 0}, "seeds"),
        ({"grid": {"objective": []}}, "list of choices"),
        ({"grid": {}}, "needs `rows` or a `grid`"),
        ({"colour": "red"}, "no field 'colour'"),
        ({"grid": {"objective": ["tripet"]}}, "Did you mean 'triplet'"),
        ({"grid": {"learning": [1]}}, "no field 'learning'"),
        ({"rows": [{"label": "a"}, {"label": "a"}]}, "two rows are called 'a'"),
    ],
)
def test_what_is_wrong_with_a_plan_is_said_before_anything_runs(
    changes: dict[str, Any], words: str
) -> None:
    with pytest.raises(InputError, match=words):
        plan(**changes)


def test_numbers() -> None:
    assert number((12.345, 0.67), "rsum") == "12.3 ± 0.7"
    assert number((0.1234, None), "i2t_map5_hits") == "0.123"
    assert number((0.5, None), "t2i_r1") == "0.5"  # a small recall is still percent
    assert number((float("nan"), None), "rsum") == "–"


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Two cores, and a GPU that is none: what is asked of it is counted all the same."""
    ray = pytest.importorskip("ray", reason="the extra `ray` is not installed")
    monkeypatch.setenv("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    ray.init(num_cpus=2, num_gpus=1, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()


@pytest.mark.slow
def test_ray_runs_the_same_workers(
    cluster: None, own_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two on one GPU; a first round is shared, and a file of one's own is imported."""
    monkeypatch.setattr(sys, "argv", ["simgrad", "study", "plan.yaml", "--engine", "ray"])
    second = {"epochs": 1, "depth": 20}
    rows = [
        {"label": "tri", "set": {"second_round": {"objective": "off-tri", **second}}},
        {"label": "quin", "set": {"second_round": {"objective": "off-quin", **second}}},
        {"label": "own", "set": {"objective": "double"}},
    ]
    fields = {**SMALL["recipe"], "objective": "triplet-sh", "device": "auto"}
    study = Study.create(plan(recipe=fields, grid={}, rows=rows, seeds=1), tmp_path / "study")
    run_ray(study, processes=2, quiet=True)
    assert [run.finished for run in study.runs] == [True] * 3, failures(study)
    assert not list(study.path.glob("runs/*/round1"))
    assert len(list(study.path.glob("round1/*"))) == 1
    told = {run.info["command"] for run in study.runs}
    assert told == {"simgrad study plan.yaml --engine ray"}
    run_ray(study, quiet=True)  # nothing is left to do


def test_a_look_counts_once_where_a_kill_came_before_the_larger_plan(tmp_path: Path) -> None:
    now = plan(seeds=2)
    study: Any = SimpleNamespace(path=tmp_path, plan=now, draws={"a": [1, 2], "b": [1, 2]})
    for _ in range(2):  # the same command again
        note_look(study, replace(now, seeds=(0, 1, 2)))
    assert len(looks_of(tmp_path)) == 1
