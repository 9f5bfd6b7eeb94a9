"""A pilot finds how long a full training is, or says that it could not."""

from pathlib import Path

import pytest

from simgrad.choosing.pilot import PILOT, full_length, length_of
from simgrad.runs.recipe import Recipe
from simgrad.runs.run import Run

RECIPE = Recipe(
    data="scenes(train=60, val=20, test=20, features=global)",
    model="light(dimension=16, word_dimension=16)",
    objective="nt-xent",
    lr=5e-3,
    device="cpu",
)
STEPS = 3  # of an epoch


@pytest.mark.parametrize(
    ("best", "steps", "epochs"), [(10, 10, 2), (100, 10, 15), (90, 9, 15), (1, 50, 2), (0, 3, 2)]
)
def test_its_best_step_is_two_thirds_of_a_full_training(best: int, steps: int, epochs: int) -> None:
    assert length_of(best, steps) == epochs


@pytest.mark.long
def test_it_ends_where_validation_stops_improving(tmp_path: Path) -> None:
    found = full_length(RECIPE, STEPS, tmp_path, seconds=60, quiet=True)
    history = Run(tmp_path / PILOT).history
    scores = [entry["val"]["rsum"] for entry in history]
    best = max(range(len(scores)), key=scores.__getitem__)
    assert len(scores) == best + 1 + 5  # five without improvement
    assert found == length_of(history[best]["step"], STEPS)
    assert all(entry["step"] % 50 == 0 for entry in history)  # not every epoch of three steps
    again = full_length(RECIPE, STEPS, tmp_path, seconds=0.0, quiet=True)  # it is there
    assert again == found
    other = RECIPE.replace(objective="triplet")  # what was asked for before counts for nothing
    assert full_length(other, STEPS, tmp_path, seconds=0.0, quiet=True) is None


def test_it_says_how_far_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("simgrad.choosing.pilot._SECONDS", 0.0)
    full_length(RECIPE, STEPS, tmp_path, seconds=2.0)
    rsum = Run(tmp_path / PILOT).history[0]["val"]["rsum"]
    assert f"  epoch 17: validation rsum {rsum:.1f}\n" in capsys.readouterr().err


def test_out_of_time_it_says_nothing(tmp_path: Path) -> None:
    assert full_length(RECIPE, STEPS, tmp_path, seconds=0.0, quiet=True) is None
