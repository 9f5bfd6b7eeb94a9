"""What the frame gives every objective: gradients from above, precision, symmetries, checks."""

import copy

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from simgrad.objectives import Objective, Offline, Triplet, declare, objective, objectives

from .cases import cases, everything, names

EVERYTHING = everything()
each_objective = pytest.mark.parametrize("o", EVERYTHING, ids=names(EVERYTHING))
CASES = {c.name: c for c in cases()}


def _embeddings(dtype: torch.dtype = torch.float32, count: int = 8) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(count, 5, generator=generator).to(dtype).requires_grad_()
    texts = torch.randn(count, 5, generator=generator).to(dtype).requires_grad_()
    return images, texts


def _offline(o: Objective, pairs: int = 8) -> Offline | None:
    if not o.needs_offline:
        return None
    return Offline(*torch.rand(4, pairs, generator=torch.Generator().manual_seed(1)))


def _grad(o: Objective, factor: float = 1.0, dtype: torch.dtype = torch.float32) -> Tensor:
    images, texts = _embeddings(dtype)
    (o(images, texts, offline=_offline(o)) * factor).backward()
    assert images.grad is not None
    return images.grad


# --- sums and means


@each_objective
@pytest.mark.parametrize("embedded", [False, True])
def test_told_to_take_the_mean_an_objective_is_divided_by_its_queries(
    o: Objective, embedded: bool
) -> None:
    """And by nothing else: half the sum of the two directions' means."""
    told = copy.deepcopy(o)
    told.mean = True
    owner = torch.tensor([0, 1, 1, 2, 3, 4, 5, 5, 5])
    generator = torch.Generator().manual_seed(3)
    images = F.normalize(torch.randn(6, 4, generator=generator), dim=1)
    texts = F.normalize(torch.randn(9, 4, generator=generator), dim=1)
    offline = _offline(o, 9)
    plain = o.weigh(images @ texts.T, owner, offline)
    share = (1.0, 1.0) if o.mean else (0.5 / 6, 0.5 / 9)
    expected = plain.i2t * share[0] + plain.t2i * share[1]
    if embedded:
        leaf = images.clone().requires_grad_()
        told(leaf, texts, owner, offline).backward()
        inner = images.clone().requires_grad_()
        (F.normalize(inner, dim=1) @ texts.T * expected).sum().backward()
        torch.testing.assert_close(leaf.grad, inner.grad, rtol=1e-4, atol=1e-6)
    else:
        found = told.weigh(images @ texts.T, owner, offline)
        torch.testing.assert_close(found.i2t + found.t2i, expected)
        if offline is not None:
            assert plain.offline is not None
            assert found.offline is not None
            by = [share[0], share[1], share[0], share[1]]
            for one, other, factor in zip(found.offline, plain.offline, by, strict=True):
                torch.testing.assert_close(one, other * factor)


# --- the gradient from above


@each_objective
def test_the_gradient_from_above_is_honoured(o: Objective) -> None:
    torch.testing.assert_close(_grad(o, 3.0), 3 * _grad(o))
    assert not _grad(o, 0.0).any()


@each_objective
def test_gradients_accumulate(o: Objective) -> None:
    images, texts = _embeddings()
    for _ in range(2):
        (o(images, texts, offline=_offline(o)) / 2).backward()
    torch.testing.assert_close(images.grad, _grad(o))


@each_objective
def test_backward_twice_and_two_losses_of_one_batch(o: Objective) -> None:
    images, texts = _embeddings()
    loss = o(images, texts, offline=_offline(o))
    first = torch.autograd.grad(loss, images, retain_graph=True)[0].clone()
    second = torch.autograd.grad(loss, images)[0]
    torch.testing.assert_close(first, second, rtol=0, atol=0)
    both = o(images, texts, offline=_offline(o)) + Triplet()(images, texts)
    torch.testing.assert_close(torch.autograd.grad(both, images)[0], _grad(o) + _grad(Triplet()))


@each_objective
def test_no_gradient_is_made_where_none_is_wanted(o: Objective) -> None:
    images, texts = _embeddings()
    with torch.no_grad():
        assert not o(images, texts, offline=_offline(o)).requires_grad
    frozen = o(images.detach(), texts, offline=_offline(o))
    frozen.backward()
    assert images.grad is None
    assert texts.grad is not None


# --- precision


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@each_objective
def test_half_precision_inputs_are_worked_in_float32(o: Objective, dtype: torch.dtype) -> None:
    images, texts = _embeddings(dtype)
    loss = o(images, texts, offline=_offline(o))
    loss.backward()
    exact = [x.detach().float().requires_grad_() for x in (images, texts)]
    o(*exact, offline=_offline(o)).backward()
    assert loss.dtype == torch.float32
    assert images.grad is not None
    assert exact[0].grad is not None
    assert images.grad.dtype == dtype
    torch.testing.assert_close(images.grad, exact[0].grad.to(dtype))


