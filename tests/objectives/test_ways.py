"""However a batch is worked, in one piece, in blocks or by whole rows, the result is the same."""

import dataclasses
from functools import cache

import pytest
import torch
from torch import Tensor
from torch.nn.functional import normalize

from simgrad.analysis import check
from simgrad.core.errors import InputError
from simgrad.objectives import NTXent, Objective, Offline, Positives, objective, objectives
from simgrad.objectives.family import Family
from simgrad.objectives.pairs import Pairs
from simgrad.objectives.siglip import SigLIP
from simgrad.objectives.smoothap import SmoothAP
from simgrad.objectives.triplet import Triplet, TripletSH

from .cases import everything, names

EVERYTHING = everything()
FAMILIES = [o for o in EVERYTHING if o.elementwise() is not None]
each_objective = pytest.mark.parametrize("o", EVERYTHING, ids=names(EVERYTHING))
each_family = pytest.mark.parametrize("o", FAMILIES, ids=names(FAMILIES))


@cache
def _batches() -> dict[str, tuple[int, int, Tensor | Positives | None, Tensor | None]]:
    """Images, captions, positives, and pairs to ignore."""
    index = torch.tensor([2, 0, 1, 1, 3, 0, 2, 2, 3, 4, 5, 6, 6])
    shared = torch.arange(7)[:, None] == index[None]
    shared[0, 3] = shared[5, 12] = True
    present = torch.tensor([True, True, False, True, True, False, True])
    some = torch.tensor([0, 1, 3, 4, 6, 6, 1, 3, 0])
    lone = torch.zeros(13, dtype=torch.long)
    lone[12] = 1
    orphans = index.clone()
    orphans[[1, 6, 12]] = -1
    few = torch.tensor([[0, 3], [0, 4], [6, 0], [2, 12], [2, 12]])
    many = (torch.rand(7, 13, generator=torch.Generator().manual_seed(9)) < 0.4) & ~shared
    many[3] = ~shared[3]  # nothing is left to push for this image
    return {
        "diagonal": (13, 13, None, None),
        "captions": (7, 13, index, None),
        "one of them alone": (2, 13, lone, None),
        "mask": (7, 13, shared, None),
        "absent images": (7, 9, Positives.of_captions(some, 7, present), None),
        "nobody's captions": (7, 13, orphans, None),
        "ignored, diagonal": (13, 13, None, few),
        "ignored, captions": (7, 13, index, few),
        "ignored, a mask": (7, 13, shared, many),
        "ignored and nobody's": (7, 13, orphans, few),
    }


BATCHES = list(_batches())
SMALLEST = ("captions", "one of them alone", "ignored and nobody's")  # also pair by pair: slow


def _count(positives: Tensor | Positives | None, captions: int) -> int:
    """Pairs of a batch."""
    if not isinstance(positives, Tensor):
        return captions
    return int(positives.sum() if positives.dtype == torch.bool else (positives >= 0).sum())


def _given(o: Objective, name: str) -> tuple[Tensor, Tensor, Offline | None]:
    images, texts, positives, _ = _batches()[name]
    generator = torch.Generator().manual_seed(2)
    x, y = (torch.randn(n, 6, generator=generator).double() for n in (images, texts))
    offline = None
    if o.needs_offline:
        four = torch.rand(4, _count(positives, texts), generator=generator).double()
        offline = Offline(*(f.requires_grad_() for f in four.unbind()))
    return x.requires_grad_(), y.requires_grad_(), offline


def _gradients(o: Objective, name: str, block: int | None = None) -> list[Tensor]:
    _, _, positives, ignore = _batches()[name]
    x, y, offline = _given(o, name)
    loss = o(x, y, positives, offline, ignore=ignore, block=block)
    inputs = [x, y, *(offline or ()), *(p for p in o.parameters() if p.requires_grad)]
    return [loss.detach(), *torch.autograd.grad(loss, inputs)]


def _through_similarities(o: Objective, name: str) -> list[Tensor]:
    """The same by autograd, from a whole matrix."""
    _, _, positives, ignore = _batches()[name]
    x, y, offline = _given(o, name)
    loss = o.on(normalize(x) @ normalize(y).T, positives, offline, ignore=ignore)
    inputs = [x, y, *(offline or ()), *(p for p in o.parameters() if p.requires_grad)]
    return [loss.detach(), *torch.autograd.grad(loss, inputs)]


