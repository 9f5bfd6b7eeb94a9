"""Both directions from one product give what one direction at a time gives, and one piece."""

import dataclasses

import pytest
import torch
from torch import Tensor

from simgrad.objectives import NTXent, Objective, Offline, Positives, Sparse, objective, tensors
from simgrad.objectives import embeddings as way

from .cases import everything, names

STREAMED = [o for o in everything() if o.stream() is not None]
each_objective = pytest.mark.parametrize("o", STREAMED, ids=names(STREAMED))


def _batches() -> dict[str, tuple[int, int, Tensor | Positives | None]]:
    index = torch.tensor([2, 0, 1, 1, 3, 0, 2, 2, 3, 4, 5, 6, 6])
    shared = torch.arange(7)[:, None] == index[None]
    shared[0, 3] = shared[5, 12] = True
    present = torch.tensor([True, True, False, True, True, False, True])
    some = torch.tensor([0, 1, 3, 4, 6, 6, 1, 3, 0])
    lone = torch.zeros(13, dtype=torch.long)
    lone[12] = 1
    return {
        "diagonal": (13, 13, None),
        "captions": (7, 13, index),
        "one of them alone": (2, 13, lone),
        "mask": (7, 13, shared),
        "absent images": (7, 9, Positives.of_captions(some, 7, present)),
    }


def _gradients(o: Objective, name: str, block: int | None = None) -> list[Tensor]:
    images, texts, positives = _batches()[name]
    generator = torch.Generator().manual_seed(2)
    x, y = (torch.randn(n, 6, generator=generator).double() for n in (images, texts))
    offline = None
    if o.needs_offline:
        pairs = int(positives.sum()) if name == "mask" else texts  # type: ignore[union-attr]
        four = torch.rand(4, pairs, generator=generator).double()
        offline = Offline(*(f.requires_grad_() for f in four.unbind()))
    inputs = [x.requires_grad_(), y.requires_grad_(), *(offline or ())]
    inputs += [p for p in o.parameters() if p.requires_grad]
    loss = o(x, y, positives, offline, block)
    return [loss.detach(), *torch.autograd.grad(loss, inputs)]


def _ways(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Which way each call takes."""
    taken: list[str] = []
    for module, name in (
        (way.both, "weigh_in_one"),
        (way.both, "weigh_in_blocks"),
        (way.rows, "in_one_piece"),
        (way.rows, "in_blocks"),
    ):
        real = getattr(module, name)

        def spy(*arguments, name=name, real=real):  # type: ignore[no-untyped-def]
            taken.append(name)
            return real(*arguments)

        monkeypatch.setattr(module, name, spy)
    return taken


@pytest.mark.parametrize("name", list(_batches()))
@each_objective
def test_all_ways_agree(o: Objective, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    taken = _ways(monkeypatch)
    direct = _gradients(o, name)
    blocked = [_gradients(o, name, block) for block in (13, 30, 57)]  # one row; uneven last blocks
    square = name == "diagonal"
    several = not square and o.per_pair  # a row for every pair: worked row by row
    in_blocks = "in_blocks" if several else "weigh_in_blocks"
    assert taken == ["weigh_in_one" if square else "in_one_piece", *[in_blocks] * 3]
    monkeypatch.setattr(type(o), "stream", lambda self: None)
    taken.clear()
    by_rows = [_gradients(o, name), _gradients(o, name, 30)]
    assert taken == ["in_one_piece", "in_blocks"]
    for other in (*blocked, *by_rows):
        for one, two in zip(direct, other, strict=True):
            torch.testing.assert_close(one, two, rtol=1e-9, atol=1e-9)


def test_a_block_of_similarities_is_made_once_for_both_directions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Once where weights need no summary, twice where they do; never the whole matrix."""
    products = {"triplet": 1, "siglip": 1, "nt-xent": 2, "smooth-ap": 2, "goal": 1, "off-quin": 1}
    for name, times in products.items():
        o, made = objective(name), []
        real = way.Work.similarities

        def spy(self, x, y, made=made, real=real):  # type: ignore[no-untyped-def]
            made.append(len(x) * len(y))
            return real(self, x, y)

        monkeypatch.setattr(way.Work, "similarities", spy)
        _gradients(o, "diagonal", 30)
        monkeypatch.undo()
        assert max(made) <= 30
        assert sum(made) == times * 13 * 13, name


def test_a_subclass_with_a_rule_of_its_own_is_not_streamed() -> None:
    @dataclasses.dataclass(eq=False, repr=False)
    class Halved(NTXent):
        def rule(self, similarities, positives, batch):  # type: ignore[no-untyped-def]
            values, weights = super().rule(similarities, positives, batch)
            assert not isinstance(weights, Sparse)
            return values / 2, weights / 2

    whole = _gradients(NTXent(), "diagonal", 30)
    half = _gradients(Halved(), "diagonal", 30)
    for one, two in zip(half, whole, strict=True):
        torch.testing.assert_close(2 * one, two)


def test_a_subclass_with_a_piece_of_its_own_is_the_same_in_one_piece() -> None:
    @dataclasses.dataclass(eq=False, repr=False)
    class Halved(NTXent):
        def judge(self, summary, batch):  # type: ignore[no-untyped-def]
            verdict = super().judge(summary, batch)
            return verdict._replace(values=verdict.values / 2)

    for name in _batches():
        for block in (None, 30):
            half, whole = (_gradients(o, name, block)[0] for o in (Halved(), NTXent()))
            torch.testing.assert_close(2 * half, whole)


def test_columns_that_are_seen_in_parts_keep_their_extremes() -> None:
    """A temperature of 1/100: exponentials of one block vanish beside another's."""
    x = torch.eye(6).repeat(2, 1).double() + 0.01
    y = x.flip(0).contiguous()
    o = NTXent(tau=0.01)
    for block in (12, 36):
        torch.testing.assert_close(o(x, y, block=block), o(x, y))
        assert o(x, y, block=block).isfinite()


def test_products_of_rows_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = (torch.randn(13, 6, dtype=torch.float64) for _ in range(2))
    expected = torch.stack([x @ y for x, y in zip(a, b, strict=True)])[:, None]
    for near in (1, 20, 78, 1000):  # a row, three, all but fit, all
        monkeypatch.setattr(tensors, "_NEAR", near)
        assert torch.allclose(tensors.dots(a, b), expected, rtol=1e-14, atol=1e-14)