@each_objective
def test_under_autocast(o: Objective) -> None:
    """The encoder runs in bfloat16; what the objective does with its output is exact."""
    torch.manual_seed(0)
    encoder = torch.nn.Linear(6, 5)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        images, texts = encoder(torch.randn(8, 6)), encoder(torch.randn(8, 6))
        loss = o(images, texts, offline=_offline(o))
        similarities = images @ texts.T
        on = o.on(similarities, offline=_offline(o))
    assert images.dtype == similarities.dtype == torch.bfloat16
    assert loss.dtype == on.dtype == torch.float32
    outside = o(images.float(), texts.float(), offline=_offline(o))
    torch.testing.assert_close(loss, outside)
    (loss + on).backward()
    assert encoder.weight.grad is not None
    assert encoder.weight.grad.isfinite().all()


def test_a_grad_scaler_reaches_the_encoder() -> None:
    """Scaled up in float16, unscaled by the scaler: the step is the one without scaling."""
    steps = []
    for scale in (1.0, 1024.0):
        torch.manual_seed(0)
        encoder = torch.nn.Linear(6, 5)
        optimiser = torch.optim.SGD(encoder.parameters(), lr=1.0)
        scaler = torch.amp.GradScaler("cpu", init_scale=scale)
        images, texts = encoder(torch.randn(8, 6)), encoder(torch.randn(8, 6))
        loss = objective("goal")(images.half(), texts.half())
        scaler.scale(loss).backward()
        scaler.step(optimiser)
        scaler.update()
        steps.append(encoder.weight.detach().clone())
    torch.testing.assert_close(steps[0], steps[1], rtol=1e-2, atol=1e-3)
    torch.manual_seed(0)
    assert not torch.equal(steps[1], torch.nn.Linear(6, 5).weight)


def test_mixed_precision_of_the_two_sides() -> None:
    images, texts = _embeddings()
    loss = objective("nt-xent")(images.double(), texts.half())
    loss.backward()
    torch.testing.assert_close(
        loss.float(), objective("nt-xent")(*_embeddings()), rtol=1e-2, atol=0
    )


@pytest.mark.parametrize("block", [None, 5])
@pytest.mark.parametrize("index", [None, torch.tensor([0, 1, 2, 3, 0, 1])])
@pytest.mark.parametrize("dtypes", [(torch.float32, torch.float64), (torch.float64, torch.float16)])
def test_offline_similarities_of_another_precision(
    dtypes: tuple[torch.dtype, torch.dtype], index: Tensor | None, block: int | None
) -> None:
    generator = torch.Generator().manual_seed(4)
    images = torch.randn(6 if index is None else 4, 5, generator=generator).double()
    texts = torch.randn(6, 5, generator=generator).double()
    four = torch.rand(4, 6, generator=generator)
    o, found = objective("adap-off-quin"), []
    for inside, outside in (dtypes, (torch.float64, torch.float64)):
        x, y = (e.to(inside).requires_grad_() for e in (images, texts))
        mined = Offline(*four.half().to(outside).clone().unbind())
        for similarities in mined:
            similarities.requires_grad_()
        o(x, y, index, mined, block=block).backward()
        assert all(m.grad is not None and m.grad.dtype == outside for m in mined)
        found.append([t.grad.double() for t in (x, y, *mined)])  # type: ignore[union-attr]
    torch.testing.assert_close(found[0], found[1], rtol=2e-3, atol=1e-3)


# --- symmetries

similarity = st.integers(-20, 20).map(lambda k: k / 20)


@st.composite
def batches(draw: st.DrawFn) -> tuple[Tensor, Tensor]:
    """Similarities without ties within a row or column, and each caption's image."""
    images, captions = draw(st.integers(1, 5)), draw(st.integers(0, 4))
    captions += images
    seed = draw(st.integers(0, 10**6))
    generator = torch.Generator().manual_seed(seed)
    S = torch.randperm(images * captions, generator=generator).double().view(images, captions)
    extra = torch.randint(0, images, (captions - images,), generator=generator)
    index = torch.cat([torch.arange(images), extra])[torch.randperm(captions, generator=generator)]
    return 2 * S / (images * captions) - 1, index


def _weigh(o: Objective, S: Tensor, positives: Tensor, order: Tensor | None = None) -> tuple:  # type: ignore[type-arg]
    offline = None
    if o.needs_offline:
        four = torch.rand(4, S.shape[1], generator=torch.Generator().manual_seed(7)).double()
        offline = Offline(*(x if order is None else x[order] for x in four))
    return o.weigh(S, positives, offline)


@settings(max_examples=15, deadline=None)
@given(batches(), st.randoms(use_true_random=False))
def test_reordering_the_batch_reorders_the_weights(batch: tuple[Tensor, Tensor], random) -> None:  # type: ignore[no-untyped-def]
    S, index = batch
    rows = torch.tensor(random.sample(range(S.shape[0]), S.shape[0]))
    columns = torch.tensor(random.sample(range(S.shape[1]), S.shape[1]))
    place = torch.empty_like(rows)
    place[rows] = torch.arange(len(rows))
    for o in EVERYTHING:
        plain = _weigh(o, S, index)
        moved = _weigh(o, S[rows][:, columns], place[index][columns], columns)
        torch.testing.assert_close(moved.value, plain.value)
        torch.testing.assert_close(moved.i2t, plain.i2t[rows][:, columns])
        torch.testing.assert_close(moved.t2i, plain.t2i[rows][:, columns])


