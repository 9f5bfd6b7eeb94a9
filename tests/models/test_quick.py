"""Quick layers give what PyTorch's own give."""

import copy
from typing import Any

import pytest
import torch
from torch import nn

from simgrad.models.networks import quick
from simgrad.models.networks.efficientnet_lite import EfficientNetLite, fold_batch_norms
from simgrad.models.networks.quick import QuickConv, QuickLinear, left_out, quicken


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("rows", [1, 7, 128])
def test_a_quick_product_and_its_gradients_are_those_of_a_linear_layer(
    rows: int, bias: bool
) -> None:
    torch.manual_seed(0)
    ours, plain = QuickLinear(30, 12, bias=bias), nn.Linear(30, 12, bias=bias)
    plain.load_state_dict(ours.state_dict())
    x, above = torch.randn(rows, 30), torch.randn(rows, 12)
    found = []
    for layer in (ours, plain):
        given = x.clone().requires_grad_()
        out = layer(given)
        out.backward(above)
        found.append((out.detach(), given.grad, *(p.grad for p in layer.parameters())))
    for mine, other in zip(*found, strict=True):
        assert torch.allclose(mine, other, atol=1e-5)


def test_other_numbers_than_float32_are_multiplied_plainly() -> None:
    layer = QuickLinear(5, 4).double()
    assert layer(torch.randn(3, 5, dtype=torch.double)).dtype == torch.double


def test_without_the_operator_it_is_a_linear_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    layer, x = QuickLinear(5, 4), torch.randn(3, 5)
    expected = layer(x)
    monkeypatch.setattr(quick, "_wide", lambda x: False)
    assert torch.allclose(layer(x), expected, atol=1e-6)


@pytest.mark.parametrize(
    "how",
    [
        {},
        {"stride": 2, "padding": (0, 1)},
        {"groups": 4, "bias": False, "padding": 1},
        {"dilation": 2, "padding": "same"},
        {"padding": 1, "padding_mode": "reflect"},
    ],
)
def test_a_quick_convolution_is_that_of_pytorch(how: dict[str, Any]) -> None:
    torch.manual_seed(0)
    ours, plain = QuickConv(8, 12, 3, **how), nn.Conv2d(8, 12, 3, **how)
    plain.load_state_dict(ours.state_dict())
    x = torch.randn(3, 8, 10, 13)
    for wanted in (True, False):  # a gradient
        ours.requires_grad_(wanted)
        assert ours(x).requires_grad is wanted
        assert torch.allclose(ours(x), plain(x), atol=1e-5)


@pytest.mark.parametrize(
    ("layer", "shape"), [(nn.Conv2d(2, 3, 3), (1, 2, 5, 5)), (nn.Linear(4, 3), (2, 4))]
)
def test_whoever_looks_at_a_network_sees_pytorchs_own_layers(
    layer: nn.Module, shape: tuple[int, ...]
) -> None:
    plain = nn.Sequential(layer).requires_grad_(False)
    network = copy.deepcopy(plain)
    quicken(network)
    x, way = torch.randn(shape), torch.randn(shape)
    expected = plain(x)
    assert torch.allclose(*(torch.func.jvp(f, (x,), (way,))[1] for f in (network, plain)))
    assert torch.allclose(
        *(torch.func.grad(lambda x, f=f: f(x).square().sum())(x) for f in (network, plain))
    )
    assert torch.allclose(torch.jit.trace(network, (x,))(x), expected, atol=1e-5)
    compiled = torch.compile(network, fullgraph=True, backend="eager")
    assert torch.allclose(compiled(x), expected, atol=1e-5)


def test_other_shapes_than_a_batch_are_as_in_pytorch() -> None:
    for ours, shape in ((QuickConv(2, 3, 3), (2, 5, 5)), (QuickLinear(4, 3), (2, 5, 4))):
        for wanted in (False, True):
            x = torch.randn(shape, requires_grad=wanted)
            plain = copy.deepcopy(ours.requires_grad_(wanted))
            plain.__class__ = type(ours).__mro__[1]
            assert torch.allclose(ours(x), plain(x), atol=1e-5)
            if wanted:
                ours(x).sum().backward()


@pytest.mark.parametrize("size", [(64, 64), (72, 75), (65, 97)])  # halved to even, odd, both
def test_a_network_in_fewer_passes_is_the_same(size: tuple[int, int]) -> None:
    torch.manual_seed(0)
    plain, folded = EfficientNetLite(0).eval(), EfficientNetLite(0).eval()
    folded.load_state_dict(plain.state_dict())
    fold_batch_norms(folded.requires_grad_(False))
    x = torch.randn(3, 3, *size)
    with torch.no_grad():
        assert torch.allclose(folded(x), plain(x), atol=1e-4)
        assert folded.double()(x.double()).dtype == torch.double  # plainly


def test_quicken_takes_pytorchs_own_layers_and_no_others() -> None:
    class Own(nn.Linear):
        pass

    network = nn.Sequential(nn.Conv2d(3, 4, 1), nn.Linear(4, 4), Own(4, 4))
    quicken(network)
    assert [type(layer) for layer in network] == [QuickConv, QuickLinear, Own]


@pytest.mark.parametrize("share", [0.1, 0.3, 0.9])
def test_a_share_is_left_out_and_the_mean_stays(share: float) -> None:
    torch.manual_seed(0)
    seen = left_out(torch.ones(301, 333), share)
    assert seen.unique().tolist() == pytest.approx([0.0, 1 / (1 - share)], rel=1e-3)
    assert abs((seen == 0).float().mean() - share) < 0.01
    assert abs(seen.mean() - 1) < 0.02
    # Neither rows nor columns, nor places that share a draw, go together.
    gone = (seen == 0).float()
    for far in (1, 2, 3, 4):
        both = (gone.flatten()[:-far] * gone.flatten()[far:]).mean()
        assert abs(both - share**2) < 0.01


def test_the_same_seed_leaves_out_the_same_and_gradients_follow() -> None:
    x = torch.randn(9, 7, requires_grad=True)
    seen = []
    for _ in range(2):
        torch.manual_seed(3)
        seen.append(left_out(x, 0.5))
    assert torch.equal(*seen)
    assert not torch.equal(seen[0], left_out(x, 0.5))
    seen[0].sum().backward()
    assert torch.allclose(x.grad, (seen[1] / x).detach(), atol=1e-5)
    assert torch.equal(left_out(x, 0.0), x)
