"""Folders and files from somebody else: nothing outside them is changed, nor is it told."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from simgrad.core.errors import InputError
from simgrad.core.files import lock, new_array
from simgrad.data.found import add_answer
from simgrad.data.layouts.base import what_is_in
from simgrad.data.opening import open_dataset
from simgrad.studies.journal import mend
from simgrad.studies.papers import published_table
from simgrad.studies.plan import plan_from_dict
from simgrad.studies.study import RUNS, Study
from simgrad.training.records import Records

_RECIPE = {"data": "scenes(features=global)", "model": "vse++(dimension=8)", "epochs": 1}


def _plan(name: str = "", **recipe: Any) -> dict[str, Any]:
    row = {"label": "A", "name": name, "set": {"objective": "nt-xent"}}
    return {"recipe": {**_RECIPE, **recipe}, "rows": [row]}


@pytest.mark.parametrize(
    "name", ["../../outside", "/outside", "a/b", "..\\x", "C:x", "a\nb", "\0", "x" * 201]
)
def test_a_row_is_never_called_after_another_folder(name: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="rows: 1: name is part of a folder's name"):
        plan_from_dict(_plan(name), "study.yaml")
    (tmp_path / "study.yaml").write_text(yaml.safe_dump(_plan(name)))
    with pytest.raises(InputError, match="name"):
        Study.open(tmp_path).jobs()


def test_nothing_is_removed_through_a_link(tmp_path: Path) -> None:
    """A run that has not begun makes way for other settings; a folder elsewhere does not."""
    study = Study.create(plan_from_dict(_plan(), "study.yaml"), tmp_path / "study")
    (folder, _), elsewhere = study.jobs()[0], tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "thesis.txt").write_text("years of work")
    folder.parent.mkdir()
    folder.symlink_to(elsewhere)
    with pytest.raises(InputError, match="a link to another folder"):
        Study.create(plan_from_dict(_plan(epochs=2), "study.yaml"), study.path)
    folder.unlink()
    folder.mkdir()
    (folder / "best").symlink_to(elsewhere)
    Study.create(plan_from_dict(_plan(epochs=2), "study.yaml"), study.path)
    assert not (study.path / RUNS / folder.name / "best").exists()
    assert (elsewhere / "thesis.txt").read_text() == "years of work"


def _locked(folder: Path) -> None:
    with lock(folder / "file"):
        pass


def _noted(folder: Path) -> None:
    records = Records.__new__(Records)
    records.folder, records.writes, records.logs = folder, True, []
    records._add("file", {"step": 1})


def _answered(folder: Path) -> None:
    os.rename(folder / "file", folder / "answers.jsonl")
    add_answer(folder, "a.jpg", "a.jpg#0", "yes")


@pytest.mark.parametrize("there", [True, False])
@pytest.mark.parametrize(
    "change",
    [
        _locked,
        _noted,
        _answered,
        lambda folder: mend(folder / "file"),
        lambda folder: new_array(folder / "file", (2, 2), np.float32),
    ],
    ids=["a lock", "a history", "answers", "a journal", "an array"],
)
def test_no_file_is_changed_through_a_link(
    change: Callable[[Path], object], there: bool, tmp_path: Path
) -> None:
    thesis, folder = tmp_path / "thesis.txt", tmp_path / "run"
    folder.mkdir()
    if there:
        thesis.write_text("years of work\nno line end")
    (folder / "file").symlink_to(thesis)
    with pytest.raises(InputError, match="a link leads elsewhere"):
        change(folder)
    assert thesis.exists() == there
    assert not there or thesis.read_text() == "years of work\nno line end"


def test_published_tables_are_those_of_the_package(tmp_path: Path) -> None:
    other = tmp_path / "other.csv"
    other.write_text("dataset,split,mean\nsecret,secret,1\n")
    for name in (str(other), f"{'../' * 30}{other}"):
        with pytest.raises(InputError, match="there is no published table"):
            published_table(name)


@pytest.mark.parametrize("spec", ["{}", "captions(path={})"])
def test_a_file_that_is_no_table_is_not_quoted(spec: str, tmp_path: Path) -> None:
    (tmp_path / "key.txt").write_text("hunter2:x:0:0\n")
    with pytest.raises(InputError) as error:
        open_dataset(spec.format(tmp_path / "key.txt"))
    assert "hunter2" not in str(error.value)
    (tmp_path / "table.csv").write_text("Bild,Satz\n")  # but a header with other names is
    with pytest.raises(InputError, match="Bild,Satz"):
        open_dataset(spec.format(tmp_path / "table.csv"))


def test_broken_links_are_named_among_what_is_there(tmp_path: Path) -> None:
    (tmp_path / "gone.csv").symlink_to("nowhere")
    (tmp_path / "loop").symlink_to("loop")
    assert what_is_in(tmp_path) == "gone.csv (a broken link), loop (a broken link)"


def test_a_file_in_place_of_a_folder_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(InputError, match="where a folder is needed"), lock(tmp_path / "file/.lock"):
        pass
    assert (tmp_path / "file").read_text() == "x"