@settings(max_examples=15, deadline=None)
@given(batches())
def test_transposing_swaps_the_directions(batch: tuple[Tensor, Tensor]) -> None:
    S, index = batch
    mask = torch.arange(len(S))[:, None] == index[None]
    for o in EVERYTHING:
        if o.needs_offline:
            continue  # which offline similarity belongs to which direction is fixed by its name
        plain, turned = o.weigh(S, mask), o.weigh(S.T, mask.T.contiguous())
        torch.testing.assert_close(turned.value, plain.value)
        torch.testing.assert_close(turned.i2t, plain.t2i.T)
        torch.testing.assert_close(turned.t2i, plain.i2t.T)


# Weights of a query sum to 0 where a loss sees differences of similarities alone.
DIFFERENCES = [
    o
    for o in EVERYTHING
    if o.name in ("triplet", "triplet-sh", "nt-xent", "smooth-ap")
    or (o.name == "goal" and o.pair == "con")
]


@settings(max_examples=15, deadline=None)
@given(batches())
def test_weights_of_a_query_sum_to_nothing(batch: tuple[Tensor, Tensor]) -> None:
    S, index = batch
    for o in DIFFERENCES:
        weights = o.weigh(S, index)
        torch.testing.assert_close(weights.i2t.sum(1), torch.zeros(S.shape[0]).double())
        torch.testing.assert_close(weights.t2i.sum(0), torch.zeros(S.shape[1]).double())


@settings(max_examples=15, deadline=None)
@given(batches())
def test_positives_are_pulled_and_negatives_pushed(batch: tuple[Tensor, Tensor]) -> None:
    """With similarities in [0, 1], where every published weight has its sign."""
    S, index = (batch[0] + 1) / 2, batch[1]
    mask = torch.arange(len(S))[:, None] == index[None]
    for o in EVERYTHING:
        if o.needs_offline or o.name in ("smooth-ap", "nt-xent", "debiased-nt-xent"):
            continue  # several positives of one query compete there
        weights = o.weigh(S, index)
        assert (weights.i2t[mask] <= 0).all(), str(o)
        assert (weights.i2t[~mask] >= 0).all(), str(o)


_TRIPLETS = [o for o in EVERYTHING if not o.needs_offline and not o.pairwise]


@pytest.mark.parametrize("o", _TRIPLETS, ids=str)
def test_a_query_without_a_negative_contributes_nothing(o: Objective) -> None:
    case = CASES["lone"]  # image 0 and caption 1 belong to everything
    weights = o.weigh(case.S, case.positives)
    assert not weights.i2t[0].any()
    assert not weights.t2i[:, 1].any()
    assert weights.value.isfinite()
    one = o.weigh(torch.tensor([[0.3]]))
    assert float(one.value) == 0
    assert not one.i2t.any()


@each_objective
def test_weighing_leaves_its_input_alone(o: Objective) -> None:
    for case in CASES.values():
        S = case.S.clone()
        o.weigh(S, case.positives, case.offline(o))
        o.on(S, case.positives, case.offline(o))
        assert torch.equal(S, case.S), case.name
    row, column = torch.rand(1, 3), torch.rand(3, 1)
    kept = row.clone(), column.clone()
    if not o.needs_offline:
        o.weigh(row, torch.zeros(3, dtype=torch.long))
        o.weigh(column, torch.ones(3, 1, dtype=torch.bool))
    assert torch.equal(row, kept[0])
    assert torch.equal(column, kept[1])


def test_a_rule_may_return_its_values_alone() -> None:
    """Weights by autograd; the same as when they are written down."""

    def values_alone(similarities, positives, pairs, power: float = 2.0):  # type: ignore[no-untyped-def]
        push = (similarities + 1).clamp(min=0).masked_fill(positives, 0).pow(power).sum(1)
        return push - pairs.per_query(pairs.similarity)

    def written(similarities, positives, pairs, power: float = 2.0):  # type: ignore[no-untyped-def]
        shifted = (similarities + 1).clamp(min=0).masked_fill(positives, 0)
        values = shifted.pow(power).sum(1) - pairs.per_query(pairs.similarity)
        return values, power * shifted ** (power - 1) - positives.to(similarities.dtype)

    made = []
    for name, rule in (("test-values", values_alone), ("test-written", written)):
        made.append(declare(name)(rule)(power=3.0))
        del objectives._declared[name]
    for case in CASES.values():
        one, other = (o.weigh(case.S, case.positives) for o in made)
        torch.testing.assert_close(one.i2t, other.i2t)
        torch.testing.assert_close(one.t2i, other.t2i)
        torch.testing.assert_close(one.value, other.value)
    ignore = torch.tensor([[0, 1], [2, 3]])
    weights = made[0].weigh(CASES["square"].S, ignore=ignore)
    assert weights.i2t.isfinite().all()
    assert not weights.i2t[ignore[:, 0], ignore[:, 1]].any()
