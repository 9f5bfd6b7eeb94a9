"""Which settings a report shows beside each other, and whose pictures."""

import json
from pathlib import Path

import pytest
from PIL import Image

from simgrad.core.errors import InputError
from simgrad.pages.blocks import Examples
from simgrad.report.build import build_report, write_report
from simgrad.report.page import Report
from simgrad.runs.run import Run


def strips(report: Report) -> set[tuple[str, ...]]:
    """The names beside each other in "Where two settings disagree most"."""
    section = next(s for s in report.sections if s.anchor == "disagreements")
    shown = section.blocks[1]
    assert isinstance(shown, Examples)
    return {tuple(strip.system.text for strip in e.strips) for e in shown.examples}


@pytest.mark.parametrize("two", [("nt-xent", "triplet"), ("triplet", "nt-xent")])
def test_the_settings_that_were_named(study: Path, two: tuple[str, ...]) -> None:
    report = build_report([study], batches=0, device="cpu", examples=two)
    assert strips(report) == {two}
    section = next(s for s in report.sections if s.anchor == "examples")
    assert "what is shown is the first one's" in str(section.blocks[0])


def test_settings_that_cannot_be_asked_are_named(study: Path) -> None:
    def ask(*names: str) -> None:
        build_report([study], batches=0, device="cpu", examples=names)

    with pytest.raises(InputError, match=r"nt-xnt: no such setting .* 'nt-xent'"):
        ask("nt-xnt")
    with pytest.raises(InputError, match="smooth-ap: no such setting has a checkpoint"):
        ask("triplet", "smooth-ap")  # not begun
    with pytest.raises(InputError, match="give one or two"):
        ask("triplet", "nt-xent", "triplet")


def test_features_with_the_pictures_of_another_data_set(features_run: Run, tmp_path: Path) -> None:
    """Each in a colour of its own, so that the page must hold the right ones."""
    captions = features_run.dataset().split("val").captions
    images = []
    for i in range(8):
        Image.new("RGB", (40, 30), (30 * i, 90, 160)).save(tmp_path / f"{i}.jpg")
        told = [{"raw": caption} for caption in captions[5 * i : 5 * i + 5]]
        images.append({"filename": f"{i}.jpg", "split": "test", "sentences": told})
    (tmp_path / "dataset_x.json").write_text(json.dumps({"images": images}))
    told = write_report([features_run.path], tmp_path / "r.html", device="cpu", batches=0)
    assert "features but no pictures" in told.read_text(encoding="utf-8")
    report = build_report([features_run.path], batches=0, device="cpu", photos=tmp_path)
    assert 0 < len(report.pictures) <= 8
    section = next(s for s in report.sections if s.anchor == "examples")
    assert "no pictures" not in str(section.blocks[0])
    assert "could not be read" not in str(section.blocks[0])
