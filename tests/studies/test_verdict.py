"""What is said of a comparison."""

import itertools
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import simgrad
from simgrad.evaluation import wording
from simgrad.runs.run import RANKS
from simgrad.studies.verdict import outlook, verdict

NUMBERS = itertools.count()


class Finished:
    """A run that was tested on one caption for each image."""

    def __init__(self, folder: Path, right: Sequence[bool]) -> None:
        images = len(right)
        similarities = torch.eye(images) * torch.tensor(right)[:, None]  # else the last of all
        metrics = simgrad.evaluate_similarities(similarities)
        self.path = folder / str(next(NUMBERS))
        self.test, self.info = metrics.to_dict(), {"seconds": 60.0, "status": "finished"}
        self.finished, self.history = True, [{"step": 1, "spread": 0.2}]
        self.ranks = lambda: metrics.ranks
        self.path.mkdir()
        (self.path / RANKS).touch()


class Diverged:
    """A run whose numbers became infinite."""

    def __init__(self, folder: Path) -> None:
        self.path, self.test = folder / str(next(NUMBERS)), {}
        self.info = {"seconds": 60.0, "status": "failed", "diverged": True}
        self.finished = False


def study_of(folder: Path, groups: dict[str, list[Any]]) -> Any:
    draws = {label: [[run] for run in runs] for label, runs in groups.items()}
    plan = SimpleNamespace(replicates=[None], short=False)
    return SimpleNamespace(path=folder, draws=draws, new_splits=False, plan=plan, looked=())


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
    assert alone.rivals[0].word == "open"
    three = verdict(study_of(tmp_path, {**groups, "rival": unsteady(tmp_path, 1, random)}))
    pair = [one for one in three.rivals if one.label in groups]
    assert [one.p >= 0.05 for one in pair] == [True]
    assert three.scores["first"] == alone.scores["first"]
    assert three.alone == ("rival",)


def test_a_diverged_seed_counts(tmp_path: Path) -> None:
    """It fails with one seed in five: its other four do not make it the leader."""
    random = np.random.default_rng(0)
    steady = [Finished(tmp_path, random.permutation(40) < 30) for _ in range(5)]
    failing: list[Any] = [Finished(tmp_path, random.permutation(40) < 33) for _ in range(4)]
    groups = {"steady": steady, "failing": [*failing, Diverged(tmp_path)]}
    found = verdict(study_of(tmp_path, groups))
    assert found.leader == "steady"
    assert found.draws == (5, 5)
    four = np.mean([run.test["rsum"] for run in failing])
    assert found.scores["failing"].mean == pytest.approx(4 / 5 * four)
    assert found.scores["failing"].of_trained == pytest.approx(four)
    assert found.scores["failing"].failures == 1
    # One of five that fails says little of the mean.
    assert found.rivals[0].word == "open"


def test_no_fair_comparison_with_what_failed_in_all_seeds(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    groups: dict[str, list[Any]] = {
        label: [Finished(tmp_path, random.permutation(40) < right) for _ in range(3)]
        for label, right in (("good", 30), ("fair", 29), ("stuck", 2))
    }
    for run in groups["stuck"]:  # what a collapsed training notes
        run.history = [{"step": step, "spread": 1e-4} for step in (1, 2, 3)]
    found = verdict(study_of(tmp_path, groups))
    assert found.failed == ("stuck",)
    assert "stuck" not in [one.label for one in found.rivals]
    told = wording.failures(found)
    assert told == ["No fair comparison: stuck collapsed in all 3 seeds."]
    assert "stuck" not in wording.lead(found)


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
    assert ahead.decision.draws is None or ahead.decision.images is not None
