"""Batches: every sampler's promise, order whatever the workers, resuming, resident gathers."""

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from simgrad.core.errors import InputError
from simgrad.data import IndexBatch, Sampler, Source, Split, Vocabulary, open_dataset
from simgrad.data.arrays import ArrayFeatures
from simgrad.data.batches import in_order

from . import layout_writers as write

KINDS = ["pairs", "images", "distinct"]


def make_split(counts: list[int], dimension: int = 3, captions: list[str] | None = None) -> Split:
    """Images with these numbers of captions, captions in mixed order."""
    owners = np.repeat(np.arange(len(counts)), counts)
    owners = np.random.default_rng(0).permutation(owners)
    texts = captions or [f"caption {i} of image {owner}" for i, owner in enumerate(owners)]
    array = np.arange(len(counts) * dimension, dtype=np.float32).reshape(len(counts), dimension) + 1
    return Split(
        dataset="made",
        name="train",
        captions=texts,
        image_of_caption=owners,
        image_names=[str(i) for i in range(len(counts))],
        features=ArrayFeatures(Path("made.npy"), array),
    )


def check_batch(batch: IndexBatch, split: Split) -> None:
    assert len(np.unique(batch.images)) == len(batch.images)
    owners = split.image_of_caption[batch.captions]
    np.testing.assert_array_equal(batch.images[batch.image_of_caption], owners)
    assert set(batch.image_of_caption.tolist()) == set(range(len(batch.images)))


COUNTS = st.lists(st.integers(0, 7), min_size=1, max_size=30).filter(any)


@settings(max_examples=60, deadline=None)
@given(COUNTS, st.integers(1, 12), st.integers(0, 3))
def test_pairs_visit_every_caption_once(counts: list[int], size: int, seed: int) -> None:
    split = make_split(counts)
    batches = Sampler("pairs", size, seed=seed).epoch(split, 0)
    for batch in batches:
        check_batch(batch, split)
    visited = np.concatenate([batch.captions for batch in batches])
    assert sorted(visited.tolist()) == list(range(split.num_captions))
    assert all(len(batch.captions) == size for batch in batches[:-1])


@settings(max_examples=60, deadline=None)
@given(COUNTS, st.integers(1, 12))
def test_distinct_has_no_two_captions_of_one_image(counts: list[int], size: int) -> None:
    split = make_split(counts)
    batches = Sampler("distinct", size).epoch(split, 3)
    for batch in batches:
        check_batch(batch, split)
        assert len(batch.images) == len(batch.captions) <= size
        assert batch.image_of_caption.tolist() == list(range(len(batch.images)))  # the diagonal
    visited = np.concatenate([batch.captions for batch in batches])
    assert sorted(visited.tolist()) == list(range(split.num_captions))


@settings(max_examples=60, deadline=None)
@given(COUNTS, st.integers(1, 12), st.integers(1, 6))
def test_images_come_with_k_captions(counts: list[int], size: int, k: int) -> None:
    split = make_split(counts)
    batches = Sampler("images", size, captions_per_image=k).epoch(split, 0)
    visited = []
    for batch in batches:
        check_batch(batch, split)
        assert len(np.unique(batch.captions)) == len(batch.captions)
        per_image = np.bincount(batch.image_of_caption, minlength=len(batch.images))
        np.testing.assert_array_equal(per_image, np.minimum(np.array(counts)[batch.images], k))
        assert (np.diff(batch.image_of_caption) >= 0).all()  # image by image
        visited += batch.images.tolist()
    assert sorted(visited) == [i for i, count in enumerate(counts) if count]


def test_images_choose_among_more_than_k() -> None:
    split = make_split([7, 7])
    chosen = {
        int(caption)
        for epoch in range(20)
        for batch in Sampler("images", 2, captions_per_image=2).epoch(split, epoch)
        for caption in batch.captions
    }
    assert len(chosen) == 14


@pytest.mark.parametrize("kind", KINDS)
def test_same_seed_same_order(kind: Any) -> None:
    split = make_split([5] * 40)

    def order(seed: int, epoch: int) -> list[list[int]]:
        return [b.captions.tolist() for b in Sampler(kind, 16, seed=seed).epoch(split, epoch)]

    assert order(1, 2) == order(1, 2)
    assert order(1, 2) != order(1, 3)
    assert order(1, 2) != order(2, 2)
    assert order(-1, 2) != order(1, 2)


@pytest.mark.parametrize("kind", KINDS)
def test_drop_last(kind: Any) -> None:
    split = make_split([5] * 10)
    batches = Sampler(kind, 8, drop_last=True).epoch(split, 0)
    full = (
        {len(b.images) for b in batches} if kind == "images" else {len(b.captions) for b in batches}
    )
    assert full == {8}


@pytest.mark.parametrize("kind", KINDS)
def test_thirty_thousand_captions_take_milliseconds(kind: Any) -> None:
    split = make_split([5] * 6000)
    sampler = Sampler(kind, 128)
    sampler.epoch(split, 0)
    started = time.process_time()
    sampler.epoch(split, 1)
    assert time.process_time() - started < 0.2  # 5 to 15 ms on an idle core


def source(split: Split, **options: Any) -> Source:
    return Source(split, Vocabulary.build(split.captions, min_count=1), **options)


def same(one: Any, other: Any) -> bool:
    names = ("images", "tokens", "lengths", "image_of_caption")
    return all(torch.equal(getattr(one, name), getattr(other, name)) for name in names)


