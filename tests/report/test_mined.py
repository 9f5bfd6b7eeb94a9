"""The report shows what was mined, and on which pictures two settings disagree."""

from pathlib import Path

import numpy as np
import pytest

from simgrad.pages.blocks import Examples
from simgrad.report.build import build_report
from simgrad.report.examples import most_different_images
from simgrad.report.material import collect
from simgrad.report.page import page
from simgrad.training import train
from tests.report.conftest import BASE


@pytest.fixture(scope="module")
def two_rounds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    second = {"objective": "off-tri", "epochs": 1, "depth": 20}
    recipe = BASE.replace(epochs=1, second_round=second, objective="triplet-sh")
    return train(recipe, tmp_path_factory.mktemp("mined") / "run", quiet=True).path


def test_mined_negatives_are_shown_with_pictures(two_rounds: Path) -> None:
    report = build_report([two_rounds], batches=0, device="cpu")
    section = next(s for s in report.sections if s.anchor == "mined")
    shown = section.blocks[1]
    assert isinstance(shown, Examples)
    examples = shown.examples
    assert sum(e.sentence is not None for e in examples) == 3
    assert sum(e.sentence is None for e in examples) == 3
    for example in examples:
        (strip,) = example.strips
        assert len(strip.thumbs) == 5 or len(strip.lines) == 5
    assert "What was mined" in page(report)
    assert {e.asked for e in examples if e.sentence is None} == {
        "Captions of other pictures, taken for this one's"
    }


def test_without_lists_there_is_no_such_section(study: Path) -> None:
    report = build_report([study], batches=0, device="cpu")
    assert "mined" not in {s.anchor for s in report.sections}


def test_pictures_on_which_two_settings_disagree(study: Path) -> None:
    first, second = (s.ranks for s in collect([study]).systems[:2])
    chosen = most_different_images([first, second])
    gap = sum(np.log(r.i2t) for r in first) - sum(np.log(r.i2t) for r in second)
    assert gap[chosen[0]] == gap.min()
    assert len(chosen) == len(set(chosen))
    assert most_different_images([first, first]) == []
