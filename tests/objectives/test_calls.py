"""The calls people know: keywords, one direction, values of each query, labels, graded pairs.

References are loops over queries and pairs, or PyTorch's own losses; then every way of working
(whole matrix, blocks, whole rows, kernels, several processes) must agree.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, normalize

import simgrad
from simgrad.core.errors import InputError
from simgrad.integrations import MetricLearningLoss
from simgrad.objectives import Objective, Offline, Positives, objective, setting
from simgrad.objectives.across_processes import Distributed
from simgrad.objectives.engine import fused
from simgrad.objectives.engine.ring import Processes, Transport

from . import reference
from .cases import everything, names
from .processes import Workers
from .shares import Shares, close, compared
from .test_ways import _batches, _given

EVERYTHING = everything()
each_objective = pytest.mark.parametrize("o", EVERYTHING, ids=names(EVERYTHING))
GRADED = ["nt-xent", "triplet(margin=0.9)", "triplet-sh(margin=0.9)", "focused-deviance(focus=0.1)"]
GRADED += ["goal(triplet=cir, pair=sig-ms)", "goal(triplet=nca, pair=con)"]
BATCHES = ["diagonal", "captions", "mask", "nobody's captions", "ignored, a mask"]


def vectors(*counts: int, seed: int = 0) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(n, 6, generator=generator).double().requires_grad_() for n in counts]


def agree(one: list[Tensor], other: list[Tensor], tolerance: float = 1e-9) -> None:
    for a, b in zip(one, other, strict=True):
        torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)


# -- keywords


def test_keywords_are_those_of_the_spec() -> None:
    for text, keywords in (
        ("nt-xent(tau=0.05)", {"tau": 0.05}),
        ("nt-xent(learned=true)", {"learned": True}),
        (
            "goal(triplet=con, pair=lin, lambda=0.3)",
            {"lambda_": 0.3, "triplet": "con", "pair": "lin"},
        ),
        ("triplet(margin=1, direction=t2i)", {"margin": 1, "direction": "t2i"}),
    ):
        made: dict[str, Any] = keywords
        name = text.partition("(")[0]
        assert str(simgrad.objective(name, **made)) == str(simgrad.objective(text))
    assert simgrad.objective("nt-xent", tau=1 / 3).tau == 1 / 3  # type: ignore[attr-defined]  # no text between
    assert simgrad.objective("nt-xent(tau=0.2)", learned=True).tau == 0.2  # type: ignore[attr-defined]
    assert simgrad.objective("binomial-deviance", margin=0.4).margin == 0.4  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("keywords", "words"),
    [
        ({"tua": 0.1}, "no parameter 'tua'.*Did you mean 'tau'"),
        ({"tau": -1}, "must be greater than 0"),
        ({"tau": float("nan")}, "takes a number"),
        ({"tau": True}, "takes a number"),
        ({"tau": "x"}, "takes a number"),
        ({"tau": None}, "takes a number"),
        ({"learned": 1}, "takes true or false"),
        ({"reduction": "avg"}, "reduction is mean, sum or none"),
        ({"direction": "a2b"}, "is one of both, i2t, t2i"),
        ({"temperature": 0.1}, r"it has: tau, learned\). 'tau': temperature of the softmax\.$"),
        ({"logit_scale": 10}, r"1 / logit_scale is 'tau': temperature of the softmax\.$"),
        ({"m": 10}, r"it has: tau, learned\)\.$"),
    ],
)
def test_keywords_that_do_not_fit_are_refused(keywords: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        simgrad.objective("nt-xent", **keywords)


@pytest.mark.parametrize(
    ("spec", "name", "words"),
    [
        ("nt-xent", "temperature", "'tau': temperature of the softmax"),
        ("triplet", "m", "'margin': how much closer"),
        ("triplet", "margins", "Did you mean 'margin'"),
        ("siglip", "logit_bias", r"set\. 'offset': added to them \(start value if learned\)\.$"),
        ("nt-xent", "reductions", "Did you mean 'reduction'"),
    ],
)
def test_an_attribute_that_nobody_reads_is_refused(spec: str, name: str, words: str) -> None:
    o = objective(spec)
    with pytest.raises(InputError, match=words):
        setattr(o, name, 0.1)
    assert not hasattr(o, name)


def test_other_attributes_are_yours() -> None:
    o = objective("nt-xent")
    o.seen, o._temperature, o.training = 3, 2, False  # type: ignore[assignment]
    assert o.seen == 3


def test_a_class_that_is_not_declared_takes_other_attributes_too() -> None:
    @dataclass(eq=False, repr=False)
    class Mine(Objective):
        name = "undeclared"
        tau: float = setting(0.1, "temperature of mine")

    mine = Mine()
    mine.seen = 3  # type: ignore[assignment]
    assert mine.seen == 3


def test_a_class_of_your_own_keeps_what_it_likes() -> None:
    @dataclass(eq=False, repr=False)
    class Mine(Objective):
        tau: float = setting(0.1, "temperature of mine")

        def __post_init__(self) -> None:
            super().__post_init__()
            self.temperature = 2 * self.tau

    assert Mine(0.2).temperature == 0.4


def test_what_is_given_twice_or_too_late_is_refused() -> None:
    with pytest.raises(InputError, match="'tau' is given twice"):
        simgrad.objective("nt-xent(tau=0.1)", tau=0.2)
    with pytest.raises(InputError, match="made already"):
        simgrad.objective(objective("nt-xent"), tau=0.2)
    with pytest.raises(InputError, match="direction is one of"):
        objective("nt-xent").direction = "up"  # type: ignore[assignment]


# -- one direction


@each_objective
def test_one_direction_alone(o: Objective) -> None:
    """Its weights are those of the direction, of a mean all of it; in every way of working."""
    x, y, offline = _given(o, "captions")
    positives = _batches()["captions"][2]
    S = (normalize(x) @ normalize(y).T).detach()
    both, whole = o.weigh(S, positives, offline), 2.0 if o.mean else 1.0
    total = torch.zeros(())
    try:
        for direction in ("i2t", "t2i"):
            o.direction = direction  # type: ignore[assignment]
            one = o.weigh(S, positives, offline)
            torch.testing.assert_close(getattr(one, direction), whole * getattr(both, direction))
            assert not getattr(one, {"i2t": "t2i", "t2i": "i2t"}[direction]).any()
            total = total + one.value / whole
            inputs = [x, y, *(offline or ())]
            loss = o.on(normalize(x) @ normalize(y).T, positives, offline)
            expected = [loss.detach(), *torch.autograd.grad(loss, inputs)]
            for block in (None, 30):
                loss = o(x, y, positives, offline, block=block)
                agree([loss.detach(), *torch.autograd.grad(loss, inputs)], expected)
    finally:
        o.direction = "both"
    torch.testing.assert_close(total, both.value)


def test_one_direction_of_a_softmax_is_cross_entropy() -> None:
    x, y = vectors(7, 7)
    S, rows = normalize(x) @ normalize(y).T / 0.05, torch.arange(7)
    loss = simgrad.objective("nt-xent", tau=0.05, direction="i2t")(x, y)
    torch.testing.assert_close(loss, cross_entropy(S, rows))
    loss = simgrad.objective("nt-xent", tau=0.05, direction="t2i")(x, y)
    torch.testing.assert_close(loss, cross_entropy(S.T, rows))


def test_reduction_is_a_sum_or_a_mean() -> None:
    x, y = vectors(7, 7)
    mean, total = (simgrad.objective("triplet", reduction=r)(x, y) for r in ("mean", "sum"))  # type: ignore[call-overload]
    torch.testing.assert_close(total, simgrad.objective("triplet")(x, y))
    torch.testing.assert_close(mean, total / 14)
    assert (str(mean_of := simgrad.objective("triplet", reduction="mean")), mean_of.mean) == (
        "triplet(reduction=mean)",
        True,
    )
    assert simgrad.objective(str(mean_of)).mean
    assert str(simgrad.objective("triplet", reduction="sum")) == "triplet"  # as published
    changed = simgrad.objective("nt-xent", tau=0.2, direction="i2t")
    changed.reduction = "sum"
    assert repr(changed) == "nt-xent(tau=0.2, direction=i2t, reduction=sum)"
    changed.reduction = "published"
    assert changed.mean
    with pytest.raises(InputError, match="one of published, mean, sum"):
        changed.reduction = "none"


def test_values_of_one_direction_are_those_of_cross_entropy() -> None:
    x, y = vectors(6, 6)
    S, rows = normalize(x) @ normalize(y).T / 0.05, torch.arange(6)
    for direction, T in (("i2t", S), ("t2i", S.T)):
        each = simgrad.objective("nt-xent", tau=0.05, reduction="none", direction=direction)  # type: ignore[call-overload]
        found, wanted = each(x, y), cross_entropy(T, rows, reduction="none")
        torch.testing.assert_close(found, wanted)
        weight = torch.rand(6).double()
        ours, theirs = (
            torch.autograd.grad(weight @ z, x, retain_graph=True) for z in (found, wanted)
        )
        torch.testing.assert_close(ours, theirs)


# -- the value of each query


@pytest.mark.parametrize("name", BATCHES)
@each_objective
def test_values_of_each_query(o: Objective, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Weighted as one likes: the gradient is that of the weights of `weigh`, row by row."""
    _, _, positives, ignore = _batches()[name]
    x, y, offline = _given(o, name)
    generator = torch.Generator().manual_seed(3)
    S = (normalize(x) @ normalize(y).T).detach().requires_grad_()
    a, b = (torch.rand(n, generator=generator).double() for n in S.shape)
    pairs = Positives.read(positives, *S.shape, S.device, True, ignore)
    with torch.no_grad():
        o.mean, before = False, o.mean
        try:
            W = o.weigh(S, positives, offline, ignore=ignore)
        finally:
            o.mean = before
    on_S = W.i2t * a[:, None] + W.t2i * b[None]
    expected = torch.autograd.grad(normalize(x) @ normalize(y).T, [x, y], on_S)

    def found(block: int | None) -> list[Tensor]:
        values = o.each(x, y, positives, offline, ignore=ignore, block=block)
        loss = (a * values.i2t).sum() + (b * values.t2i).sum()
        if o.mean:  # the loss itself
            shares = [
                v.sum() * s.share for v, s in zip(values, (pairs.i2t, pairs.t2i), strict=True)
            ]
            whole = sum(shares, torch.zeros(()))
        else:
            whole = values.i2t.sum() + values.t2i.sum()
        torch.testing.assert_close(whole, o(x, y, positives, offline, ignore=ignore))
        return list(torch.autograd.grad(loss, [x, y]))

    for block in (None, 30):
        agree(found(block), list(expected))
    monkeypatch.setattr(type(o), "elementwise", lambda self: None)
    for block in (None, 30):
        agree(found(block), list(expected))


