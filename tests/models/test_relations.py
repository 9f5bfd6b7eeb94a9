"""VSRN's relations: merged products give what the layers give one after the other."""

import pytest
import torch
from torch import Tensor, nn

from simgrad.models.networks.vsrn import Merged, related
from simgrad.models.vsrn import Relations


def in_turn(x: Tensor, ask: Tensor, ask_bias: Tensor, out: Tensor, out_bias: Tensor) -> Tensor:
    """Straight from the definition."""
    theta, phi, g = (x @ w.T + b for w, b in zip(ask.chunk(3), ask_bias.chunk(3), strict=True))
    return theta @ phi.transpose(1, 2) / x.shape[1] @ g @ out.T + out_bias


def merged(*given: Tensor) -> Tensor:
    value: Tensor = Merged.apply(*given, given[0].dtype)
    return value


def parts(n: int, k: int, d: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    shapes = [(n, k, d), (3 * d, d), (3 * d,), (d, d), (d,)]
    drawn = [torch.randn(*shape, generator=generator, dtype=torch.float64) for shape in shapes]
    return [drawn[0], *(x / d**0.5 for x in drawn[1:])]


def values_and_gradients(f, given: list[Tensor], dtype: torch.dtype) -> list[Tensor]:
    leaves = [x.to(dtype).requires_grad_() for x in given]
    value = f(*leaves)
    above = torch.randn(value.shape, generator=torch.Generator().manual_seed(1)).to(value)
    found = torch.autograd.grad(value, leaves, above)
    return [x.detach().double() for x in (value, *found)]


def test_merged_is_the_same() -> None:
    given = parts(4, 5, 6)
    want = values_and_gradients(in_turn, given, torch.float64)
    for one, other in zip(values_and_gradients(merged, given, torch.float64), want, strict=True):
        assert torch.allclose(one, other, rtol=1e-10, atol=1e-12)


def test_gradients_are_right() -> None:
    assert torch.autograd.gradcheck(merged, [x.requires_grad_() for x in parts(3, 2, 3)])


def test_half_precision_is_as_exact_as_layers_in_turn() -> None:
    given = [x.to(torch.bfloat16) for x in parts(16, 20, 64)]
    exact = values_and_gradients(in_turn, given, torch.float64)
    errors = []
    for f in (in_turn, merged):
        found = values_and_gradients(f, given, torch.bfloat16)
        errors.append([(a - b).norm() / b.norm() for a, b in zip(found, exact, strict=True)])
    for plain, other in zip(*errors, strict=True):
        assert other < 1.5 * plain + 0.002


@pytest.mark.parametrize("autocast", [False, True])
def test_the_way_depends_on_the_shape_alone_and_changes_nothing(
    autocast: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    layer, x = Relations(12), torch.randn(6, 4, 12, requires_grad=True)
    nn.init.ones_(layer.norm.weight)
    taken: list[int] = []
    apply = Merged.apply
    monkeypatch.setattr(Merged, "apply", lambda *a: taken.append(1) or apply(*a))

    def found(size: int) -> list[Tensor]:
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            whole = [related(x[i : i + size], layer.ask, layer.out) for i in range(0, 6, size)]
        update = torch.cat(whole).float()
        return [update, *torch.autograd.grad(update.sin().sum(), [x, *layer.ask.parameters()])]

    together = found(6)
    assert len(taken) == 1
    apart = found(3)  # as many regions as dimensions
    assert len(taken) == 1
    for one, other in zip(together, apart, strict=True):
        assert (one - other).norm() <= (0.03 if autocast else 1e-5) * other.norm()
