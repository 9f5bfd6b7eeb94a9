"""Numbers under stress: every objective gives finite weights or says why not."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from simgrad.core.errors import InputError
from simgrad.objectives import Offline, objective, objectives
from simgrad.training import train
from simgrad.training.trouble import TrainingError
from tests.hardening.jobs import dataset, recipe

NAMES = [declaration.name for declaration in objectives]
N = 6


def noisy(seed: int = 0) -> Tensor:
    return 2 * torch.rand(N, N, generator=torch.Generator().manual_seed(seed)) - 1


BATCHES: dict[str, Callable[[], Tensor]] = {
    "all equal": lambda: torch.full((N, N), 0.5),
    "all zero": lambda: torch.zeros(N, N),
    "all one": lambda: torch.ones(N, N),
    "all minus one": lambda: -torch.ones(N, N),
    "perfect": lambda: 2 * torch.eye(N) - 1,
    "upside down": lambda: 1 - 2 * torch.eye(N),
    "one caption repeated": lambda: noisy()[:, :1].repeat(1, N),
    "one image repeated": lambda: noisy()[:1].repeat(N, 1),
    "one pair": lambda: torch.tensor([[0.3]]),
    "two pairs": lambda: noisy()[:2, :2],
    "denormals": lambda: noisy() * 1e-42,
    "barely apart": lambda: 0.5 + noisy() * 1e-7,
    "slightly above one": lambda: 1 + noisy().abs() * 1e-6,
    "large": lambda: noisy() * 1e4,
    "half precision": lambda: noisy().half(),
    "half precision at its end": lambda: (noisy() * 6e4).half(),
    "brain precision": lambda: noisy().bfloat16(),
    "double": lambda: noisy().double(),
}
EXTREMES = {
    "triplet": ["margin=1e30", "margin=0", "margin=1e-300"],
    "triplet-sh": ["margin=1e30", "margin=0"],
    "nt-xent": ["tau=1e-30", "tau=1e30", "tau=0.01, learned=true"],
    "debiased-nt-xent": ["tau=1e-30", "tau=1e30"],
    "smooth-ap": ["tau=1e-30", "tau=1e30"],
    "siglip": ["scale=1e30", "offset=-1e30", "offset=1e30"],
}


def offline(spec: str, similarities: Tensor) -> Offline | None:
    if not objective(spec).needs_offline:
        return None
    return Offline(*(similarities.diagonal().clone() for _ in range(4)))


def check(spec: str, similarities: Tensor) -> None:
    """Finite, or an error in plain words."""
    chosen = objective(spec)
    outside = offline(spec, similarities)
    S = similarities.clone().requires_grad_()
    try:
        weights = chosen.weigh(similarities, offline=outside)
        value = chosen.on(S, offline=outside)
    except InputError:
        assert similarities.abs().max() > 1 or "(" in spec, "cosines are what it is made for"
        return
    for part in (weights.i2t, weights.t2i):
        assert torch.isfinite(part).all(), spec
    assert torch.isfinite(value), spec
    value.backward()
    assert S.grad is not None
    assert torch.isfinite(S.grad).all(), spec


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("name", NAMES)
def test_every_objective_on_odd_batches(name: str, batch: str) -> None:
    check(name, BATCHES[batch]())


@pytest.mark.parametrize("spec", [f"{n}({p})" for n, ps in EXTREMES.items() for p in ps])
def test_extreme_parameters(spec: str) -> None:
    for batch in ("all equal", "one pair", "one caption repeated", "perfect", "denormals"):
        check(spec, BATCHES[batch]())
    check(spec, noisy())


@pytest.mark.parametrize("name", NAMES)
def test_the_smallest_number_of_each_parameter(name: str) -> None:
    for parameter in objectives[name].parameters:
        if parameter.limits.above == 0:
            check(f"{name}({parameter.name}=1e-30)", noisy())
            with pytest.raises(InputError, match=f"'{parameter.name}' must be greater than 0, by"):
                objective(f"{name}({parameter.name}=1.4e-45)")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("name", NAMES)
def test_what_is_no_number_is_refused_with_its_row(name: str, value: float) -> None:
    S = noisy()
    S[2, 3] = value
    with pytest.raises(InputError, match="row 2"):
        objective(name).weigh(S, offline=offline(name, noisy()))


@pytest.mark.parametrize("name", [n for n in NAMES if not objective(n).needs_offline])
@pytest.mark.parametrize("precision", ["float32", "fp16"])
def test_training_never_leaves_a_nan(name: str, precision: str, tmp_path: Path) -> None:
    wild = recipe(
        objective=name, lr=10.0, clip=0.0, epochs=1, precision=precision, batch=64,
        checkpoint_seconds=1e9,
    )  # fmt: skip
    failed = False
    try:
        train(wild, tmp_path / "run", dataset=dataset(), quiet=True)
    except TrainingError:  # it may fail, if it says so
        failed = True
    written = list((tmp_path / "run").rglob("*.safetensors"))
    assert failed or written
    for file in written:
        for tensor in load_file(file).values():
            assert not tensor.is_floating_point() or torch.isfinite(tensor).all()
