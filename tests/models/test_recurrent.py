"""GRUs in half precision: gradients that are small arrive all the same."""

import pytest
import torch
from torch import Tensor, nn

from simgrad.models.networks.layers import BiGru, valid
from simgrad.models.networks.recurrent import gru_state_at, gru_states, scaled_states


def gradients(states: Tensor, rnn: nn.Module, x: Tensor, size: float) -> list[Tensor]:
    """Of x and of the weights, for a gradient of about `size` from above."""
    above = size * torch.randn(states.shape, generator=torch.Generator().manual_seed(1))
    inputs = [x, *rnn.parameters()]
    return list(torch.autograd.grad(states, inputs, above.to(states), retain_graph=True))


@pytest.mark.parametrize("size", [1e-9, 1.0, 300.0])
def test_scaling_changes_nothing(size: float) -> None:
    torch.manual_seed(0)
    rnn, x = nn.GRU(6, 5, batch_first=True), torch.randn(4, 7, 6, requires_grad=True)
    plain, scaled = rnn(x)[0], scaled_states([rnn], x, kind=torch.float32)
    assert torch.allclose(plain, scaled, rtol=1e-6, atol=1e-7)
    for want, found in zip(
        gradients(plain, rnn, x, size), gradients(scaled, rnn, x, size), strict=True
    ):
        assert torch.allclose(found, want, rtol=1e-4, atol=1e-6 * size)


@pytest.mark.parametrize("width", [6, 8])
@pytest.mark.parametrize("size", [1e-9, 1.0])
def test_both_ways_at_once_pass_over_the_padding(width: int, size: float) -> None:
    torch.manual_seed(0)
    rnn, x = BiGru(width, 5), torch.randn(4, 7, width, requires_grad=True)
    lengths = torch.tensor([7, 1, 4, 6])
    real = valid(lengths, 7)
    apart = rnn(x, lengths) * real[:, :, None]
    ways = [rnn.onward, rnn.backward_]
    together = scaled_states(ways, x, ~real, torch.float32) * real[:, :, None]
    assert torch.allclose(apart, together, rtol=1e-6, atol=1e-7)
    for want, found in zip(
        gradients(apart, rnn, x, size), gradients(together, rnn, x, size), strict=True
    ):
        assert torch.allclose(found, want, rtol=1e-4, atol=1e-6 * size)


@pytest.mark.parametrize("size", [1e-9, 1.0])
def test_layers_above_read_both_ways_side_by_side(size: float) -> None:
    """What a GPU runs in half precision, here in float32: layer by layer, scaled."""
    torch.manual_seed(0)
    rnn, x = BiGru(6, 5, 2), torch.randn(4, 7, 6, requires_grad=True)
    lengths = torch.tensor([7, 1, 4, 6])
    real = valid(lengths, 7)
    apart = rnn(x, lengths) * real[:, :, None]
    assert rnn.above is not None
    below = scaled_states([rnn.onward, rnn.backward_], x, ~real, torch.float32, joined=True)
    ways = [rnn.above.onward, rnn.above.backward_]
    together = scaled_states(ways, below, ~real, torch.float32) * real[:, :, None]
    assert torch.allclose(apart, together, rtol=1e-6, atol=1e-7)
    for want, found in zip(
        gradients(apart, rnn, x, size), gradients(together, rnn, x, size), strict=True
    ):
        assert torch.allclose(found, want, rtol=1e-4, atol=1e-6 * size)


@pytest.mark.parametrize("size", [1e-9, 1.0])
def test_a_one_way_gru_of_several_layers(size: float) -> None:
    torch.manual_seed(0)
    rnn, x = nn.GRU(6, 5, 3, batch_first=True), torch.randn(4, 7, 6, requires_grad=True)
    plain, scaled = rnn(x)[0], scaled_states([rnn], x, kind=torch.float32)
    assert torch.allclose(plain, scaled, rtol=1e-6, atol=1e-7)
    for want, found in zip(
        gradients(plain, rnn, x, size), gradients(scaled, rnn, x, size), strict=True
    ):
        assert torch.allclose(found, want, rtol=1e-4, atol=1e-6 * size)


@pytest.mark.parametrize("kind", [torch.float32, torch.float16])
def test_what_stands_in_the_padding_changes_nothing(kind: torch.dtype) -> None:
    torch.manual_seed(0)
    rnn, x = BiGru(6, 5), torch.randn(3, 7, 6)
    real = valid(torch.tensor([3, 7, 5]), 7)
    other = torch.where(real[:, :, None], x, 30 * torch.randn(3, 7, 6))
    ways = [rnn.onward, rnn.backward_]
    found = []
    for each in (x.requires_grad_(), other.requires_grad_()):
        states = scaled_states(ways, each, ~real, kind)[real]
        of_x, *of_weights = gradients(states, rnn, each, 1.0)
        assert not of_x[~real].any()
        found.append([states, of_x[real], *of_weights])
    for one, two in zip(*found, strict=True):
        assert torch.equal(one, two)


