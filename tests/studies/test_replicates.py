"""Replicates: every row searched and tested several times, each time with other settings, seeds and
splits; rows of one replicate share all of these."""

import json
import shutil
from pathlib import Path
from statistics import fmean
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from simgrad.choosing.study_cost import look_at
from simgrad.cli.study import adapt, conclude
from simgrad.core.errors import InputError
from simgrad.pages.blocks import Table
from simgrad.report.material import collect
from simgrad.report.replicates import replicates as replicates_section
from simgrad.report.standings import standings
from simgrad.report.tuning import tuning as tuning_section
from simgrad.runs.recipe import Recipe
from simgrad.studies.check import check_study
from simgrad.studies.plan import Plan, plan_from_dict
from simgrad.studies.study import Study
from simgrad.studies.table import build_table, write_tables
from simgrad.studies.tuned import score_of, validation_of
from simgrad.studies.worker import work
from simgrad.training import Run
from tests.studies.small_study import SMALL

pytest.importorskip("optuna")

TUNE: dict[str, Any] = {
    "trials": 4,
    "replicates": 3,
    "search": "quasi-random",
    "finalists": 2,
    "repeats": 1,
    "space": {
        "lr": {"low": 1e-3, "high": 2e-2},
        "clip": None,
        "first_epochs": {"crossed": [0, 1]},
    },
}
RECIPE = {**SMALL["recipe"], "first_objective": "triplet", "epochs": 2}


def plan(tune: dict[str, Any] | None = None, **changes: Any) -> Plan:
    values = {**SMALL, "recipe": RECIPE, "tune": {**TUNE, **(tune or {})}, **changes}
    return plan_from_dict(values, "test")


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Study:
    told = {"splits": "new"}
    study = Study.create(plan(told), tmp_path_factory.mktemp("replicates") / "study")
    assert work(study) == 0
    write_tables(build_table(study), study.path)
    return study


# -- what is planned


def test_no_seed_is_used_twice_and_rows_of_a_replicate_share_them() -> None:
    seen: dict[int, set[str]] = {}
    for number, one in enumerate(plan().replicates, 1):
        assert one.tune is not None
        kinds = {"trial": one.tune.seeds[:1], "repeat": one.tune.seeds[1:], "test": one.seeds}
        for kind, seeds in kinds.items():
            for seed in seeds:
                seen.setdefault(seed, set()).add(f"{kind} {number}")
    assert len(seen) == 3 * (1 + 1 + 2)
    assert all(len(used) == 1 for used in seen.values())
    runs = [(name, row.label, recipe.seed) for name, row, recipe in plan().runs()]
    assert len(runs) == len(set(runs)) == 3 * 2 * 2
    by_row = {row: {seed for _, label, seed in runs if label == row} for _, row, _ in runs}
    assert len({frozenset(seeds) for seeds in by_row.values()}) == 1


def test_replicates_try_other_settings_and_rows_the_same_rates(tmp_path: Path) -> None:
    study = Study.create(plan({"trials": 12}), tmp_path / "study")
    tried: dict[str, list[dict[str, Any]]] = {}
    for tuning in study.tunings:
        asked = (tuning.search.ask() for _ in range(12))
        tried[tuning.name] = [trial.setting for trial in asked if trial is not None]
    rates = {name: [setting["lr"] for setting in each] for name, each in tried.items()}
    assert all(len(each) == 12 for each in tried.values())
    for number in (1, 2, 3):
        assert rates[f"triplet-r{number}"] == rates[f"nt-xent-r{number}"]
        pairs = zip(
            tried[f"nt-xent-r{number}"][::2], tried[f"nt-xent-r{number}"][1::2], strict=True
        )
        for without, with_first in pairs:  # each point without a first epoch and with one
            assert {**without, "first_epochs": 1} == with_first
            assert without["first_epochs"] == 0
    assert not set(rates["triplet-r1"]) & set(rates["triplet-r2"])
    assert not set(rates["triplet-r2"]) & set(rates["triplet-r3"])


