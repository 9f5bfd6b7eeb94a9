"""Objectives in a compiled program; second derivatives are refused in words."""

import copy
import gc
import pickle
import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from simgrad.core.errors import InputError
from simgrad.objectives import Objective, Offline, objective

from .cases import everything, names

# One of each kind: cells of GOAL differ in what an operator does inside, not in what it takes.
EVERYTHING = [o for o in everything() if o.name != "goal" or str(o) == str(objective("goal"))]
each_objective = pytest.mark.parametrize("o", EVERYTHING, ids=names(EVERYTHING))
INDEX = torch.tensor([0, 1, 2, 3, 0, 2])


class Model(nn.Module):
    """Two encoders and an objective, as a training step has them."""

    def __init__(self, o: Objective) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.image, self.text, self.objective = nn.Linear(6, 5), nn.Linear(7, 5), o

    def forward(self, x: Tensor, y: Tensor, positives: Tensor | None, offline: Tensor) -> Tensor:
        drawn = Offline(*offline) if self.objective.needs_offline else None
        loss: Tensor = self.objective(self.image(x), self.text(y), positives, drawn)
        return loss


def _gradients(model: nn.Module, device: str, positives: Tensor | None) -> list[Tensor]:
    generator = torch.Generator().manual_seed(1)
    images = 4 if positives is not None else 6
    x, y = torch.randn(images, 6, generator=generator), torch.randn(6, 7, generator=generator)
    four = torch.rand(4, 6, generator=generator)
    given = positives if positives is None else positives.to(device)
    loss = model(x.to(device), y.to(device), given, four.to(device))
    parameters = [p for p in model.parameters() if p.requires_grad]
    return [loss.detach(), *torch.autograd.grad(loss, parameters)]


def _compare(o: Objective, device: str, positives: Tensor | None) -> None:
    model = Model(o).to(device)
    plain = _gradients(model, device, positives)
    # Without code generation: whether the graph is whole is what matters, and takes seconds less.
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    for one, other in zip(_gradients(compiled, device, positives), plain, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


@each_objective
def test_a_compiled_model_is_one_graph_without_a_warning(o: Objective) -> None:
    torch.compiler.reset()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", category=DeprecationWarning)  # PyTorch's own
        _compare(o, "cpu", INDEX)


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
@each_objective
def test_a_compiled_model_on_a_gpu(o: Objective) -> None:
    torch.compiler.reset()
    _compare(o, "cuda", INDEX)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda o: pickle.loads(pickle.dumps(o))])
def test_a_compiled_copy_is_not_the_original(copied: Any) -> None:
    torch.compiler.reset()
    original = objective("triplet-sh(margin=0.1)")
    other = copied(original)
    other.margin = 0.9
    _compare(other, "cpu", INDEX)
    del original
    gc.collect()
    _compare(copied(other), "cpu", INDEX)


@pytest.mark.long
def test_code_is_generated_around_it() -> None:
    torch.compiler.reset()
    model = Model(objective("nt-xent(learned=true)"))
    plain = _gradients(model, "cpu", None)
    compiled = torch.compile(model, fullgraph=True)
    for one, other in zip(_gradients(compiled, "cpu", None), plain, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_second_derivatives_are_refused_in_words() -> None:
    x, y = torch.randn(4, 5, requires_grad=True), torch.randn(4, 5, requires_grad=True)
    with pytest.raises(InputError, match="second derivatives"):
        torch.autograd.grad(objective("nt-xent")(x, y), x, create_graph=True)
