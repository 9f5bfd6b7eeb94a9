"""results/defaults.py: what the models' defaults lose against the searches that were kept."""

import json
from statistics import mean

import pytest

from simgrad.models import models
from tests.studies.rehearsal import RESULTS, script


def test_the_page_is_computed_again() -> None:
    assert (RESULTS / "defaults.md").read_text() == script(".", "defaults").page()


def test_losses_by_hand() -> None:
    """Of `light`, one search: trials near the default rate, without a first epoch."""
    told = json.loads((RESULTS / "light/first/tuned/focused-deviance.json").read_text())
    assert models.parse("light").usual == ("focused-deviance", 7e-4)
    best = mean([told["chosen"]["score"], *told["chosen"]["repeats"]])
    expected = []
    for trial in told["tried"]:
        near = 4.6e-4 < trial["setting"]["lr"] < 1.06e-3
        if near and trial["setting"]["first_epochs"] == 0:
            expected.append(best - trial["score"])
    defaults = script(".", "defaults")
    one = next(one for one in defaults.SEARCHES if one.model == "light")
    assert len(expected) == 2
    assert defaults.losses(one)[:2] == pytest.approx(expected)


def test_every_default_with_evidence_is_in_the_table() -> None:
    """A default other than the published one says where it is from: here, or it is not measured."""
    changed = {one.name for one in models if one.factory.usual != ("triplet-sh", 2e-4)}
    assert changed == {one.model for one in script(".", "defaults").SEARCHES} | {"clip"}