@pytest.mark.parametrize("name", BATCHES)
@each_objective
def test_all_ways_agree(o: Objective, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = _through_similarities(o, name)
    assert all(part.isfinite().all() for part in whole)
    blocks = (None, 1, 30) if name in SMALLEST else (None, 30)  # uneven last blocks
    found = [_gradients(o, name, block) for block in blocks]
    monkeypatch.setattr(type(o), "elementwise", lambda self: None)
    found += [_gradients(o, name), _gradients(o, name, 30)]
    for other in found:
        for one, two in zip(whole, other, strict=True):
            torch.testing.assert_close(one, two, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", [name for name in BATCHES if "ignored" in name])
@each_objective
def test_what_is_ignored_gets_no_weight_and_gives_none(o: Objective, name: str) -> None:
    """Whatever its similarity, the result is the same, and nothing reaches it."""
    images, texts, positives, ignore = _batches()[name]
    assert ignore is not None
    place = ignore.nonzero() if ignore.dtype == torch.bool else ignore
    generator = torch.Generator().manual_seed(4)
    S = 2 * torch.rand(images, texts, generator=generator).double() - 1
    offline = None
    if o.needs_offline:
        offline = Offline(*torch.rand(4, _count(positives, texts), generator=generator).double())
    one = o.weigh(S, positives, offline, ignore=ignore)
    assert not one.i2t[place[:, 0], place[:, 1]].any()
    assert not one.t2i[place[:, 0], place[:, 1]].any()
    S[place[:, 0], place[:, 1]] = 0.97
    other = o.weigh(S, positives, offline, ignore=ignore)
    for a, b in zip(one[:3], other[:3], strict=True):
        torch.testing.assert_close(a, b)


def test_nobodys_captions_are_negatives_and_no_queries() -> None:
    """The loss of the others' batch, with these as further candidates of every image."""
    generator = torch.Generator().manual_seed(1)
    S = torch.rand(3, 5, generator=generator).double()
    index = torch.tensor([0, -1, 1, 2, -1])
    weights = objective("triplet-sh(margin=2)").weigh(S, index)
    assert not weights.t2i[:, [1, 4]].any()
    negatives = S.clone()
    negatives[[0, 1, 2], [0, 2, 3]] = -1
    hardest = negatives.argmax(1)
    assert torch.equal(weights.i2t.argmax(1), hardest)
    plain = objective("nt-xent").weigh(S, index)
    expected = torch.logsumexp(S / 0.1, 1) - S[[0, 1, 2], [0, 2, 3]] / 0.1
    t2i = torch.logsumexp(S[:, [0, 2, 3]] / 0.1, 0) - S[[0, 1, 2], [0, 2, 3]] / 0.1
    torch.testing.assert_close(plain.value, (expected.mean() + t2i.mean()) / 2)


def test_pairs_to_ignore_that_do_not_fit_are_refused() -> None:
    S, o = torch.rand(3, 3), objective("nt-xent")
    for ignore, words in (
        (torch.zeros(2, 3, dtype=torch.bool), r"\(2, 3\)"),
        (torch.zeros(4, 3), "shape"),
        (torch.tensor([[0, 3]]), "image 0 and caption 3"),
        (torch.tensor([[1, 1]]), "positive pair"),
        ([[0, 1]], "tensor"),
    ):
        with pytest.raises(InputError, match=words):
            o.weigh(S, ignore=ignore)  # type: ignore[arg-type]


def test_a_subclass_with_a_rule_of_its_own_is_asked_for_that() -> None:
    @dataclasses.dataclass(eq=False, repr=False)
    class Halved(NTXent):
        def rule(self, similarities, positives, pairs):  # type: ignore[no-untyped-def]
            values, weights, _ = super().rule(similarities, positives, pairs)
            return values / 2, weights / 2

    whole = _gradients(NTXent(), "diagonal", 30)
    half = _gradients(Halved(), "diagonal", 30)
    for one, two in zip(half, whole, strict=True):
        torch.testing.assert_close(2 * one, two)


def test_a_subclass_with_a_piece_of_its_own_is_the_same_in_every_way() -> None:
    @dataclasses.dataclass(eq=False, repr=False)
    class Halved(NTXent):
        def judge(self, totals, pairs):  # type: ignore[no-untyped-def]
            verdict = super().judge(totals, pairs)
            return verdict._replace(values=verdict.values / 2)

    for name in _batches():
        for block in (None, 30):
            half, whole = (_gradients(o, name, block)[0] for o in (Halved(), NTXent()))
            torch.testing.assert_close(2 * half, whole)


def test_a_push_of_ones_own_comes_before_the_term_that_was_named() -> None:
    """In every way: SmoothAP's weights on negatives are one of its terms, times a factor."""

    @dataclasses.dataclass(eq=False, repr=False)
    class Silent(SmoothAP):
        def push(self, s: Tensor, own: Tensor, factor: Tensor) -> Tensor:  # type: ignore[override]
            return torch.zeros_like(s)

    S = torch.rand(5, 5)
    negatives = ~torch.eye(5, dtype=torch.bool)
    assert SmoothAP().weigh(S).i2t[negatives].any()
    assert not Silent().weigh(S).i2t[negatives].any()
    whole, parts = (_gradients(Silent(), "diagonal", block) for block in (None, 30))
    for one, two in zip(whole, parts, strict=True):
        torch.testing.assert_close(one, two)
    assert not torch.allclose(whole[1], _gradients(SmoothAP(), "diagonal", None)[1])


def test_columns_that_are_seen_in_parts_keep_their_extremes() -> None:
    """A temperature of 1/100: exponentials of one block vanish beside another's."""
    x = torch.eye(6).repeat(2, 1).double() + 0.01
    y = x.flip(0).contiguous()
    o = NTXent(tau=0.01)
    for block in (12, 36):
        torch.testing.assert_close(o(x, y, block=block), o(x, y))
        assert o(x, y, block=block).isfinite()


@each_family
def test_what_is_no_negative_adds_nothing(o: Family) -> None:
    o.check_form()


def test_a_family_that_pushes_what_is_not_there_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    @dataclasses.dataclass(eq=False, repr=False)
    class Everywhere(NTXent):
        def push(self, s: Tensor, given: Tensor) -> Tensor:  # type: ignore[override]
            return torch.ones_like(s)

    with pytest.raises(InputError, match="push is 1"):
        Everywhere().check_form()
    found = check(Everywhere(), torch.randn(6, 4), torch.randn(6, 4))
    assert [f.name for f in found.findings if f.name == "form" and not f.ok] == ["form"]
    assert not found.ok
    monkeypatch.setattr(objectives, "_declared", dict(objectives._declared))
    objectives.declare("test-everywhere", paper="", description="wrong")(Everywhere)
    for _ in range(2):
        with pytest.raises(InputError, match=r"test-everywhere.*push is 1"):
            objective("test-everywhere")


def test_a_bias_gets_the_gradient_of_all_weights_or_the_family_is_refused() -> None:
    class Told(SigLIP):
        pass

    class Forgets(SigLIP):
        def judge(self, totals, pairs):  # type: ignore[no-untyped-def]
            return super().judge(totals, pairs)._replace(pushed=None)

    x, y = torch.randn(30, 8), torch.randn(30, 8)
    S = normalize(x, dim=1) @ normalize(y, dim=1).T
    told, whole = Told(), Told()
    told(x, y, block=90).backward()
    whole.on(S).backward()
    assert told.bias.grad is not None
    torch.testing.assert_close(told.bias.grad, whole.bias.grad)
    assert float(told.bias.grad) != 0
    with pytest.raises(InputError, match="pushed"):
        Forgets()(x, y, block=90)


def test_a_family_that_weighs_what_is_not_there_is_refused() -> None:
    class Wrong(NTXent):
        totals = ("sum",)

        def terms(self, s: Tensor) -> tuple[Tensor, ...]:  # type: ignore[override]
            return (s + 1,)

    with pytest.raises(InputError, match="-inf"):
        Wrong().check_form()
    with pytest.raises(InputError, match="product"):

        class Worse(NTXent):
            totals = ("product",)


def test_a_push_may_be_a_condition_and_a_matrix_may_lie_either_way() -> None:
    class Condition(Triplet):
        def push(self, s: Tensor, *given: Tensor) -> Tensor:  # type: ignore[override]
            return super().push(s, *given) > 0

    S = torch.rand(4, 4, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(Condition().weigh(S).i2t, Triplet().weigh(S).i2t)
    every = torch.arange(4)
    pairs = Pairs(every, every, S.diagonal(), 4, True, S.diagonal())
    found = [
        TripletSH().rule(matrix, torch.eye(4, dtype=torch.bool), pairs)[1]
        for matrix in (S.clone(), S.t().contiguous().t())
    ]
    torch.testing.assert_close(*found)