def test_a_batch_holds_its_rows() -> None:
    captions = ["a dog", "two red dogs run", "", "a cat"]
    split = make_split([2, 1, 1], captions=captions)
    made = source(split)
    index = IndexBatch(np.array([2, 0]), np.array([1, 3, 2]), np.array([0, 1, 1]))
    batch = made.fetch(index)
    np.testing.assert_array_equal(batch.images, [[7, 8, 9], [1, 2, 3]])
    assert batch.lengths.tolist() == [6, 4, 2]
    assert batch.tokens.shape == (3, 6)
    assert batch.tokens[2].tolist() == [1, 2, 0, 0, 0, 0]
    assert batch.tokens.dtype == batch.lengths.dtype == torch.int64
    assert batch.image_of_caption.tolist() == [0, 1, 1]
    fixed = source(split, length=4).fetch(index)
    assert fixed.tokens.shape == (3, 4)
    assert fixed.lengths.tolist() == [4, 4, 2]


@pytest.mark.parametrize("kind", KINDS)
def test_workers_residence_and_resuming_change_nothing(kind: Any) -> None:
    split = make_split([3, 1, 5, 2, 5, 5, 4])
    order = Sampler(kind, 4).epoch(split, 0)
    plain = list(source(split).batches(order))
    assert len(plain) == len(order)
    for options in ({"workers": 1}, {"workers": 3}, {"resident": True}):
        made = source(split, **options)
        for start in (0, 2):
            batches = list(made.batches(order, start=start))
            assert len(batches) == len(plain) - start
            assert all(same(a, b) for a, b in zip(plain[start:], batches, strict=True))


def test_augmentation_is_the_same_whatever_the_workers(tmp_path: Path) -> None:
    split = open_dataset(write.karpathy(tmp_path)).split("train")

    def transform(picture: Any, generator: torch.Generator | None) -> torch.Tensor:
        pixels = torch.from_numpy(np.array(picture)).float()
        return pixels + torch.rand(1, generator=generator) if generator else pixels

    order = Sampler("pairs", 2).epoch(split, 0)
    one = list(source(split, transform=transform).batches(order, seed=5))
    two = list(source(split, transform=transform, workers=2).batches(order, start=1, seed=5))
    assert all(same(a, b) for a, b in zip(one[1:], two, strict=True))
    other = list(source(split, transform=transform).batches(order, seed=6))
    assert not same(one[0], other[0])
    assert source(split, transform=transform).image_shape == (8, 12, 3)


def test_an_error_in_a_worker_reaches_the_reader(tmp_path: Path) -> None:
    split = open_dataset(write.karpathy(tmp_path)).split("train")
    (tmp_path / "images" / "b.jpg").unlink()
    made = source(split, transform=lambda picture, _: torch.zeros(1), workers=2)
    with pytest.raises(InputError, match=r"b\.jpg"):
        list(made.batches(Sampler("pairs", 1).epoch(split, 0)))


def test_stopping_early_leaves_no_threads() -> None:
    import threading

    split = make_split([5] * 20)
    batches = source(split, workers=2).batches(Sampler("pairs", 2).epoch(split, 0))
    next(batches)
    batches.close()  # type: ignore[attr-defined]  # a generator
    assert not any(thread.name.startswith("simgrad-batches") for thread in threading.enumerate())


def test_resident_fetch_reads_nothing_from_the_host() -> None:
    split = make_split([2, 3])
    made = source(split, resident=True)
    object.__setattr__(split, "features", None)  # gone, and not missed
    object.__setattr__(split, "captions", None)
    order = [IndexBatch(np.array([1]), np.array([0]), np.array([0]))]
    assert next(made.batches(order)).images.tolist() == [[4, 5, 6]]
    assert made.fetch(order[0]).images.tolist() == [[4, 5, 6]]


def test_in_order_covers_every_image_and_caption() -> None:
    split = make_split([2, 0, 3, 1, 0])
    batches = in_order(split, 2)
    assert np.concatenate([b.images for b in batches]).tolist() == [0, 1, 2, 3, 4]
    captions = np.concatenate([b.captions for b in batches])
    assert sorted(captions.tolist()) == list(range(6))
    for batch in batches:
        owners = split.image_of_caption[batch.captions]
        np.testing.assert_array_equal(batch.images[batch.image_of_caption], owners)


@pytest.mark.parametrize(
    ("options", "message"),
    [({"kind": "triples"}, "pairs, images or distinct"), ({"batch": 0}, "at least one")],
)
def test_impossible_samplers(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Sampler(**options)


def test_impossible_sources(tmp_path: Path) -> None:
    pictures = open_dataset(write.karpathy(tmp_path)).split("train")
    with pytest.raises(InputError, match="no features"):
        source(pictures)
    with pytest.raises(InputError, match="no pictures"):
        source(make_split([1]), transform=lambda picture, _: torch.zeros(1))
    with pytest.raises(InputError, match="resident"):
        source(pictures, transform=lambda picture, _: torch.zeros(1), resident=True)


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
def test_batches_are_whole_on_any_stream() -> None:
    split = make_split([1] * 512, dimension=100_000)
    assert split.features is not None
    source = Source(split, Vocabulary.build(split.captions, min_count=1), device="cuda", workers=4)
    with torch.cuda.stream(torch.cuda.Stream()):
        sums = [batch.images.double().sum(1).cpu() for batch in source.batches(in_order(split, 64))]
    wanted = split.features.rows(np.arange(512)).astype(np.float64).sum(1)
    assert np.allclose(torch.cat(sums), wanted)
