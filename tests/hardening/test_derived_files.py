"""Derived files that are JSON, and not what was written: refused with their name, or made anew."""

import json
from pathlib import Path
from typing import Any

import pytest

from simgrad.choosing.choice import CHOICE, Choice
from simgrad.core.errors import InputError
from simgrad.data.arrays import read_header
from simgrad.data.candidates import Candidates
from simgrad.data.found import INFO, split_name
from simgrad.runs.run import Run
from simgrad.studies.study import Study

FIXTURES = Path(__file__).parents[1] / "fixtures"
RUN = FIXTURES / "study-71b75c7/runs/triplet-sh-s0"
CONTENTS: list[Any] = [{"a": 1}, {}, [], [1], "x", None, 3, {"size": 1, "splits": []}]
TESTED = json.loads((RUN / "test.json").read_text())


def candidates(folder: Path) -> Any:
    for name in ("i2t.npy", "t2i.npy"):
        (folder / name).symlink_to(FIXTURES / "candidates-71b75c7" / name)
    return Candidates.load(folder)


READERS = {
    "test.json": lambda folder: Run(folder).test,
    "run.json": lambda folder: Run(folder).info,
    "study.json": lambda folder: Study(folder).plan,
    "candidates.json": candidates,
    "features.json": read_header,
    INFO: split_name,
    CHOICE: Choice.read,
}


@pytest.mark.parametrize("content", CONTENTS, ids=repr)
@pytest.mark.parametrize("name", READERS)
def test_other_json_is_refused_by_the_name_of_its_file(
    name: str, content: Any, tmp_path: Path
) -> None:
    (tmp_path / name).write_text(json.dumps(content))
    with pytest.raises(InputError, match=name):
        READERS[name](tmp_path)


@pytest.mark.parametrize(
    "change",
    [{"rsum": 601}, {"rsum": -1}, {"i2t_r1": 100.5}, {"t2i_r10": float("nan")}, {"rsum": "10"}],
    ids=str,
)
def test_metrics_that_cannot_be(change: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "test.json"
    path.write_text(json.dumps(TESTED))
    assert Run(tmp_path).test["rsum"] == TESTED["rsum"]
    path.write_text(json.dumps({**TESTED, **change}))
    with pytest.raises(InputError, match=r"test\.json"):
        assert Run(tmp_path).test


def test_features_lie_in_their_folder(tmp_path: Path) -> None:
    """A header from somebody else names no file of another place."""
    from simgrad.data import open_dataset

    entry = {"file": "../elsewhere.npy", "images": []}
    (tmp_path / "features.json").write_text(json.dumps({"splits": {"train": entry}}))
    with pytest.raises(InputError, match="a name in this folder"):
        open_dataset("scenes(train=2, val=2, test=2)", features=str(tmp_path))
