"""What is said of a comparison."""

import dataclasses
import itertools
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import simgrad
from simgrad.runs.run import RANKS
from simgrad.studies.verdict import Rival, Verdict, outlook, seeds_to_decide, verdict

NUMBERS = itertools.count()
CLEAR = Rival("triplet-sh", 9.0, 2.0, 15.0, 0.01, image_error=1.0)
CLOSE = Rival("siglip", 1.0, -3.0, 5.0, 0.6, image_error=1.0)


def test_not_told_apart_is_an_answer() -> None:
    found = Verdict("nt-xent", 250.0, (CLOSE, CLEAR), 3, 500)
    assert found.sentence.startswith("nt-xent and siglip lead, not told apart")
    assert "triplet-sh is behind by 9.0 [2.0, 15.0]" in found.sentence
    assert [one.label for one in found.tied] == ["siglip"]
    alike = Verdict("nt-xent", 250.0, (CLOSE,), 3, 500)
    assert alike.sentence.startswith("nt-xent and siglip are not told apart")
    assert " lead" not in alike.sentence


def test_a_clear_leader_is_called_so() -> None:
    found = Verdict("nt-xent", 250.0, (CLEAR, dataclasses.replace(CLEAR, label="triplet")), 3, 500)
    assert found.sentence.startswith("nt-xent leads")
    assert "not told apart" not in found.sentence
    assert "triplet is behind by" in found.sentence


def test_how_many_seeds_there_are_is_said() -> None:
    assert "over 9 seeds of each" in Verdict("nt-xent", 250.0, (CLOSE,), 9, 500).sureness
    assert "over 9 to 10 seeds of each" in Verdict("nt-xent", 250.0, (CLOSE,), 9, 500, 10).sureness


def test_seeds_that_would_decide() -> None:
    # One seed of each: a variance of 100. Without an error of the images, 16 seeds bring 1.96
    # standard errors to 4.9, just below a gap of 5.
    assert seeds_to_decide(gap=5.0, image_error=0.0, one_seed=100.0, seeds=2) == 16
    # The images alone leave an error of 3, and no number of seeds takes it away.
    assert seeds_to_decide(gap=5.0, image_error=3.0, one_seed=100.0, seeds=2) is None
    assert seeds_to_decide(gap=9.0, image_error=3.0, one_seed=100.0, seeds=2) == 9
    assert seeds_to_decide(gap=0.0, image_error=1.0, one_seed=1.0, seeds=3) is None


class Finished:
    """A run that was tested on one caption for each image."""

    def __init__(self, folder: Path, right: Sequence[bool]) -> None:
        images = len(right)
        similarities = torch.eye(images) * torch.tensor(right)[:, None]  # else the last of all
        metrics = simgrad.evaluate_similarities(similarities)
        self.path = folder / str(next(NUMBERS))
        self.test, self.info = metrics.to_dict(), {"seconds": 60.0, "status": "finished"}
        self.ranks = lambda: metrics.ranks
        self.path.mkdir()
        (self.path / RANKS).touch()


class Diverged:
    """A run whose numbers became infinite."""

    def __init__(self, folder: Path) -> None:
        self.path, self.test = folder / str(next(NUMBERS)), {}
        self.info = {"seconds": 60.0, "status": "failed", "diverged": True}


def study_of(folder: Path, groups: dict[str, list[Any]]) -> Any:
    finished = {k: [run for run in runs if run.test] for k, runs in groups.items()}
    return SimpleNamespace(path=folder, groups=finished, ended=groups)


def unsteady(folder: Path, seeds: int, random: np.random.Generator) -> list[Any]:
    """Runs of one objective whose seeds differ a lot."""
    shares = random.uniform(0.2, 0.9, seeds)
    return [Finished(folder, random.random(40) < share) for share in shares]


def test_a_rival_with_one_run_does_not_reduce_the_others_to_one(tmp_path: Path) -> None:
    """Equal objectives of ten seeds each: their first seeds alone would be told apart."""
    random = np.random.default_rng(3)
    groups: dict[str, list[Any]] = {
        label: unsteady(tmp_path, 10, random) for label in ("first", "second")
    }
    groups["first"].sort(key=lambda run: -run.test["rsum"])  # seed 0: the best and the worst
    groups["second"].sort(key=lambda run: run.test["rsum"])
    alone = verdict(study_of(tmp_path, groups))
    assert alone.tied
    three = verdict(study_of(tmp_path, {**groups, "rival": unsteady(tmp_path, 1, random)}))
    pair = [one for one in three.rivals if one.label in groups]
    assert [one.p >= 0.05 for one in pair] == [True]
    assert three.score == alone.score


def test_a_diverged_seed_counts(tmp_path: Path) -> None:
    """It fails with one seed in five: its other four do not make it the leader."""
    random = np.random.default_rng(0)
    steady = [Finished(tmp_path, random.permutation(40) < 30) for _ in range(5)]
    failing: list[Any] = [Finished(tmp_path, random.permutation(40) < 33) for _ in range(4)]
    groups = {"steady": steady, "failing": [*failing, Diverged(tmp_path)]}
    found = verdict(study_of(tmp_path, groups))
    assert found.leader == "steady"
    assert found.seeds == 5
    four = np.mean([run.test["rsum"] for run in failing])
    assert found.score - found.rivals[0].behind == pytest.approx(4 / 5 * four)
    # One of five that fails says little of the mean.
    assert not found.rivals[0].told_apart


def test_seeds_do_not_outrun_the_test_images(tmp_path: Path) -> None:
    """Seeds differ as much as images do, so the interval has few degrees of freedom."""
    images = 20
    rights = {"a": (17, 10), "b": (12, 9)}  # of each seed
    random = np.random.default_rng(0)
    groups = {
        label: [Finished(tmp_path, random.permutation(images) < right) for right in seeds]
        for label, seeds in rights.items()
    }
    study = study_of(tmp_path, groups)
    found = verdict(study)
    gained = [  # by image, in points of the gap
        100 / images * np.mean([np.sum([r.i2t <= k for k in (1, 5, 10)], 0)
                                + np.sum([r.t2i <= k for k in (1, 5, 10)], 0)
                                for r in (run.ranks() for run in runs)], axis=0)
        for runs in groups.values()
    ]  # fmt: skip
    by_image = (images * np.var(gained[0] - gained[1], ddof=1)) ** 0.5
    assert found.rivals[0].behind < 1.96 * by_image
    ahead = outlook(study, found)
    assert ahead is not None
    assert ahead.seeds is None