@pytest.mark.parametrize("spec", ["nt-xent(learned=true)", "siglip", "adap-off-quin", "smooth-ap"])
def test_values_of_each_query_and_all_that_is_learned(spec: str) -> None:
    """Autograd of the weighted sum, by finite differences: vectors, scales, what was drawn."""
    o = objective(spec).double()
    x, y = vectors(4, 6)
    index = torch.tensor([0, 1, 2, 3, 1, 2])
    drawn = [torch.rand(6).double().requires_grad_() for _ in range(4)] if o.needs_offline else []
    learned = [p for p in o.parameters() if p.requires_grad]
    a, b = torch.rand(4).double(), torch.rand(6).double()

    def loss(x: Tensor, y: Tensor, *rest: Tensor) -> Tensor:
        values = o.each(x, y, index, Offline(*rest[:4]) if drawn else None)
        return (a * values.i2t).sum() + (b * values.t2i.square()).sum()

    assert torch.autograd.gradcheck(loss, (x, y, *drawn))
    if learned:
        found = torch.autograd.grad(loss(x, y), learned)
        for p, g in zip(learned, found, strict=True):
            with torch.no_grad():
                p.add_(1e-6)
                more = loss(x, y)
                p.sub_(2e-6)
                less = loss(x, y)
                p.add_(1e-6)
            torch.testing.assert_close(((more - less) / 2e-6).reshape(1), g, rtol=1e-5, atol=1e-7)


