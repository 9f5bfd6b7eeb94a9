"""The test of a run: its split, its protocol, ranked again where the recipe says so."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from simgrad.core.errors import InputError
from simgrad.data import open_dataset
from simgrad.data.base import with_splits
from simgrad.evaluation.protocols import PROTOCOLS, Protocol
from simgrad.evaluation.rerank import evaluate_reranked
from simgrad.models import load
from simgrad.retriever.opening import open_folder
from simgrad.runs.recipe import Recipe
from simgrad.training import train
from tests.retriever.test_prepare import _XVLM, recipe

GLOBAL = "scenes(train=24, val=8, test=8, features=global)"
SMALL = "vse++(dimension=8, word_dimension=8)"


@pytest.fixture
def folded(monkeypatch: pytest.MonkeyPatch) -> Protocol:
    """Two folds of four images with three captions each."""
    made = Protocol("two-folds", "test images", 8, 3, 2, splits=("testall", "test"))
    monkeypatch.setitem(PROTOCOLS, made.name, made)
    return made


def test_a_protocol_decides_split_captions_and_folds(folded: Protocol, tmp_path: Path) -> None:
    run = train(recipe(SMALL, data=GLOBAL, protocol="two-folds"), tmp_path / "run", quiet=True)
    ranks = run.ranks()
    assert (len(ranks.i2t), len(ranks.t2i)) == (8, 24)
    assert sorted(set(ranks.fold.tolist())) == [0, 1]
    told = run.info["tested"]
    assert (told["split"], told["images"], told["captions"], told["folds"]) == ("test", 8, 24, 2)
    kept = open_folder(run.path).ranks
    assert kept is not None
    assert np.array_equal(kept.t2i, ranks.t2i)


def test_where_there_is_testall_it_is_taken(folded: Protocol, tmp_path: Path) -> None:
    whole = open_dataset(GLOBAL)
    test = whole.split("test")
    splits = [*whole.splits.values(), type(test)(**{**vars_of(test), "name": "testall"})]
    both = with_splits(whole, splits)
    asked = recipe(SMALL, data=GLOBAL, protocol="two-folds")
    assert asked.tested_split(both) == "testall"
    assert asked.replace(test_split="test").tested_split(both) == "test"
    assert recipe(SMALL, data=GLOBAL).tested_split(both) == "test"


def vars_of(split: Any) -> dict[str, Any]:
    return {name: getattr(split, name) for name in split.__dataclass_fields__}


def test_a_test_that_is_not_possible_is_told_before_training(tmp_path: Path) -> None:
    for changes, words in (
        ({"protocol": "flickr30k-1k"}, "1,000 test images"),
        ({"test_split": "testall"}, "no split 'testall'"),
        ({"rerank": 4}, "no second scorer"),
    ):
        with pytest.raises(InputError, match=words):
            train(recipe(SMALL, data=GLOBAL, **changes), tmp_path / words[:5], quiet=True)
        assert not (tmp_path / words[:5] / "metrics.jsonl").exists()
    with pytest.raises(InputError, match="no protocol"):
        Recipe(protocol="coco-6k")


def test_x_vlm_starts_from_a_checkpoint_and_ranks_again_at_the_test(tmp_path: Path) -> None:
    first = train(recipe(_XVLM), tmp_path / "first", quiet=True)
    asked = recipe(_XVLM, start_from=str(first.path / "best"), rerank=8, lr=0.0)
    second = train(asked, tmp_path / "second", quiet=True)
    # At a rate of 0 nothing but the test differs.
    before, after = load(first.path / "best").model, load(second.path / "best").model
    for one, other in zip(before.parameters(), after.parameters(), strict=True):
        assert bool((one == other).all())
    system = open_folder(second, device="cpu").similarities()
    assert system.reranker is not None
    pairing = system.split.image_of_caption
    expected = evaluate_reranked(system.scores, pairing, system.reranker.scores, 8)
    assert second.test["rsum"] == pytest.approx(expected.to_dict()["rsum"])
    assert np.array_equal(second.ranks().t2i, expected.ranks.t2i)
    ranks = [np.concatenate([run.ranks().i2t, run.ranks().t2i]) for run in (first, second)]
    assert not np.array_equal(*ranks)
