"""A run belongs to its row: what was copied, edited or damaged is named, and never counted."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from simgrad.cli.study import study as command
from simgrad.core.derived import read_checked, write_checked
from simgrad.core.errors import InputError
from simgrad.report.build import build_report
from simgrad.studies.check import check_study
from simgrad.studies.ensembles import complete_ensembles
from simgrad.studies.plan import plan_from_dict
from simgrad.studies.study import Study
from simgrad.studies.table import build_table, write_tables
from simgrad.studies.worker import work
from tests.studies.test_ensembles import plan as with_ensembles
from tests.studies.test_study import SMALL


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Study:
    study = Study.create(with_ensembles(), tmp_path_factory.mktemp("study") / "plain")
    assert work(study) == 0
    assert complete_ensembles(study, "cpu") == []
    write_tables(build_table(study), study.path)
    assert check_study(study).problems == []
    return study


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> Study:
    pytest.importorskip("optuna")
    tune = {"trials": 3, "finalists": 2, "repeats": 1}
    values = {**SMALL, "seeds": 1, "tune": tune}
    study = Study.create(plan_from_dict(values, "test"), tmp_path_factory.mktemp("s") / "searched")
    assert work(study) == 0
    write_tables(build_table(study), study.path)
    assert check_study(study).problems == []
    return study


def copy_of(study: Study, folder: Path) -> Study:
    shutil.copytree(study.path, folder / "copy")
    return Study(folder / "copy")


def swap(study: Study, source: str, target: str) -> None:
    shutil.rmtree(study.path / target)
    shutil.copytree(study.path / source, study.path / target)


def edit_recipe(study: Study, name: str) -> None:
    """As somebody would who means it: run.json no longer tells of the file."""
    path = study.path / name / "recipe.yaml"
    values = yaml.safe_load(path.read_text())
    path.write_text(yaml.safe_dump({**values, "lr": 0.123}))
    info = read_checked(path.parent / "run.json")
    write_checked(path.parent / "run.json", {**info, "files": {}})


FOREIGN: dict[str, tuple[Callable[[Study], object], str, str]] = {
    "another row": (lambda s: swap(s, "runs/a-s0", "runs/b-s0"), "b-s0", "objective"),
    "another seed": (lambda s: swap(s, "runs/a-s0", "runs/a-s1"), "a-s1", "seed is 0 there and 1"),
    "edited": (lambda s: edit_recipe(s, "runs/b-s1"), "b-s1", "lr is 0.123"),
    "no recipe": (lambda s: (s.path / "runs/b-s1/recipe.yaml").unlink(), "b-s1", "is missing"),
    "another run.json": (
        lambda s: shutil.copy(s.path / "runs/a-s0/run.json", s.path / "runs/a-s1/run.json"),
        "a-s1",
        "run.json|not what the run wrote",
    ),
}


@pytest.mark.parametrize("case", FOREIGN)
def test_a_foreign_run_is_named_by_everything_that_reads_a_study(
    case: str, plain: Study, tmp_path: Path
) -> None:
    change, name, words = FOREIGN[case]
    study = copy_of(plain, tmp_path)
    change(study)
    readers: list[Callable[[], Any]] = [
        lambda: build_table(study),
        lambda: study.complete,
        lambda: command(str(study.path), processes=1),
        lambda: command(str(study.path), check=True),
        lambda: complete_ensembles(study, "cpu"),
        lambda: build_report([study.path], batches=0, pictures=False),
    ]
    for read in readers[:3] + readers[4:]:
        with pytest.raises(InputError, match=words) as told:
            read()
        assert name in str(told.value)
    problems = check_study(study).problems
    assert any(name in line for line in problems)
    with pytest.raises(InputError, match="differ when computed again"):
        readers[3]()


def test_what_to_do_helps(plain: Study, tmp_path: Path) -> None:
    study = copy_of(plain, tmp_path)
    swap(study, "runs/a-s0", "runs/b-s0")
    with pytest.raises(InputError, match=r"remove it, and the study's command trains it again"):
        build_table(study)
    shutil.rmtree(study.path / "runs/b-s0")
    assert work(Study(study.path)) == 0
    assert complete_ensembles(study, "cpu") == []
    assert build_table(study).rows == build_table(plain).rows


def test_a_copied_ensemble_is_named_and_tested_again(plain: Study, tmp_path: Path) -> None:
    study = copy_of(plain, tmp_path)
    swap(study, "ensembles/a-and-b-s0", "ensembles/a-and-b-s1")
    with pytest.raises(InputError, match=r"a-and-b-s1: not the ensemble of a-s1, b-s1"):
        build_table(study)
    assert any("a-and-b-s1" in line for line in check_study(study).problems)
    assert complete_ensembles(study, "cpu") == []
    assert build_table(study).rows == build_table(plain).rows


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("trials/triplet-t000", "trials/nt-xent-t000"),
        ("trials/triplet-t000", "trials/triplet-t001"),
    ],
)
def test_a_foreign_trial_is_named(
    source: str, target: str, searched: Study, tmp_path: Path
) -> None:
    study = copy_of(searched, tmp_path)
    swap(study, source, target)
    assert any(target in line for line in check_study(study).problems)


def test_a_foreign_trial_of_a_search_that_is_resumed_is_named(
    searched: Study, tmp_path: Path
) -> None:
    study = copy_of(searched, tmp_path)
    (repeat,) = [p.name for p in study.path.glob("trials/triplet-t*-r1")][:1]
    swap(study, f"trials/{repeat.removesuffix('-r1')}", f"trials/{repeat}")
    for path in study.path.glob("tuned/triplet.json"):
        path.unlink()
    with pytest.raises(InputError, match=rf"{repeat}.*seed is 1000 there and 1001"):
        work(study)


def test_two_rounds_are_compared_with_both(tmp_path: Path) -> None:
    recipe = {
        **SMALL["recipe"],
        "second_round": {"objective": "off-tri", "depth": 5, "epochs": 1, "from_round_one": True},
    }
    values = {**SMALL, "recipe": recipe, "grid": {"objective": ["triplet", "nt-xent"]}, "seeds": 1}
    study = Study.create(plan_from_dict(values, "test"), tmp_path / "s")
    assert work(study) == 0
    build_table(study)
    swap(study, "runs/triplet-s0", "runs/nt-xent-s0")
    with pytest.raises(InputError, match=r"nt-xent-s0|round1"):
        build_table(study)