def test_one_replicate_is_a_study_as_before() -> None:
    (one,) = plan({"replicates": 1}).replicates
    assert [name for name, _, _ in one.runs()] == [
        "triplet-s0", "nt-xent-s0", "triplet-s1", "nt-xent-s1",
    ]  # fmt: skip
    before = plan_from_dict(SMALL, "test")
    assert before.replicates == (before,)


def test_a_split_for_each_replicate_the_same_for_its_rows() -> None:
    told = plan({"splits": "new"}, recipe={**RECIPE, "resplit": "new(test=10, pool=train)"})
    assert {(name.partition("-r")[2][0], recipe.resplit) for name, _, recipe in told.runs()} == {
        (str(n), f"new(test=10, pool=train, draw={n})") for n in (1, 2, 3)
    }
    same = plan(recipe={**RECIPE, "resplit": "new(draw=5)"})
    assert {recipe.resplit for _, _, recipe in same.runs()} == {"new(draw=5)"}
    assert {recipe.resplit for _, _, recipe in plan().runs()} == {None}


@pytest.mark.parametrize(
    ("tune", "more", "says"),
    [
        ({"trials": 5}, {}, "give a multiple of 2, not 5"),
        ({"search": "tpe"}, {}, "give `search: quasi-random`.$"),
        ({"space": {"first_epochs": {"crossed": [0]}}}, {}, "2 to 200 choices"),
        ({"space": {"first_epochs": {"crossed": [1, 1]}}}, {}, "each named once"),
        ({"replicates": 1, "splits": "new"}, {}, "`splits: new` is of replicates"),
        ({}, {"seeds": [0, 10_000]}, "seed 10000 is used twice"),
        ({"replicates": 0}, {}, "replicates"),
        ({"splits": "other"}, {}, "splits"),
    ],
)
def test_what_cannot_be_done_is_refused(
    tune: dict[str, Any], more: dict[str, Any], says: str
) -> None:
    with pytest.raises(InputError, match=says):
        plan(tune, **more)


def test_the_option(tmp_path: Path) -> None:
    assert len(adapt(plan(), replicates=5).replicates) == 5
    with pytest.raises(InputError, match="give --trials, too"):
        adapt(plan_from_dict({**SMALL, "tune": None}, "test"), replicates=5)
    assert len(adapt(plan_from_dict(SMALL, "test"), trials=4, replicates=2).replicates) == 2
    told = plan({"splits": "new"}, recipe={**RECIPE, "resplit": "new(test=80)"})
    assert all(isinstance(found, InputError) for _, found in look_at(told))  # in a dry run


# -- what comes of it


@pytest.mark.long
def test_every_replicate_has_its_own_search_and_choice(done: Study) -> None:
    names = [f"{row}-r{n}" for n in (1, 2, 3) for row in ("triplet", "nt-xent")]
    assert [tuning.name for tuning in done.tunings] == names
    assert {path.stem for path in (done.path / "tuned").iterdir()} == set(names)
    for tuning in done.tunings:
        record = tuning.record
        assert record is not None
        number = int(tuning.name[-1])
        assert {one["setting"]["first_epochs"] for one in record["tried"]} == {0, 1}
        finalists = [one for one in record["tried"] if "repeats" in one]
        assert len(finalists) == 2
        assert record["chosen"]["setting"] == max(finalists, key=validation_of)["setting"]
        for one in record["tried"]:
            run = Run(done.path / "trials" / f"{tuning.name}-t{one['number']:03d}")
            assert run.recipe.seed == 1000 + 10_000 * (number - 1)
            assert run.recipe.resplit == f"new(draw={number})"
            assert score_of(run) == one["score"]
        for seed in (0, 1):
            recipe = Run(
                done.path / "runs" / f"{tuning.name}-s{seed + 10_000 * (number - 1)}"
            ).recipe
            assert recipe.lr == record["chosen"]["setting"]["lr"]
            assert recipe.first_epochs == record["chosen"]["setting"]["first_epochs"]
            assert recipe.resplit == f"new(draw={number})"
    for row in done.plan.rows:
        assert [t.name for t in done.tunings_of(row)] == [f"{row.name}-r{n}" for n in (1, 2, 3)]
    assert done.complete