def test_values_of_each_query_against_a_loop() -> None:
    """The slow reference, one query alone."""
    x, y = vectors(5, 5)
    S = (normalize(x) @ normalize(y).T).detach().numpy()
    for spec, slow in (("nt-xent", reference.nt_xent), ("triplet", reference.triplet)):
        o = objective(spec)
        values = o.each(x, y)
        for M, found in ((S, values.i2t), (S.T, values.t2i)):
            for q in range(5):
                P: list[list[int]] = [[k] for k in range(5)]
                others = [slow(o, np.delete(M, q, 0), P[:q] + P[q + 1 :])[0], slow(o, M, P)[0]]
                assert found[q].item() == pytest.approx(others[1] - others[0])


def test_values_of_each_query_where_they_have_no_meaning() -> None:
    whole = objective("nt-xent")
    whole.separable = False  # type: ignore[misc]
    with pytest.raises(InputError, match="no values of their own"):
        whole.each(*vectors(3, 3))
    x, y = vectors(3, 3)
    with pytest.raises(InputError, match="second derivatives"):
        torch.autograd.grad(objective("nt-xent").each(x, y).i2t.sum(), x, create_graph=True)
    with pytest.raises(InputError, match=r"torch\.func"):
        torch.func.grad(lambda x: objective("nt-xent").each(x, y).i2t.sum())(x)


