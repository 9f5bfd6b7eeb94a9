"""Names that are probably meant."""

from pathlib import Path

import pytest

import simgrad
from simgrad.core.errors import InputError
from simgrad.core.text import near_path
from simgrad.data.opening import open_dataset
from simgrad.retriever.opening import open_folder
from simgrad.runs.run import Run


def test_a_sibling_with_nearly_that_name_is_named(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    told = f" Did you mean {tmp_path / 'photos'}?"
    for text in (tmp_path / "photo", f"{tmp_path}/fotos/"):
        assert near_path(text) == told
    for text in (tmp_path / "music", tmp_path / "nowhere" / "photo", "~nobody/x", "\0", ""):
        assert near_path(text) == ""


def test_everything_that_opens_folders_names_it(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    for opened in (open_dataset, open_folder, simgrad.open, Run.open, simgrad.Study.open):
        with pytest.raises(InputError, match=r"\. Did you mean .*photos\?"):
            opened(str(tmp_path / "photo"))  # type: ignore[operator]


def test_of_a_folder_of_runs_the_first_is_named(tmp_path: Path) -> None:
    (tmp_path / "choose" / "photos" / "model").mkdir(parents=True)
    with pytest.raises(InputError, match=r"nor a study of runs\.$"):
        open_folder(str(tmp_path / "choose"))
    (tmp_path / "choose" / "photos" / "model" / "recipe.yaml").write_text("")
    with pytest.raises(InputError, match=r"Did you mean .*choose.photos\?"):
        open_folder(str(tmp_path / "choose"))
