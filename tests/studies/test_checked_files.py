"""`--check` uses every hash there is, and `evaluate` notices what a report notices."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from simgrad.core.errors import InputError
from simgrad.retriever.opening import open_folder
from simgrad.studies.check import check_study
from simgrad.studies.plan import plan_from_dict
from simgrad.studies.study import Study
from simgrad.studies.table import build_table, write_tables
from simgrad.studies.worker import work
from tests.studies.test_study import SMALL

RUN = Path("runs/nt-xent-s0")


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Study:
    study = Study.create(plan_from_dict(SMALL, "test"), tmp_path_factory.mktemp("study") / "small")
    assert work(study) == 0
    write_tables(build_table(study), study.path)
    assert check_study(study).problems == []
    return study


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def edit_recipe(path: Path) -> None:
    path.write_text(path.read_text().replace("epochs: 1", "epochs: 2", 1))


def edit_history(path: Path) -> None:
    path.write_text(path.read_text().replace('"loss": ', '"loss": 1', 1))


CHANGES: dict[str, Callable[[Path], object]] = {
    "recipe.yaml": edit_recipe,
    "metrics.jsonl": edit_history,
    "best/model.safetensors": flip,
    "best/model.json": flip,
    "ranks.parquet": flip,
    "triplets.npz": flip,
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_was_edited_or_damaged_is_named(name: str, done: Study, tmp_path: Path) -> None:
    study = Study(shutil.copytree(done.path, tmp_path / "copy"))
    CHANGES[name](study.path / RUN / name)
    told = "\n".join(check_study(study).problems)
    assert str(RUN / name) in told
    with pytest.raises(InputError, match=Path(name).name):
        open_folder(study.path / RUN).evaluate()


@pytest.mark.parametrize("name", ["best/model.safetensors", "best", "ranks.parquet", "test.json"])
def test_what_is_missing_is_named(name: str, done: Study, tmp_path: Path) -> None:
    study = Study(shutil.copytree(done.path, tmp_path / "copy"))
    path = study.path / RUN / name
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    told = "\n".join(check_study(study).problems)
    assert str(RUN / Path(name).parts[0]) in told
    assert "copy" in told


def test_ranks_of_another_run_are_noticed(done: Study, tmp_path: Path) -> None:
    """With the test that belongs to them, they agree with each other."""
    study = Study(shutil.copytree(done.path, tmp_path / "copy"))
    for name in ("ranks.parquet", "test.json"):
        shutil.copy(study.path / "runs/triplet-s0" / name, study.path / RUN / name)
    with pytest.raises(InputError, match="not what the run wrote"):
        build_table(study)
    assert str(RUN / "ranks.parquet") in "\n".join(check_study(study).problems)


def test_weights_that_were_removed_to_save_space_do_not_hinder_stored_ranks(
    done: Study, tmp_path: Path
) -> None:
    folder = shutil.copytree(done.path / RUN, tmp_path / "run")
    shutil.rmtree(folder / "best")
    assert open_folder(folder).ranks is not None