@pytest.mark.parametrize("size", [1e-9, 1.0])
def test_one_step_is_taken_as_from_all_of_them(size: float) -> None:
    torch.manual_seed(0)
    rnn, x = nn.GRU(6, 5, batch_first=True), torch.randn(4, 7, 6, requires_grad=True)
    step = torch.tensor([6, 0, 3, 5])
    want = rnn(x)[0][torch.arange(4), step]
    for found in (
        gru_state_at(rnn, x, step),
        scaled_states([rnn], x, kind=torch.float32, step=step).squeeze(1),
    ):
        assert torch.allclose(found, want, rtol=1e-6, atol=1e-7)
        for exact, other in zip(
            gradients(want, rnn, x, size), gradients(found, rnn, x, size), strict=True
        ):
            assert torch.allclose(other, exact, rtol=1e-4, atol=1e-6 * size)


def test_no_gradient_from_above_is_no_gradient_below() -> None:
    rnn, x = nn.GRU(3, 3, batch_first=True), torch.randn(2, 4, 3, requires_grad=True)
    for gradient in gradients(scaled_states([rnn], x, kind=torch.float32), rnn, x, 0.0):
        assert torch.equal(gradient, torch.zeros_like(gradient))


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
def test_small_gradients_survive_half_precision() -> None:
    torch.manual_seed(0)
    rnn = nn.GRU(48, 64, batch_first=True).cuda()
    x = torch.randn(16, 9, 48, device="cuda", requires_grad=True)
    want = gradients(gru_states(rnn, x), rnn, x, 1e-8)
    with torch.autocast("cuda", torch.bfloat16):
        states = gru_states(rnn, x)
    for exact, found in zip(want, gradients(states, rnn, x, 1e-8), strict=True):
        assert (found - exact).norm() < 0.02 * exact.norm()


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
def test_both_ways_at_once_in_half_precision() -> None:
    torch.manual_seed(0)
    rnn = BiGru(300, 64).cuda()
    x = torch.randn(16, 9, 300, device="cuda", requires_grad=True)
    lengths = torch.arange(16, device="cuda") % 9 + 1
    real = valid(lengths, 9)[:, :, None]
    want = gradients(rnn(x, lengths) * real, rnn, x, 1e-8)
    with torch.autocast("cuda", torch.bfloat16):
        states = rnn(x, lengths) * real
    for exact, found in zip(want, gradients(states, rnn, x, 1e-8), strict=True):
        assert (found - exact).norm() < 0.02 * exact.norm()


def exploding() -> nn.GRU:
    """A GRU whose states grow fivefold with each step, near zero."""
    rnn = nn.GRU(4, 4, batch_first=True)
    with torch.no_grad():
        for weight in rnn.parameters():
            weight.zero_()
        rnn.weight_hh_l0[8:] = 20 * torch.eye(4)
        rnn.weight_ih_l0[8:] = torch.eye(4)
    return rnn


def test_gradients_that_explode_are_cut_off_in_half_precision() -> None:
    """And stay finite, so that a clip can do the rest."""
    rnn, x = exploding(), torch.full((3, 12, 4), 1e-12, requires_grad=True)
    exact = gradients(rnn(x)[0], rnn, x, 1.0)
    assert exact[0].abs().max() > 1e6  # in float32
    for found in gradients(scaled_states([rnn], x, kind=torch.float16), rnn, x, 1.0):
        assert found.isfinite().all()
    of_x = gradients(scaled_states([rnn], x, kind=torch.float16), rnn, x, 1.0)[0]
    assert torch.allclose(of_x[:, -4:], exact[0][:, -4:], rtol=0.01)  # where nothing overflowed


def test_a_gradient_that_is_not_a_number_stays_one() -> None:
    rnn, x = nn.GRU(3, 3, batch_first=True), torch.randn(2, 4, 3, requires_grad=True)
    states = scaled_states([rnn], x, kind=torch.float16)
    for gradient in gradients(states, rnn, x, float("nan")):
        assert gradient.isnan().all()


def test_what_leaves_half_precision_is_not_rounded_to_zero() -> None:
    """The scale of tiny gradients is itself too small for a float16."""
    torch.manual_seed(0)
    rnn, x = nn.GRU(6, 5, batch_first=True), torch.randn(4, 7, 6, requires_grad=True)
    found = gradients(scaled_states([rnn], x, kind=torch.bfloat16), rnn, x, 1e-20)
    for want, half in zip(gradients(rnn(x)[0], rnn, x, 1e-20), found, strict=True):
        assert (half - want).norm() < 0.05 * want.norm()
