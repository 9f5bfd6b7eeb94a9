"""Pooling of sorted values: sorted or ranked by kernels, the same values and gradients."""

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
from torch import Tensor

from simgrad.core import gpu
from simgrad.models.networks import pooling
from simgrad.models.networks.pooling import RankedPool, pool_sorted
from simgrad.models.networks.vse_infinity import Gpo

interpreted = pytest.mark.skipif(
    os.environ.get("TRITON_INTERPRET") != "1", reason="needs Triton, and TRITON_INTERPRET=1"
)
on_a_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
each_case = pytest.mark.parametrize("case", ["masked", "weights of one set", "one weight for all"])


def given(case: str, n: int, k: int, d: int, dtype: torch.dtype = torch.float32):
    """Features without equal values, a mask, weights of ranks."""
    generator = torch.Generator().manual_seed(n * k)
    # Whole numbers are exact in half precision, and signed.
    order = torch.rand(n, k, d, generator=generator).argsort(1)
    features = (order - k // 2).to(dtype)
    weights = torch.rand(1 if case == "one weight for all" else n, k, generator=generator)
    mask = None
    if case == "masked":
        sizes = torch.randint(1, k + 1, (n, 1), generator=generator)
        mask = torch.rand(n, k, generator=generator).argsort(1) < sizes
        weights = weights * (torch.arange(k) < sizes)
    return features, mask, weights


def slowly(features: Tensor, mask: Tensor | None, weights: Tensor, above: Tensor):
    """Pooled vectors and both gradients, one number after the other, in float64."""
    n, k, d = features.shape
    pooled, of_features = torch.zeros(n, d).double(), torch.zeros(n, k, d).double()
    of_weights = torch.zeros(weights.shape).double()
    for i in range(n):
        row = i if len(weights) > 1 else 0
        real = range(k) if mask is None else [j for j in range(k) if mask[i, j]]
        for c in range(d):
            for rank, j in enumerate(sorted(real, key=lambda j: -float(features[i, j, c]))):
                w, x, g = (float(v) for v in (weights[row, rank], features[i, j, c], above[i, c]))
                pooled[i, c] += w * x
                of_features[i, j, c] = w * g
                of_weights[row, rank] += x * g
    return pooled, of_features, of_weights


def gradients(pooled: Tensor, features: Tensor, weights: Tensor, above: Tensor) -> list[Tensor]:
    found = torch.autograd.grad(pooled, [features, weights], above.to(pooled))
    return [part.detach().double().cpu() for part in (pooled, *found)]


def check(pool, case: str, dtype: torch.dtype, shape: tuple[int, int, int], device: str) -> None:
    features, mask, weights = given(case, *shape, dtype)
    above = torch.randn(shape[0], shape[2], generator=torch.Generator().manual_seed(1))
    want = slowly(features, mask, weights, above)
    features, weights = (v.to(device).requires_grad_() for v in (features, weights))
    mask = None if mask is None else mask.to(device)
    found = gradients(pool(features, mask, weights), features, weights, above)
    for one, other in zip(found, want, strict=True):
        share = 1e-5 if dtype == torch.float32 else 0.01
        assert (one - other).norm() <= share * other.norm()


def ranked(features: Tensor, mask: Tensor | None, weights: Tensor) -> Tensor:
    pooled: Tensor = RankedPool.apply(
        features, None if mask is None else mask.view(torch.uint8), weights
    )
    return pooled


@each_case
def test_sorted(case: str) -> None:
    check(pool_sorted, case, torch.float32, (3, 5, 4), "cpu")


@pytest.mark.long
@interpreted
@each_case
@pytest.mark.parametrize("shape", [(2, 7, 40), (2, 66, 3)])  # two blocks; more than 64 places
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_kernels_interpreted(case: str, shape: tuple[int, int, int], dtype: torch.dtype) -> None:
    check(ranked, case, dtype, shape, "cpu")


@pytest.mark.cuda
@on_a_gpu
@each_case
@pytest.mark.parametrize("shape", [(3, 1, 64), (3, 49, 72), (2, 100, 40)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_kernels(case: str, shape: tuple[int, int, int], dtype: torch.dtype) -> None:
    pytest.importorskip("triton")
    check(pool_sorted, case, dtype, shape, "cuda")
    assert "pooling" not in gpu._broken


def equal_values(pool) -> None:
    """Each rank goes to one value: the gradient of a constant set is the weights, in some order."""
    weights = torch.tensor([[0.5, 0.3, 0.2]])
    features = torch.ones(1, 3, 2).requires_grad_()
    (found,) = torch.autograd.grad(pool(features, None, weights).sum(), features)
    assert torch.allclose(found.sort(1, descending=True).values[0, :, 0], weights[0])


def test_equal_values_sorted() -> None:
    equal_values(pool_sorted)


@interpreted
def test_equal_values_interpreted() -> None:
    equal_values(ranked)


def odd_values(pool) -> None:
    """What is masked out is never seen; what is there may be far below everything; no members."""
    features = torch.tensor([[2.0, torch.nan, -3e4], [-torch.inf, 1.0, torch.inf], [5.0, 6.0, 7.0]])
    mask = torch.tensor([[True, False, True], [True, True, False], [False, False, False]])
    weights = torch.tensor([[0.75, 0.25, 0.0]] * 3)
    pooled = pool(features[:, :, None], mask, weights)[:, 0]
    assert torch.equal(pooled, torch.tensor([1.5 - 7500, -torch.inf, 0.0]))


def test_odd_values_sorted() -> None:
    odd_values(pool_sorted)


@interpreted
def test_odd_values_interpreted() -> None:
    odd_values(ranked)


def test_masked_sets_have_gradients_in_float16() -> None:
    """Values that are not there take no part in a weight's gradient, which would overflow."""
    torch.manual_seed(0)
    pool, mask = Gpo(), torch.rand(4, 200) > 0.3
    features = torch.randn(4, 200, 512, dtype=torch.float16)
    with torch.autocast("cpu", torch.float16):
        pooled = pool(features, mask)
    found = torch.autograd.grad(pooled, list(pool.parameters()), torch.ones_like(pooled))
    assert all(gradient.isfinite().all() for gradient in found)


@interpreted
def test_no_sets_interpreted() -> None:
    features, mask, weights = given("masked", 3, 5, 4)
    weights.requires_grad_()
    pooled = ranked(features[:0], mask[:0], weights[:0])
    (found,) = torch.autograd.grad(pooled.sum(), weights)
    assert torch.equal(found, torch.zeros(3, 5))


@interpreted
def test_gradients_of_gradients_are_refused_interpreted() -> None:
    """The kernels know nothing of them, and zeros in their place would go unnoticed."""
    features, _, weights = given("one weight for all", 3, 5, 4)
    features.requires_grad_()
    pooled = ranked(features, None, weights)
    (found,) = torch.autograd.grad(pooled.square().sum(), features, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        (pooled.sum() + found.square().sum()).backward()


def test_kernels_start_on_the_device_of_the_features(monkeypatch: pytest.MonkeyPatch) -> None:
    current: list[Tensor] = []

    @contextmanager
    def device_of(tensor: Tensor) -> Iterator[None]:
        current.append(tensor)
        yield
        current.pop()

    monkeypatch.setattr(torch.cuda, "device_of", device_of)
    monkeypatch.setattr(RankedPool, "apply", lambda features, *_: torch.stack(current)[0] - 1)
    monkeypatch.setattr(pooling, "_suits", lambda *_: True)
    monkeypatch.setattr(gpu, "_ran", set())
    features, mask, weights = given("masked", 3, 5, 4)
    assert torch.equal(pool_sorted(features, mask, weights), features - 1)


def test_what_is_warmed_up_depends_on_every_gradient() -> None:
    """Kernels that keep ranks are others, be it for the gradient of the weights alone."""
    features, mask, weights = given("masked", 3, 5, 4)
    quiet = pooling._call(features, mask, weights)
    assert pooling._call(features, mask, weights.requires_grad_()) != quiet
    with torch.no_grad():
        assert pooling._call(features, mask, weights) == quiet


def test_without_kernels_values_are_sorted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel that does not run is said once; what it would have given is given."""
    features, mask, weights = given("masked", 3, 5, 4)
    want = pool_sorted(features, mask, weights)

    def fails(*_: object) -> Tensor:
        raise RuntimeError("no compiler")

    monkeypatch.setattr(RankedPool, "apply", fails)
    monkeypatch.setattr(gpu, "_broken", set())
    monkeypatch.setattr(pooling, "_suits", lambda *_: pooling._KERNELS not in gpu._broken)
    with pytest.warns(UserWarning, match="no compiler"):
        assert torch.equal(pool_sorted(features, mask, weights), want)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert torch.equal(pool_sorted(features, mask, weights), want)


def test_gradients_of_gpo_are_right() -> None:
    torch.manual_seed(0)
    pool = Gpo(code=4, hidden=3).double()
    features = torch.randn(5, 4, 2, dtype=torch.float64, requires_grad=True)
    mask = torch.arange(4) < torch.tensor([[4], [1], [3], [2], [4]])
    parameters = list(pool.parameters())
    assert torch.autograd.gradcheck(lambda x, *_: pool(x, mask), (features, *parameters))


def test_weights_of_ranks_are_exact_in_half_precision() -> None:
    torch.manual_seed(0)
    pool, sizes = Gpo(), torch.arange(1, 8)
    exact, of_all = pool.weights(sizes, 7), pool.weights_of_all(7)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(pool.weights(sizes, 7), exact)
        assert torch.equal(pool.weights_of_all(7), of_all)
