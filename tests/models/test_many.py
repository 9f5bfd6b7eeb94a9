"""Several VSE++ models at once: the vectors and gradients that each has alone."""

import os
from typing import Any

import pytest
import torch
from torch import Tensor

from simgrad.models import Inputs, build
from simgrad.models.networks.many import ManyVse, StepRows

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"


def models(count: int = 3) -> list[Any]:
    torch.manual_seed(0)
    spec = "vse++(dimension=16, word_dimension=6)"
    return [build(spec, Inputs("features", (10,), 30)) for _ in range(count)]


def batch(count: int = 3) -> tuple[Tensor, Tensor, Tensor]:
    """5 images and 7 captions for each."""
    lengths = torch.randint(1, 10, (count, 7))
    lengths[0, 0] = 9
    tokens = torch.randint(1, 30, (count, 7, 9))
    within = torch.arange(9) < lengths[..., None]
    return torch.randn(count, 5, 10), torch.where(within, tokens, 0), lengths


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("spare", [None, 0, 2])
def test_each_has_the_vectors_and_gradients_of_its_own_model(
    half: bool, fused: bool, spare: int | None
) -> None:
    """`spare`: captions that a step works on beyond those that are not over; None: all."""
    if fused and not INTERPRETED:
        pytest.skip("needs Triton, and TRITON_INTERPRET=1")
    alone, (images, tokens, lengths) = models(), batch()
    names = [name for name, _ in alone[0].named_parameters()]
    stacked = {n: torch.stack([m.get_parameter(n).detach() for m in alone]) for n in names}
    many = ManyVse(half=half, feature_norm=True, fused=fused)
    rows = None
    if spare is not None:
        going_on = (lengths[..., None] > torch.arange(9)).sum(1).amax(0)
        rows = StepRows.of([min(7, n + spare) for n in going_on.tolist()], lengths.device)
    vectors = many.forward(stacked, images, tokens, lengths, rows)
    above = [
        torch.randn(each.shape) * scale for each, scale in zip(vectors, (1, 1e-9), strict=True)
    ]
    gradients = many.backward(*above)
    assert gradients.keys() == set(names)
    near = 5e-3 if half else 1e-6
    for place, model in enumerate(alone):
        own = (
            model.encode_images(images[place]).vectors,
            model.encode_captions(tokens[place], lengths[place]).vectors,
        )
        for mine, theirs in zip(own, vectors, strict=True):
            assert torch.allclose(mine, theirs[place], atol=near)
        torch.autograd.backward(own, [each[place] for each in above])
        for name, parameter in model.named_parameters():
            value, size = gradients[name]
            found = value[place].float() * (1 if size is None else size[place])
            largest = parameter.grad.abs().max()
            assert largest > 0
            assert (found - parameter.grad).abs().max() < (3e-2 if half else 1e-5) * largest


def test_a_model_that_is_not_finite_does_not_touch_the_others() -> None:
    alone, given = models(), batch()
    stacked = {
        n: torch.stack([m.get_parameter(n).detach() for m in alone])
        for n, _ in alone[0].named_parameters()
    }
    for half in (False, True):
        many = ManyVse(half=half, feature_norm=True)
        before = many.forward(stacked, *given)
        torch.manual_seed(1)
        above = [torch.randn_like(each) for each in before]
        wanted = many.backward(*above)
        broken = {n: w.clone() for n, w in stacked.items()}
        for weight in broken.values():
            weight[1] = torch.nan
        vectors = many.forward(broken, *given)
        above[0][1] = above[1][1] = torch.nan
        found = many.backward(*above)
        assert vectors[1][1].isnan().all()
        for place in (0, 2):
            for a, b in zip(before, vectors, strict=True):
                assert torch.equal(a[place], b[place])
            for name, (value, _) in found.items():
                assert torch.equal(value[place], wanted[name].value[place])


@pytest.mark.parametrize(
    "spec",
    [
        "vse++(dimension=16, word_dimension=6, gru_layers=2)",
        "vse++(dimension=16, word_dimension=6, measure=order)",
        "vse++(dimension=16, word_dimension=6, absolute=true)",
    ],
)
def test_other_settings_are_not_taken_together(spec: str) -> None:
    assert build(spec, Inputs("features", (10,), 30)).together(half=False) is None
