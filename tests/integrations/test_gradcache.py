"""A batch in pieces has the gradient of the whole batch: dropout, autocast, DDP, loss scaling."""

import os
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import simgrad
from simgrad.core.errors import InputError
from simgrad.integrations import GradCache
from simgrad.objectives.engine import fused
from simgrad.objectives.engine.ring import Processes
from tests.objectives.processes import Workers

GPU = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]


class Rows(nn.Module):
    """Dropout whose numbers a test can see: the same for a row in whichever piece it comes."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.first, self.drop, self.last = nn.Linear(5, 7), nn.Dropout(0.5), nn.Linear(7, 4)
        self.drawn: list[Tensor] = []

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.drop(torch.relu(self.first(x)))
        self.drawn.append((hidden == 0).detach())
        return self.last(hidden)


def gradients(*modules: nn.Module) -> list[Tensor]:
    found = [p.grad for m in modules for p in m.parameters()]
    for m in modules:
        m.zero_grad()
    assert all(g is not None for g in found)
    return [g for g in found if g is not None]


def batches(rows: int = 11) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    x, y = (torch.randn(rows, 5, generator=generator) for _ in range(2))
    return x, y


@pytest.mark.parametrize("piece", [1, 4, 11, 50])
@pytest.mark.parametrize("spec", ["nt-xent(learned=true)", "goal", "triplet"])
def test_pieces_have_the_gradient_of_the_whole(spec: str, piece: int) -> None:
    o, (x, y) = simgrad.objective(spec), batches()
    images, texts = Rows(0).eval(), Rows(1).eval()
    loss = o(images(x), texts(y))
    loss.backward()
    whole = gradients(images, texts, o)
    cache = GradCache([images, texts], piece)
    in_pieces = o(*cache.encode(x, y))
    cache.backward(3 * in_pieces)  # as a scaler would
    torch.testing.assert_close(in_pieces, loss)
    for one, other in zip(gradients(images, texts, o), whole, strict=True):
        torch.testing.assert_close(one, 3 * other, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("spec", ["nt-xent(learned=true)", "goal", "triplet"])
def test_the_loss_may_be_taken_in_blocks_or_by_query(spec: str) -> None:
    o, (x, y) = simgrad.objective(spec), batches()
    images, texts, sure = Rows(0).eval(), Rows(1).eval(), torch.linspace(0, 2, 11)

    def losses(images: Tensor, texts: Tensor) -> dict[str, Tensor]:
        found = {"blocks": o(images, texts, block=30), "graded": o(images, texts, weights=sure)}
        values = o.each(images, texts, block=30)
        return found | {"by query": (sure * values.i2t).sum() + values.t2i.square().sum()}

    for name in ("blocks", "graded", "by query"):
        losses(images(x), texts(y))[name].backward()
        whole = gradients(images, texts)
        cache = GradCache([images, texts], 4)
        cache.backward(losses(*cache.encode(x, y))[name])
        for one, other in zip(gradients(images, texts), whole, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("spec", ["nt-xent", "triplet", "goal(triplet=cir, pair=sig-ms)"])
def test_the_loss_may_be_taken_by_kernels(spec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("triton")
    if os.environ.get("TRITON_INTERPRET") != "1":
        pytest.skip("kernels are compiled here, not interpreted (tests/conftest.py)")
    o, (x, y) = simgrad.objective(spec), batches(37)
    images, texts = Rows(0).eval(), Rows(1).eval()
    o(images(x), texts(y)).backward()
    whole = gradients(images, texts)
    calls: list[int] = []
    real = fused.FusedTiles.first
    monkeypatch.setattr(fused, "INTERPRETED", True)
    counted = lambda *given: [calls.append(0), real(*given)][1]  # noqa: E731
    monkeypatch.setattr(fused.FusedTiles, "first", counted)
    cache = GradCache([images, texts], 8)
    cache.backward(o(*cache.encode(x, y)))
    assert calls
    for one, other in zip(gradients(images, texts), whole, strict=True):
        size = float(other.abs().max())
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4 * size)


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=GPU)])
def test_dropout_autocast_and_a_scaler_together(device: str) -> None:
    """The same random numbers both times; the gradient of the same pieces in one graph."""
    o, (x, y) = simgrad.objective("nt-xent"), (v.to(device) for v in batches(64))
    images, texts = (Rows(seed).train().to(device) for seed in (0, 1))
    dtype = torch.float16 if device == "cuda" else torch.bfloat16
    torch.manual_seed(5)
    with torch.autocast(device, dtype=dtype):
        pieces = [torch.cat([m(p) for p in v.split(16)]) for m, v in ((images, x), (texts, y))]
        loss = o(*pieces)
    (8 * loss).backward()
    whole = gradients(images, texts)
    torch.manual_seed(5)
    cache = GradCache([images, texts], 16)
    with torch.autocast(device, dtype=dtype):
        again = o(*cache.encode(x, y))
    scaler = torch.amp.GradScaler(device, init_scale=8.0)
    cache.backward(scaler.scale(again))
    torch.testing.assert_close(again, loss, rtol=1e-3, atol=1e-3)
    for one, other in zip(gradients(images, texts), whole, strict=True):
        size = float(other.abs().max())
        torch.testing.assert_close(one, other, rtol=0.05, atol=0.02 * size)


def test_dropout_is_the_same_both_times_and_draws_nothing_more() -> None:
    o, (x, y) = simgrad.objective("nt-xent"), batches()
    images, texts = Rows(0).train(), Rows(1).train()
    torch.manual_seed(5)
    cache = GradCache([images, texts], 4)
    vectors = cache.encode(x, y)
    state = torch.get_rng_state()
    loss = o(*vectors)
    cache.backward(loss)
    assert torch.equal(torch.get_rng_state(), state)
    for network in (images, texts):
        first, again = network.drawn[:3], network.drawn[3:]
        assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
        assert not torch.equal(first[0], first[1])  # a piece has numbers of its own
    found = gradients(images, texts)
    # The same numbers in one graph: piece by piece, but kept.
    torch.manual_seed(5)
    kept = [torch.cat([m(part) for part in v.split(4)]) for m, v in ((images, x), (texts, y))]
    o(*kept).backward()
    for one, other in zip(found, gradients(images, texts), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("backward_inside", [True, False])
def test_autocast_is_the_same_both_times(backward_inside: bool) -> None:
    """Also inside one autocast, which keeps weights: those of the first pass have no graph."""
    o, (x, y) = simgrad.objective("nt-xent"), batches()
    images, texts = Rows(0).eval(), Rows(1).eval()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        kept = [m(v) for m, v in ((images, x), (texts, y))]
    o(*kept).backward()
    whole = gradients(images, texts)
    assert kept[0].dtype == torch.bfloat16
    cache = GradCache([images, texts], 4)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        vectors = cache.encode(x, y)
        assert vectors[0].dtype == torch.bfloat16
        loss = o(*vectors)
        if backward_inside:
            cache.backward(loss)
    if not backward_inside:
        cache.backward(loss)
    for one, other in zip(gradients(images, texts), whole, strict=True):
        size = float(other.abs().max())
        torch.testing.assert_close(one, other, rtol=0.05, atol=0.02 * size)


def test_batches_of_any_form_and_one_encoder_for_both_sides() -> None:
    o, (x, y) = simgrad.objective("nt-xent"), batches()
    network = Rows(0).eval()
    o(network(x + y), network(x * y)).backward()
    whole = gradients(network)
    words = [str(k) for k in range(11)]

    def spoken(batch: tuple[dict[str, Tensor], list[str]]) -> Tensor:
        part, some = batch
        rows = torch.tensor([int(word) for word in some])
        return network(part["a"] + y[rows])

    cache = GradCache([spoken, lambda pair: network(pair[0] * pair[1])], 3)
    cache.backward(o(*cache.encode(({"a": x}, words), (x, y))))
    for one, other in zip(gradients(network), whole, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


def test_a_locked_encoder_gets_nothing() -> None:
    o, (x, y) = simgrad.objective("nt-xent"), batches()
    images, texts = Rows(0).eval(), Rows(1).eval().requires_grad_(False)
    cache = GradCache([images, texts], 3)
    cache.backward(o(*cache.encode(x, y)))
    assert gradients(images)
    assert all(p.grad is None for p in texts.parameters())


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: GradCache([Rows(0)], 0), "number of rows"),
        (lambda: GradCache([Rows(0)], 2).encode(*batches()), "1 encoders, and was given 2"),
        (lambda: GradCache([Rows(0)], 2).backward(torch.zeros(())), "call `encode` first"),
        (lambda: GradCache([Rows(0)], 2).encode((torch.ones(2, 5), torch.ones(3, 5))), r"\[2, 3\]"),
        (lambda: GradCache([lambda x: [x]], 2).encode(torch.ones(2, 5)), "not a list"),  # type: ignore[arg-type, return-value]
    ],
)
def test_what_does_not_fit_is_refused(call: Callable[[], Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        call()


def _shares(world: int) -> list[slice]:
    """Uneven, so that processes have different numbers of pieces."""
    ends = {1: [11], 2: [7, 11], 3: [7, 8, 11], 4: [5, 6, 9, 11]}[world]
    return [slice(*ends) for ends in zip([0, *ends], ends, strict=False)]


def _on_processes() -> None:
    """Gradients are exchanged once."""
    processes, (x, y) = Processes(), batches()
    mine = _shares(processes.size)[processes.rank]
    for spec in ("nt-xent(learned=true)", "goal", "triplet"):
        alone, o = (Rows(0).eval(), Rows(1).eval()), simgrad.objective(spec)
        o(alone[0](x), alone[1](y)).backward()
        whole = gradients(*alone)
        wrapped = [DistributedDataParallel(m) for m in (Rows(0).eval(), Rows(1).eval())]
        cache = GradCache(wrapped, 2)
        cache.backward(simgrad.distributed(o)(*cache.encode(x[mine], y[mine])))
        for one, other in zip(gradients(*wrapped), whole, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


@pytest.mark.long
@pytest.mark.parametrize("world", [1, 2, 3, 4])
def test_on_several_processes(world: int) -> None:
    workers = Workers(world)
    try:
        workers.run(_on_processes)
    finally:
        workers.stop()