@pytest.mark.long
def test_a_replicate_is_a_draw(done: Study) -> None:
    assert done.new_splits
    for label, draws in done.draws.items():
        assert [[run.recipe.seed for run in draw] for draw in draws] == [
            [0, 1], [10_000, 10_001], [20_000, 20_001],
        ]  # fmt: skip
        assert {run.recipe.objective.partition("(")[0] for draw in draws for run in draw} == {label}
    same = Study.create(plan(), done.path.parent / "same")
    assert not same.new_splits
    assert same.draws == {"triplet": [], "nt-xent": []}


@pytest.mark.long
def test_each_replicate_is_tested_on_photos_of_its_own(done: Study) -> None:
    tested = {}
    for draws in done.draws.values():
        for number, draw in enumerate(draws, 1):
            for run in draw:
                images = frozenset(run.recipe.dataset().split("test").image_names)
                assert tested.setdefault(number, images) == images
    assert len(frozenset.union(*tested.values())) == 3 * 20


@pytest.mark.long
def test_the_table_has_a_row_for_each_objective(done: Study) -> None:
    table = build_table(done)
    assert [row.label for row in table.rows] == ["triplet", "nt-xent"]
    for row in table.rows:
        assert row.seeds == 6
        assert row.tuned is not None
        assert row.tuned.trials == 12
        rates = [
            t.record["chosen"]["setting"]["lr"]
            for t in done.tunings
            if t.record and t.name.startswith(row.label)
        ]
        assert f"lr={min(rates):.12g} to {max(rates):.12g}" in row.tuned.setting
    assert "3 replicates, each on a new split" in table.head
    assert "3 replicates" in (done.path / "table.md").read_text()
    section = tuning_section(collect([done.path]))
    assert section is not None
    assert "nt-xent, replicate 3" in repr(section.blocks)


@pytest.mark.long
def test_the_report_has_a_line_for_each_replicate_and_the_variances(done: Study) -> None:
    material = collect([done.path])
    section = replicates_section(material, standings(material))
    assert section is not None
    lines, spread = (block for block in section.blocks if isinstance(block, Table))
    labels = [column.label for column in lines.columns[1:]]
    assert sorted(labels) == sorted(done.draws)
    for number, row in enumerate(lines.rows):
        shown = dict(zip(labels, row.cells[1:], strict=True))
        means = {
            label: fmean(run.test["rsum"] for run in draws[number] if run.test)
            for label, draws in done.draws.items()
        }
        assert {label: cell.text for label, cell in shown.items()} == {
            label: f"{mean:.1f}" for label, mean in means.items()
        }
        assert shown[max(means, key=lambda label: means[label])].strong
    assert len(lines.rows) == 3
    assert [row.cells[0].text for row in spread.rows] == labels
    assert all(float(cell.text) >= 0 for row in spread.rows for cell in row.cells[1:])


def test_without_a_test_no_replicate_has_0() -> None:
    def run(seed: int, rsum: dict[str, float]) -> Any:
        told = {"recipe": SimpleNamespace(seed=seed), "info": {}, "finished": True, "test": rsum}
        return SimpleNamespace(**told)

    def section(split: str, rsum: dict[str, float]) -> Any:
        several = ((run(0, rsum),), (run(10_000, rsum),))
        system = SimpleNamespace(label="a", replicates=several)
        one: Any = SimpleNamespace(order=[system], group="", new_images=False, ranks={})
        material: Any = SimpleNamespace(split=split, colour=lambda _: None)
        return replicates_section(material, [one])

    assert section("test", {"rsum": 300.0}) is not None
    assert section("val", {}) is None


