"""Fake trees of Flickr30k and COCO, and stand-ins for the networks that recipes fetch."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest

from simgrad.data.benchmarks import BENCHMARKS
from tests import standins, trees
from tests.studies.world import World


@pytest.fixture(scope="session")
def small_tree(tmp_path_factory: pytest.TempPathFactory) -> World:
    root = tmp_path_factory.mktemp("small")
    trees.flickr30k(root, train=40, val=20, pictures=40 + 20 + 1_000)
    trees.coco(root, train=30, restval=20, val=20)
    trees.vocabularies(root)
    return World(root)


@pytest.fixture
def small(small_tree: World, monkeypatch: pytest.MonkeyPatch) -> World:
    """Tests are of full size; there are few images to train on and to choose by."""
    for name, train in (("f30k", 40), ("coco", 50)):
        few = dataclasses.replace(BENCHMARKS[name], train=(train,))
        monkeypatch.setitem(BENCHMARKS, name, few)
    return small_tree


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory) -> World:
    """All of both data sets, with an imported checkpoint of X-VLM."""
    root = tmp_path_factory.mktemp("whole")
    trees.flickr30k(root)
    trees.coco(root)
    trees.vocabularies(root)
    standins.xvlm(root)
    return World(root)


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A cache with stand-ins for all that recipes fetch."""
    cache = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        standins.put(cache, patch)
        yield cache
