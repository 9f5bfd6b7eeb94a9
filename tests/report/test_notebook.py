"""`simgrad.plot`: runs and studies drawn in a notebook."""

from pathlib import Path

import pytest

import simgrad
from simgrad.core.errors import InputError
from simgrad.runs.run import Run
from simgrad.studies.study import Study
from tests.report.reading import Page


def ids(html: str) -> list[str]:
    return [attributes["id"] for _, attributes in Page(html).tags if "id" in attributes]


def test_a_study_and_a_run_are_drawn(study: Path) -> None:
    whole = Study.open(study).plot()
    one = Run.open(study / "runs" / "triplet-s0").plot()
    by_path = simgrad.plot(study)
    for shown in (whole, one, by_path):
        page = Page(shown._repr_html_())
        assert page.all("svg")
        assert page.tags[0][1]["class"] == "simgrad"
        assert not page.all("script")
    assert "rsum" in repr(whole)
    assert "triplet" in repr(one)
    # Several of them share a notebook: no id of one may mean a part of another.
    assert not set(ids(whole._repr_html_())) & set(ids(whole._repr_html_()))


def test_it_can_be_saved(study: Path, tmp_path: Path) -> None:
    path = simgrad.plot(study).save(tmp_path / "curves.html")
    assert Page(path.read_text(encoding="utf-8")).all("svg")
    simgrad.plot(study, output=tmp_path / "given.html")
    assert Page((tmp_path / "given.html").read_text(encoding="utf-8")).all("svg")


@pytest.mark.parametrize("name", ["curves.png", "curves.svg", "curves"])
def test_a_page_is_not_written_under_another_name(study: Path, tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match=r"written as a page, \.html or \.htm, not as"):
        simgrad.plot(study, output=tmp_path / name)
    assert not (tmp_path / name).exists()


def test_what_is_no_run_is_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="neither a study"):
        simgrad.plot(tmp_path)