# -- labels within one batch


@pytest.mark.parametrize(
    "spec", ["nt-xent", "triplet(margin=0.5)", "triplet-sh", "smooth-ap(tau=0.1)"]
)
def test_labels_of_one_batch(spec: str) -> None:
    (x,) = vectors(9)
    labels, o = torch.tensor([4, 7, 4, 4, 1, 7, 9, 1, 7]), objective(spec)  # 9 stands alone
    slow = {"nt-xent": reference.nt_xent, "triplet": reference.triplet}
    slow |= {"triplet-sh": reference.triplet_sh, "smooth-ap": reference.smooth_ap}
    S = (normalize(x) @ normalize(x).T).detach().numpy()
    value, count = 0.0, 0
    for q in range(9):
        others = [k for k in range(9) if k != q]
        P = [i for i, k in enumerate(others) if labels[k] == labels[q]]
        if P:
            value, count = value + slow[o.name](o, S[q : q + 1, others], [P])[0], count + 1
    loss = o.within(x, labels)
    assert loss.item() == pytest.approx(value / count if o.mean else value)
    for direction in ("i2t", "t2i"):
        one = simgrad.objective(spec, direction=direction)  # type: ignore[call-overload]
        torch.testing.assert_close(one.within(x, labels), loss)
    (gradient,) = torch.autograd.grad(loss, x)
    (blocks,) = torch.autograd.grad(o.within(x, labels, block=20), x)
    torch.testing.assert_close(blocks, gradient)
    if o.name in ("nt-xent", "smooth-ap"):
        assert torch.autograd.gradcheck(lambda x: o.within(x, labels), x)


def test_labels_of_one_batch_are_those_of_metric_learning() -> None:
    losses = pytest.importorskip("pytorch_metric_learning.losses")
    (x,), labels = vectors(9), torch.tensor([4, 7, 4, 4, 1, 7, 9, 1, 7])
    theirs = losses.SupConLoss(temperature=0.1)(x, labels)
    torch.testing.assert_close(objective("nt-xent").within(x, labels), theirs)
    views = torch.arange(4).repeat(2)
    theirs = losses.NTXentLoss(temperature=0.1)(x[:8], views)
    torch.testing.assert_close(objective("nt-xent").within(x[:8], views), theirs)


def test_labels_that_do_not_fit_are_refused() -> None:
    (x,) = vectors(3)
    for labels, words in ((torch.arange(2), r"\(3,\)"), (torch.rand(3), "scores"), ([0], "list")):
        with pytest.raises(InputError, match=words):
            objective("nt-xent").within(x, labels)  # type: ignore[arg-type]
    for labels in (torch.tensor([0, 1, 1]), torch.tensor([7, 7, 5])):  # of classes, in two batches
        with pytest.raises(InputError, match=r"`positives` gives each caption's image.*`\.within"):
            objective("nt-xent")(x, x, labels)