def test_the_table_says_once_what_all_replicates_were_tested_on(done: Study) -> None:
    assert sum("split test" in line for line in build_table(done).tested) == 1


def test_every_number_is_computed_again_and_a_run_of_another_replicate_is_named(
    done: Study, tmp_path: Path
) -> None:
    assert check_study(done).problems == []
    copy = Study(tmp_path / "copy")
    shutil.copytree(done.path, copy.path)
    shutil.rmtree(copy.path / "runs" / "triplet-r2-s10000")
    shutil.copytree(copy.path / "runs" / "triplet-r1-s0", copy.path / "runs" / "triplet-r2-s10000")
    (problem, *_) = check_study(copy).problems
    assert "triplet-r2-s10000" in problem
    assert "not the run of this row and seed" in problem
    for seed in (10_000, 10_001):
        shutil.rmtree(copy.path / "runs" / f"triplet-r2-s{seed}")
    seeds = {k: [[r.recipe.seed for r in draw] for draw in d] for k, d in copy.draws.items()}
    assert seeds["triplet"] == [[0, 1], [20_000, 20_001]]  # what has not been run is left out
    assert len(seeds["nt-xent"]) == 3


@pytest.mark.long
def test_replicates_are_added_and_nothing_else_changes(done: Study, tmp_path: Path) -> None:
    shutil.copytree(done.path, tmp_path / "copy")
    before = {run.path.name: (run.path / "run.json").read_bytes() for run in done.runs}
    for tune in ({"trials": 6}, {"replicates": 1, "splits": "same"}, {"finalists": 1}):
        with pytest.raises(InputError, match="search settings differ"):
            Study.create(plan({"splits": "new", **tune}), tmp_path / "copy")
    more = Study.create(plan({"splits": "new", "replicates": 4}), tmp_path / "copy")
    assert not more.complete
    assert work(more) == 0
    conclude(more)
    assert len(more.runs) == len(before) + 4
    for name, content in before.items():
        assert (more.path / "runs" / name / "run.json").read_bytes() == content
    assert {label: len(draws) for label, draws in more.draws.items()} == {
        "triplet": 4,
        "nt-xent": 4,
    }


@pytest.mark.long
def test_a_range_is_extended_by_plan_in_a_study(tmp_path: Path) -> None:
    """The best of these lies at the lower end: so few steps help no objective at all."""
    told: dict[str, Any] = {
        "trials": 2, "replicates": 1, "extend": True, "finalists": 1, "search": "grid",
        "space": {"lr": {"low": 1e-3, "high": 2e-3}, "clip": None, "objective.margin": None},
    }  # fmt: skip
    study = Study.create(plan(told, grid={"objective": ["triplet"]}, seeds=1), tmp_path / "study")
    assert study.plan.trainings == 4
    assert work(study) == 0
    record = json.loads((study.path / "tuned" / "triplet.json").read_text())
    assert [one["how"] for one in record["tried"]] == ["grid", "grid", "extended", "extended"]
    space = record["space"]["lr"]
    assert space["low"] < 1e-3 or space["high"] > 2e-3
    write_tables(build_table(study), study.path)
    assert check_study(study).problems == []


def test_old_plans_read_as_before(tmp_path: Path) -> None:
    """A study file without the new fields, and one with all of them."""
    told = yaml.safe_load(yaml.safe_dump(plan({"splits": "new", "extend": True}).to_dict()))
    again = plan_from_dict(told, "again")
    assert again == plan({"splits": "new", "extend": True})
    assert told["tune"]["space"]["first_epochs"] == {"crossed": [0, 1]}
    for field in ("extend", "replicates", "splits"):
        del told["tune"][field]
    older = plan_from_dict(told, "older")
    assert older.tune is not None
    assert (older.tune.extend, older.tune.replicates, older.tune.splits) == (False, 1, "same")
    assert Recipe().resplit is None
