"""Embeddings in, gradients out: blocks of any size give what one piece gives."""

import pytest
import torch
from torch import Tensor
from torch.nn.functional import logsigmoid, normalize

from simgrad.objectives import Offline, Positives, objective
from simgrad.objectives.base import Objective

from .cases import everything, names

EVERYTHING = everything()
each_objective = pytest.mark.parametrize("o", EVERYTHING, ids=names(EVERYTHING))


def _embeddings(n: int, m: int, dtype: torch.dtype, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    images = torch.randn(n, 6, generator=generator, dtype=torch.float64)
    texts = torch.randn(m, 6, generator=generator, dtype=torch.float64)
    return images.to(dtype), texts.to(dtype)


def _index() -> Tensor:
    return torch.tensor([2, 0, 1, 1, 3, 0, 2, 2, 3, 4, 5, 6, 6])


def _batches(dtype: torch.dtype) -> dict[str, tuple[Tensor, Tensor, Tensor | None]]:
    """Signed similarities; several positives; duplicated images and captions; ties; one pair."""
    images, texts = _embeddings(11, 11, dtype)
    doubled_images, doubled_texts = images.clone(), texts.clone()
    doubled_images[4], doubled_texts[7] = doubled_images[2], doubled_texts[3]
    axes = torch.eye(6, dtype=dtype)[torch.arange(11) % 6]  # similarities are 0 or 1 exactly
    index = _index()
    return {
        "diagonal": (images, texts, None),
        "index": (*_embeddings(7, len(index), dtype, seed=1), index),
        "duplicates": (doubled_images, doubled_texts, None),
        "ties": (axes, axes.clone(), None),
        "one": (images[:1], texts[:1], None),
    }


def _offline(o: Objective, pairs: int, dtype: torch.dtype) -> Offline | None:
    if not o.needs_offline:
        return None
    four = torch.rand(4, pairs, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    return Offline(*(x.to(dtype).requires_grad_() for x in four))


def _pairs(images: Tensor, texts: Tensor, positives: Tensor | Positives | None) -> int:
    mask = isinstance(positives, Tensor) and positives.dtype == torch.bool
    return int(positives.sum()) if mask else len(texts)


def _gradients(
    o: Objective,
    images: Tensor,
    texts: Tensor,
    positives: Tensor | Positives | None,
    **options: int,
) -> list[Tensor]:
    """The loss and the gradient of everything it depends on."""
    images, texts = images.clone().requires_grad_(), texts.clone().requires_grad_()
    offline = _offline(o, _pairs(images, texts, positives), images.dtype)
    learned = [p for p in o.parameters() if p.requires_grad]
    loss = o(images, texts, positives, offline, **options)
    inputs = [images, texts, *(offline or ()), *learned]
    return [loss.detach(), *torch.autograd.grad(loss, inputs)]


@pytest.mark.parametrize("name", ["duplicates", "ties", "one"])  # more of them: test_ways.py
@each_objective
def test_blocked_equals_direct(o: Objective, name: str) -> None:
    images, texts, positives = _batches(torch.float64)[name]
    direct = _gradients(o, images, texts, positives)
    assert all(x.isfinite().all() for x in direct)
    for block in (1, 30, 44):  # one row; uneven last blocks
        blocked = _gradients(o, images, texts, positives, block=block)
        for one, other in zip(blocked, direct, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", ["diagonal", "index"])
@each_objective
def test_blocked_equals_direct_in_float32(o: Objective, name: str) -> None:
    images, texts, positives = _batches(torch.float32)[name]
    direct = _gradients(o, images, texts, positives)
    blocked = _gradients(o, images, texts, positives, block=40)
    exact = _gradients(o, images.double(), texts.double(), positives)
    for one, other, true in zip(blocked, direct, exact, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(one.double(), true.double(), rtol=1e-3, atol=1e-4)


def test_index_and_mask_are_the_same_positives() -> None:
    index = _index()
    images, texts = _embeddings(7, len(index), torch.float64, seed=1)
    mask = torch.arange(7)[:, None] == index[None]
    for o in EVERYTHING:
        for one, other in zip(
            _gradients(o, images, texts, index), _gradients(o, images, texts, mask), strict=True
        ):
            torch.testing.assert_close(one, other)


@pytest.mark.parametrize("block", [None, 5, 40])
@each_objective
def test_padded_rows_change_nothing(o: Objective, block: int | None) -> None:
    """`present`: a batch padded to a fixed number of images is the batch without them."""
    index = torch.tensor([1, 0, 0, 2, 1, 3])
    images, texts = _embeddings(4, 6, torch.float64, seed=2)
    padded = torch.cat([images[:2], torch.full((1, 6), 0.3), images[2:], torch.ones(2, 6)])
    padded = padded.double()
    present = torch.tensor([True, True, False, True, True, False, False])
    moved = torch.tensor([0, 1, 3, 4])[index]
    options = {} if block is None else {"block": block}
    plain = _gradients(o, images, texts, index, **options)
    positives = Positives.of_captions(moved, 7, present)
    with_rows = _gradients(o, padded, texts, positives, **options)
    torch.testing.assert_close(with_rows[1][~present], torch.zeros(3, 6).double())
    with_rows[1] = with_rows[1][present]
    for one, other in zip(with_rows, plain, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


def test_padding_leaves_a_lone_query_alone() -> None:
    """One image, two captions, padded: there is no negative, so nothing is pushed."""
    images, texts = _embeddings(3, 2, torch.float64)
    present = torch.tensor([True, False, False])
    positives = Positives.of_captions(torch.tensor([0, 0]), 3, present)
    for o in EVERYTHING:
        if not o.needs_offline and not o.pairwise and o.name != "test-squares":
            loss, *gradients = _gradients(o, images, texts, positives)
            assert float(loss) == 0, str(o)
            assert all(not g.any() for g in gradients), str(o)


def test_siglip_counts_a_pair_that_is_alone() -> None:
    """Its formula is a sum over pairs: a positive is pulled though there is no negative."""
    images, texts = _embeddings(2, 2, torch.float64)
    o = objective("siglip").double()
    scale, bias = (x.detach() for x in o.affine() if x is not None)
    S = scale * (normalize(images, dim=1) * normalize(texts, dim=1)).sum(1) + bias
    apart = torch.tensor([[0, 1], [1, 0]])
    for block in (None, 2):
        alone = o(images[:1], texts[:1], block=block)
        torch.testing.assert_close(alone, -logsigmoid(S[0]))
        both = o(images, texts, ignore=apart, block=block)
        torch.testing.assert_close(both, -logsigmoid(S).mean())


@each_objective
def test_zero_vectors_and_equal_similarities_are_finite(o: Objective) -> None:
    images, texts = _embeddings(5, 5, torch.float32)
    images[2], texts[4] = 0, 0
    ours = _gradients(o, images, texts, None)
    assert all(x.isfinite().all() for x in ours)
    assert not ours[1][2].any()  # a vector without direction cannot be turned
    same = torch.ones(5, 3)
    assert all(x.isfinite().all() for x in _gradients(o, same, same.clone(), None))
    huge = _gradients(o, images * 1e18, texts * 1e-18, None)
    assert all(x.isfinite().all() for x in huge)