@pytest.mark.parametrize("spec", ["nt-xent", "triplet-sh", "goal(triplet=cir, pair=sig-ms)"])
def test_a_batch_without_equal_labels_teaches_nothing_and_says_so(spec: str) -> None:
    """As the last rows of an epoch may be; the training goes on."""
    (x,) = vectors(3)
    x.requires_grad_()
    with pytest.warns(UserWarning, match="labels: no two of the 3 rows have an equal one"):
        loss = objective(spec).within(x, torch.arange(3))
    loss.backward()
    assert loss == 0
    assert x.grad is not None
    assert x.grad.abs().max() == 0


# -- graded pairs


def _weights(name: str) -> Tensor:
    images, texts, _, _ = _batches()[name]
    generator = torch.Generator().manual_seed(8)
    matrix = 2 * torch.rand(images, texts, generator=generator).double()
    matrix[0] = 0  # an image that counts for nothing
    return matrix


@pytest.mark.parametrize("name", BATCHES)
@pytest.mark.parametrize("spec", GRADED)
def test_graded_pairs_in_every_way(spec: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    o, (_, _, positives, ignore), weights = objective(spec), _batches()[name], _weights(name)
    x, y, _ = _given(o, name)

    def result(loss: Tensor) -> list[Tensor]:
        return [loss.detach(), *torch.autograd.grad(loss, [x, y])]

    def call(block: int | None = None) -> list[Tensor]:
        return result(o(x, y, positives, ignore=ignore, weights=weights, block=block))

    S = normalize(x) @ normalize(y).T
    whole = result(o.on(S, positives, ignore=ignore, weights=weights))
    plain = result(o(x, y, positives, ignore=ignore))
    assert not torch.allclose(whole[0], plain[0])
    agree(result(o(x, y, positives, ignore=ignore, weights=torch.ones_like(weights))), plain)
    twice = result(o(x, y, positives, ignore=ignore, weights=2 * weights))
    agree(twice, [2 * part for part in whole])  # linear
    agree(call(), whole)
    agree(call(30), whole)
    monkeypatch.setattr(type(o), "elementwise", lambda self: None)
    agree(call(), whole)
    agree(call(30), whole)


@pytest.mark.parametrize("spec", ["nt-xent", "triplet(margin=0.9)", "triplet-sh(margin=0.9)"])
def test_graded_pairs_against_a_loop(spec: str) -> None:
    """A pair of weight w counts w times: one direction, from the equation, pair by pair."""
    o = objective(spec)
    _, _, mask, _ = _batches()["mask"]
    assert isinstance(mask, Tensor)
    weights, (x, y, _) = _weights("mask"), _given(o, "mask")
    S, expected = (normalize(x) @ normalize(y).T).detach(), 0.0
    for M, P, G in ((S, mask, weights), (S.T, mask.T, weights.T)):
        total = 0.0
        for q in range(len(M)):
            negatives = [float(s) for s, p in zip(M[q], P[q], strict=True) if not p]
            own = [(float(M[q, p]), float(G[q, p])) for p in P[q].nonzero()[:, 0]]
            for s, w in own:
                if o.name == "nt-xent":
                    total += w * float(torch.logsumexp(M[q] / 0.1, 0) - s / 0.1) / len(own)
                else:
                    costs = [max(0.0, o.margin + n - s) for n in negatives]  # type: ignore[attr-defined]
                    total += w * (max(costs) if o.name == "triplet-sh" else sum(costs))
        expected += total / (2 * len(M)) if o.mean else total
    assert o(x, y, mask, weights=weights).item() == pytest.approx(expected)
    if o.name == "nt-xent":
        assert torch.autograd.gradcheck(lambda x, y: o(x, y, mask, weights=weights), (x, y))


def test_graded_pairs_are_soft_labels() -> None:
    """All pairs positive, weights that add up to the number of candidates: a soft cross-entropy."""
    x, y = vectors(5, 5)
    target = torch.rand(5, 5).double().softmax(1)
    o = simgrad.objective("nt-xent", tau=0.2, direction="i2t")
    negatives = torch.zeros(5, 5, dtype=torch.bool)
    # A query without a negative contributes nothing, so there is one that is nobody's.
    far = torch.full((1, 6), 1.0).double()
    mask = torch.cat([~negatives, torch.zeros(5, 1, dtype=torch.bool)], 1)
    z = torch.cat([y, far])
    weights = torch.cat([5 * target, torch.zeros(5, 1).double()], 1)
    S = normalize(x) @ normalize(z).T / 0.2
    soft = torch.cat([target, torch.zeros(5, 1).double()], 1)
    found = o(x, z, Positives.of_mask(mask), weights=weights)
    torch.testing.assert_close(found, cross_entropy(S, soft))
    theirs = torch.autograd.grad(cross_entropy(S, soft), [x, y])
    agree(list(torch.autograd.grad(found, [x, y])), list(theirs))


def test_graded_pairs_one_for_each_caption() -> None:
    x, y = vectors(3, 5)
    index, w = torch.tensor([0, 1, 2, 0, -1]), torch.rand(5).double()
    matrix = torch.zeros(3, 5).double() + w[None]
    o = objective("nt-xent")
    torch.testing.assert_close(o(x, y, index, weights=w), o(x, y, index, weights=matrix))
    each = o.each(x, y, index, weights=w)
    plain = o.each(x, y, index)
    torch.testing.assert_close(each.t2i, w.masked_fill(index < 0, 0) * plain.t2i)


@pytest.mark.parametrize("spec", ["siglip", "smooth-ap", "debiased-nt-xent", "off-tri"])
def test_graded_pairs_are_refused_where_they_mean_nothing(spec: str) -> None:
    (x, y), o = vectors(3, 3), objective(spec)
    offline = Offline(*torch.rand(4, 3).double()) if o.needs_offline else None
    for call in (lambda: o(x, y, offline=offline, weights=torch.ones(3)),
                 lambda: o.on(x @ y.T, offline=offline, weights=torch.ones(3))):  # fmt: skip
        with pytest.raises(InputError, match=f"{spec}.*no meaning"):
            call()


@pytest.mark.parametrize(
    ("weights", "words"),
    [
        (torch.ones(4), r"shape \(4,\)"),
        (torch.ones(3, dtype=torch.long), "floating-point"),
        ([1.0, 1.0, 1.0], "floating-point"),
        (torch.tensor([1.0, -1.0, 1.0]), "image 1 and caption 1 is -1.0"),
        (torch.tensor([1.0, 1.0, torch.inf]), "image 2 and caption 2 is inf"),
        (torch.ones(3, requires_grad=True), "not learned"),
    ],
)
def test_weights_that_do_not_fit_are_refused(weights: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        objective("nt-xent")(*vectors(3, 3), weights=weights)


# -- kernels, compiled programs, processes


@pytest.mark.parametrize("spec", ["nt-xent", "siglip", "goal(triplet=nca, pair=lin-ms)", "triplet"])
def test_kernels_have_all_of_it(spec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("triton")
    import os

    if os.environ.get("TRITON_INTERPRET") != "1":
        pytest.skip("kernels are compiled here, not interpreted (tests/conftest.py)")
    generator = torch.Generator().manual_seed(0)
    x, y = (torch.randn(37, 20, generator=generator).requires_grad_() for _ in range(2))
    w, o = torch.rand(37, generator=generator), objective(spec)

    def result() -> list[Tensor]:
        values = o.each(x, y)
        found = [v.detach() for v in values]
        found += torch.autograd.grad((w * values.i2t).sum() + values.t2i.square().sum(), [x, y])
        if o.graded:
            found += torch.autograd.grad(o(x, y, weights=w), [x, y])
        o.direction = "t2i"
        found += torch.autograd.grad(o(x, y), [x, y])
        o.direction = "both"
        return found

    calls: list[int] = []
    real = fused.FusedTiles.first
    with monkeypatch.context() as patch:
        patch.setattr(fused, "INTERPRETED", True)
        patch.setattr(fused.FusedTiles, "first", lambda *given: [calls.append(0), real(*given)][1])
        kernels = result()
    assert len(calls) >= 3
    for one, other in zip(kernels, result(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=2e-5)


def _on_processes(transport: Transport | None = None) -> None:
    transport = transport or Processes()
    world, rank = transport.size, transport.rank
    kind = torch.float64
    for orphans, ignores in ((False, False), (True, True)):
        shares = Shares(world, kind, orphans, ignores)
        positives, ignored = shares.whole()
        (image, caption), generator = shares.first(rank), torch.Generator().manual_seed(4)
        mine = (
            slice(image, image + shares.images[rank]),
            slice(caption, caption + shares.captions[rank]),
        )
        a, b = (torch.rand(len(v), generator=generator).double() for v in (shares.x, shares.y))
        for o in compared(kind):
            x, y = (v.clone().requires_grad_() for v in (shares.x, shares.y))
            ignore = ignored if ignores else None
            own_ignore = shares.ignored[rank] if ignores else None
            values = o.each(x, y, positives, shares.offline(o, None), ignore=ignore)
            total = (a * values.i2t).sum() + (b * values.t2i).sum()
            expected = torch.autograd.grad(total, [x, y])
            u, v = (
                t.detach()[m].clone().requires_grad_() for t, m in zip((x, y), mine, strict=True)
            )
            spread = Distributed(o, transport=transport)
            drawn = shares.offline(o, rank)
            got = spread.each(u, v, shares.positives[rank], drawn, ignore=own_ignore)
            where = f"{o} {world}"
            close(got.i2t, values.i2t[mine[0]], 1e-10, where)
            close(got.t2i, values.t2i[mine[1]], 1e-10, where)
            local = (a[mine[0]] * got.i2t).sum() + (b[mine[1]] * got.t2i).sum()
            for g, e, m in zip(torch.autograd.grad(local, [u, v]), expected, mine, strict=True):
                close(g, e[m], 1e-10, where)
            o.direction = "i2t"
            calls = [{"weights": b}] if o.graded else []
            for more in ({}, *calls):
                loss = o(x, y, positives, shares.offline(o, None), ignore=ignore, **more)
                expected = torch.autograd.grad(loss, [x, y])
                own = {key: w[mine[1]] for key, w in more.items()}
                spread = Distributed(o, transport=transport, check=True)
                found = spread(u, v, shares.positives[rank], drawn, ignore=own_ignore, **own)
                close(found, loss, 1e-10, where)
                for g, e, m in zip(torch.autograd.grad(found, [u, v]), expected, mine, strict=True):
                    close(g, world * e[m], 1e-10, where)
            o.direction = "both"


def _labels_on_processes() -> None:
    """One batch among itself that lies on several processes: as one process has it."""
    transport, labels = Processes(), torch.tensor([4, 7, 4, 4, 1, 7, 9, 1, 7])
    (every,) = vectors(9)
    mine = slice(2 * transport.rank, 2 * transport.rank + 2)
    if transport.rank + 1 == transport.size:
        mine = slice(2 * transport.rank, 9)
    for spec in ("nt-xent", "triplet(margin=0.5)"):
        whole = MetricLearningLoss(spec)(every, labels)
        (expected,) = torch.autograd.grad(whole, every)
        own = every.detach()[mine].clone().requires_grad_()
        found = MetricLearningLoss(spec, gather_across_devices=True)(own, labels[mine])
        close(found, whole, 1e-10, spec)
        (gradient,) = torch.autograd.grad(found, own)
        close(gradient, transport.size * expected[mine], 1e-10, spec)


def test_on_one_process() -> None:
    x, y = vectors(5, 5)
    each = simgrad.objective("nt-xent", reduction="none")
    spread = simgrad.distributed("nt-xent").each(x, y)
    agree(list(each(x, y)), list(spread))


@pytest.mark.long
@pytest.mark.parametrize("world", [2, 3, 4])
def test_on_several_processes(world: int) -> None:
    workers = Workers(world)
    try:
        workers.run(_on_processes)
        workers.run(_labels_on_processes)
    finally:
        workers.stop()


@pytest.mark.long
def test_compiled_programs_have_it() -> None:
    o = simgrad.objective("nt-xent", direction="t2i")
    x, y = vectors(5, 5)
    w = torch.rand(5).double()
    program = torch.compile(lambda x, y: o(x, y, weights=w), fullgraph=True, backend="aot_eager")
    plain, compiled = o(x, y, weights=w), program(x, y)
    torch.testing.assert_close(compiled, plain)
    agree(list(torch.autograd.grad(compiled, [x, y])), list(torch.autograd.grad(plain, [x, y])))
