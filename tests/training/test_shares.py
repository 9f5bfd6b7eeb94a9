"""What a process of several holds: its part of a batch, and less the more of them there are."""

import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import simgrad
from simgrad.data import Sampler, open_dataset
from simgrad.data.sampling import OfflineIndex
from simgrad.runs.offline_draws import draw_of
from simgrad.runs.recipe import Recipe
from simgrad.training import distributed
from simgrad.training.distributed import own_share
from tests.processes import together
from tests.training.lists import random_lists

PAIRS, WIDTH = 1024, 2048
SPECS = ("nt-xent", "triplet-sh")


class Peak(TorchDispatchMode):
    """The most bytes that tensors held at once."""

    def __init__(self) -> None:
        super().__init__()
        self.now = self.most = 0
        self.known: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(found):
            if isinstance(tensor, torch.Tensor):
                self._note(tensor.untyped_storage())
        return found

    def _note(self, storage: torch.UntypedStorage) -> None:
        key, size = storage.data_ptr(), storage.nbytes()
        if not size or key in self.known:
            return
        self.known.add(key)
        self.now += size
        self.most = max(self.most, self.now)
        weakref.finalize(storage, self._forget, key, size)

    def _forget(self, key: int, size: int) -> None:
        self.known.discard(key)
        self.now -= size


def measure(rank: int, world: int, folder: str) -> None:
    """Peak bytes of one process, for every objective."""
    told = []
    for spec in SPECS:
        generator = torch.Generator().manual_seed(rank)
        with Peak() as peak:
            x, y = (torch.randn(PAIRS // world, WIDTH, generator=generator) for _ in range(2))
            simgrad.distributed(spec)(x.requires_grad_(), y.requires_grad_()).backward()
        told.append(peak.most)
        del x, y
    if dist.is_initialized():
        every: list[Any] = [None] * world
        dist.all_gather_object(every, told)
        told = np.max(every, axis=0).tolist()
    if rank == 0:
        np.save(Path(folder) / f"{world}.npy", np.array(told))


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Any]:
    folder = tmp_path_factory.mktemp("shares")
    measure(0, 1, str(folder))
    for world in (2, 4):
        together(measure, world, str(folder))
    return {world: np.load(folder / f"{world}.npy") for world in (1, 2, 4)}


@pytest.mark.long
def test_memory_of_a_process_falls_with_their_number(measured: dict[int, Any]) -> None:
    for k, spec in enumerate(SPECS):
        one, two, four = (measured[world][k] for world in (1, 2, 4))
        # Shards that visit cost two processes most of what a smaller share saves.
        assert one > two > four, spec
        assert four < 0.6 * one, spec


@pytest.mark.parametrize("drawn", [False, True])
@pytest.mark.parametrize("batch", [2, 25])
def test_shares_are_all_of_a_batch(
    drawn: bool, batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    split = open_dataset("scenes(train=40, val=5, test=5, features=global)").split("train")
    index: Any = Sampler("pairs", batch, seed=3).epoch(split, 0)[0]
    if drawn:
        recipe = Recipe(objective="off-quin", depth=10)
        index = draw_of(recipe, split, random_lists(split, 10)).epoch([index], 0)[0]  # type: ignore[union-attr]
    pairs, offline = [], []
    monkeypatch.setattr(distributed, "size", lambda: 3)
    for rank in range(3):
        monkeypatch.setattr(distributed, "rank", lambda rank=rank: rank)
        share = own_share(index)
        pairs += _pairs(share)
        offline += _drawn(share)
    assert sorted(pairs) == sorted(_pairs(index))
    assert sorted(offline) == sorted(_drawn(index))


def _pairs(index: Any) -> list[tuple[int, int]]:
    """Image and caption, as rows of the split."""
    count = index.own_captions if isinstance(index, OfflineIndex) else len(index.captions)
    images = index.images[index.image_of_caption[:count]]
    return list(zip(images.tolist(), index.captions[:count].tolist(), strict=True))


def _drawn(index: Any) -> list[tuple[int, ...]]:
    """What was drawn for each caption, as rows of the split."""
    if not isinstance(index, OfflineIndex):
        return []
    rows = [
        (index.captions if name.endswith("caption") else index.images)[place]
        for name, place in index.places().items()
    ]
    own = index.captions[: index.own_captions]
    return [tuple(map(int, each)) for each in zip(own, *rows, strict=True)]
