"""Warnings that know: what has collapsed is recognised, and what is advised was not done yet."""

from pathlib import Path
from typing import Any

import pytest

from simgrad.models import models
from simgrad.objectives import objective
from simgrad.runs.recipe import Recipe
from simgrad.runs.run import Run
from simgrad.training import train
from simgrad.training.trouble import TrainingError, Watch, cures_of_collapse

ENTRY = {"lr": 1e-3, "loss": 12.8}


def seen(*spreads: float) -> list[str]:
    watch = Watch()
    return [
        text
        for spread in spreads
        for text in watch.look(ENTRY, spread, False, lambda: "Cures.")
        if "collapsed" in text
    ]


@pytest.mark.parametrize("spreads", [(1e-5,), (0.005, 0.003, 0.002), (0.02, 0.009, 0.008, 0.007)])
def test_collapse_is_recognised_once(spreads: tuple[float, ...]) -> None:
    assert len(seen(*spreads, *spreads)) == 1


def test_over_fitting_needs_evaluations_that_are_worse() -> None:
    def warned(worse: bool) -> bool:
        watch = Watch()
        return any(
            "over-fitting" in text
            for step in range(8)
            for text in watch.look({**ENTRY, "loss": 10.0 - step}, 0.1, worse, lambda: "")
        )

    assert warned(True)
    assert not warned(False)


@pytest.mark.parametrize("spreads", [(0.1,), (0.005, 0.006, 0.02), (0.0067, 0.0064, 0.0078, 0.02)])
def test_a_slow_start_is_no_collapse(spreads: tuple[float, ...]) -> None:
    assert seen(*spreads) == []


@pytest.mark.parametrize("spec", ["triplet-sh", "goal(triplet=con, pair=sig)", "siglip"])
def test_a_run_that_collapses_says_so(spec: str, small: Any, scenes: Any, tmp_path: Path) -> None:
    recipe = small(objective=spec, lr=0.1, epochs=4, clip=0.0)
    run = train(recipe, tmp_path / "run", dataset=scenes, quiet=True)
    said = " ".join(w["text"] for w in run.info["warnings"])
    assert "collapsed" in said
    assert "clip: 2.0" in said
    assert ("first_objective: triplet" in said) == objective(spec).sparse


def test_a_run_that_learns_says_nothing(small: Any, scenes: Any, tmp_path: Path) -> None:
    recipe = small(objective="nt-xent", lr=5e-3, epochs=4)
    run = train(recipe, tmp_path / "run", dataset=scenes, quiet=True)
    assert not [w for w in run.info["warnings"] if "collapsed" in w["text"]]


@pytest.mark.parametrize(
    ("changes", "there", "absent"),
    [
        ({}, "first_objective: triplet", "clip: 2.0"),
        ({"first_objective": "triplet", "first_epochs": 2}, "first_epochs: 3", "begin with"),
        ({"objective": "nt-xent"}, "lr: 2e-05", "hardest negative"),
        ({"warmup": 0.1}, "lr:", "warmup"),
        ({"clip": 0.0}, "clip: 2.0", "larger batch"),
        ({"batch": 32}, "larger batch", "frozen"),
    ],
)
def test_advice_fits_the_objective_and_what_was_done(
    changes: dict[str, Any], there: str, absent: str
) -> None:
    recipe = Recipe(objective="triplet-sh", lr=2e-4).replace(**changes)
    text = cures_of_collapse(recipe, objective(recipe.objective), False)
    assert there in text
    assert absent not in text


def test_a_trained_network_may_be_frozen_first() -> None:
    chosen = objective("triplet-sh")
    assert "freeze_epochs" in cures_of_collapse(Recipe(), chosen, True)
    assert "freeze_epochs" not in cures_of_collapse(Recipe(freeze_epochs=2), chosen, True)


@pytest.mark.parametrize(
    ("spec", "locked"),
    [("clip", True), ("clip(train_image=last=2)", True), ("clip(train_image=none)", False),
     ("clip(source=none)", False), ("clip(train_text=none)", False),  # nothing would be trained
     ("towers(train_image=full)", True), ("towers", False), ("vse++(finetune=true)", False)],
)  # fmt: skip
def test_a_tower_is_locked_instead(spec: str, locked: bool) -> None:
    text = cures_of_collapse(Recipe(), objective("nt-xent"), False, models.parse(spec).lock)
    assert ("train_image=none" in text) is locked
    assert "freeze_epochs" not in text


@pytest.mark.parametrize("rate", [1e30, 1e18])
def test_a_model_that_is_not_finite_has_diverged(
    rate: float, small: Any, scenes: Any, tmp_path: Path
) -> None:
    """Whatever looks at it first: the loss, the objective's own check or an evaluation."""
    recipe = small(objective="siglip", lr=rate, epochs=2, clip=0.0)
    with pytest.raises(TrainingError, match=r"^step \d+ \(epoch \d+\): .*Lower the learning rate"):
        train(recipe, tmp_path / "run", dataset=scenes, quiet=True)
    assert Run(tmp_path / "run").info["status"] == "failed"
