"""The recipes of docs/losses.md, as they stand: afterwards the networks find what belongs together.

Held out pictures and sentences are searched for one another: 1 in 200 is found by chance.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import simgrad
from tests.named_commands import FENCE

PAGE = Path(__file__).parents[2] / "docs" / "losses.md"
BLOCKS = [code for language, code in FENCE.findall(PAGE.read_text("utf-8")) if language == "python"]
Names = dict[str, Any]


def _vectors(names: Names) -> tuple[Tensor, Tensor]:
    pictures, sentences = names["batch"](200)
    return names["image_network"](pictures), names["text_network"](sentences)


def _found(images: Tensor, texts: Tensor) -> float:
    return float(simgrad.evaluate(images, texts, range(200), normalise=True).t2i_r1)


def _whole(names: Names) -> float:
    return _found(*_vectors(names))


def _prefixes(names: Names) -> float:
    return min(_found(*(v[:, :d] for v in _vectors(names))) for d in (4, 8, 16))


def _tokens(names: Names) -> float:
    images, texts = _vectors(names)
    S = names["maxsim"](images.unflatten(1, (4, 4)), texts[:, :12].unflatten(1, (3, 4)))
    return float(simgrad.evaluate_similarities(S, range(200)).t2i_r1)


# A word of its block, and what is measured after it.
RECIPES: dict[str, Callable[[Names], float]] = {
    "queue": _whole,
    "for d in": _prefixes,
    "triplet.margin": _whole,
    "maxsim": _tokens,
    "ClipLoss": _whole,
    "GradCache": _whole,
}


@pytest.fixture(scope="module")
def names() -> Iterator[Names]:
    """What the first block defines."""
    state = torch.get_rng_state()
    found: Names = {}
    exec(BLOCKS[0], found)
    yield found
    torch.set_rng_state(state)


def test_every_recipe_is_looked_at() -> None:
    assert len(BLOCKS) == 1 + len(RECIPES)
    for word, block in zip(RECIPES, BLOCKS[1:], strict=True):
        assert word in block


@pytest.mark.parametrize("word", RECIPES)
@torch.no_grad()
def test_a_recipe_trains(word: str, names: Names) -> None:
    block = BLOCKS[1 + list(RECIPES).index(word)]
    names |= {"objective": simgrad.objective("nt-xent", tau=0.07)}  # its first block's
    torch.manual_seed(1)
    with torch.enable_grad():
        exec(block.replace("range(60)", "range(0)"), names)
    before = RECIPES[word](names)
    with torch.enable_grad():
        exec(block, names)
    after = RECIPES[word](names)
    assert before < 10
    assert after > 80, after
