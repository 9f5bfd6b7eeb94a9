"""Which run of a folder is its best, and what it is called."""

from pathlib import Path

import pytest

import simgrad
from simgrad.core.errors import InputError
from simgrad.runs.outcome import CHOICE, CHOOSING, what_is_best
from simgrad.runs.recipe import Recipe
from simgrad.runs.run import Run


def test_the_model_of_choose_is_the_best_of_all_searches(tmp_path: Path) -> None:
    """Each search has a setting of its own, and so another spec of the objective."""
    taus = {"nt-xent-r1-s0": 0.1, "nt-xent-r2-s10000": 0.2, "nt-xent-t01-r1-s0": 0.3, "model": 0.2}
    for name, tau in taus.items():
        folder = tmp_path / "runs" / name if name != "model" else tmp_path / name
        folder.mkdir(parents=True)
        Recipe(objective=f"nt-xent(tau={tau})", lr=1e-3).save(folder / "recipe.yaml")
    model = Run(tmp_path / "model")
    assert what_is_best(model) == ""  # a run that somebody called so, beside their others
    (tmp_path / CHOICE).write_text("{}")
    assert what_is_best(model) == " (nt-xent(tau=0.2), seed 0, the best of 2)"
    assert what_is_best(Run(tmp_path / "runs" / "nt-xent-r1-s0")) == ""


def test_a_choice_that_is_under_way_has_no_model_yet(tmp_path: Path) -> None:
    (tmp_path / CHOOSING).touch()
    with pytest.raises(InputError, match="`simgrad choose` has no model there yet"):
        simgrad.open(tmp_path)
