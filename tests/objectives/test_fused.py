"""The fused kernels of a GPU give what PyTorch's operations give; without them all still works."""

import os
import warnings

import pytest
import torch
from torch import Tensor

from simgrad.core import gpu
from simgrad.objectives import Objective, Offline, Positives, fused, objective, tiles
from simgrad.objectives.rows import Work
from simgrad.objectives.tiles import SHAPES, Shape

from .cases import everything, names
from .emulated import stand_in, without_a_gpu

# On either side of where exponentials of all similarities are numbers.
STEEP = ("nt-xent(tau=0.05)", "nt-xent(tau=0.01)", "smooth-ap(tau=0.005)", "goal(beta=100)")
STREAMED = [o for o in (*everything(), *map(objective, STEEP)) if o.stream() is not None]
each_objective = pytest.mark.parametrize("o", STREAMED, ids=names(STREAMED))
interpreted = pytest.mark.skipif(
    os.environ.get("TRITON_INTERPRET") != "1", reason="needs Triton, and TRITON_INTERPRET=1"
)
on_a_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")


def _gradients(
    o: Objective, device: str, dtype: torch.dtype, positives: Tensor | None, width: int = 72
) -> list[Tensor]:
    """300 texts: more than two tiles, the last uneven; and a width that no tile divides."""
    generator = torch.Generator().manual_seed(0)
    images = 300 if positives is None else int(positives.max()) + 1
    x, y = (torch.randn(n, width, generator=generator) for n in (images, 300))
    given = [v.to(device, dtype).requires_grad_() for v in (x, y)]
    offline = None
    if o.needs_offline:
        offline = Offline(*torch.rand(4, 300, generator=generator).to(device))
    learned = [p for p in o.to(device).parameters() if p.requires_grad]
    index = None if positives is None else positives.to(device)
    loss = o(*given, index, offline)
    return [loss.detach(), *torch.autograd.grad(loss, [*given, *learned])]


def _close(one: Tensor, other: Tensor, share: float = 0.02) -> bool:
    """In length: a similarity that is rounded otherwise may choose another hardest negative."""
    return bool((one.double() - other.double()).norm() <= share * other.double().norm() + 1e-4)


@pytest.mark.cuda
@on_a_gpu
@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@each_objective
def test_fused_equals_plain(
    o: Objective, dtype: torch.dtype, several: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("triton")
    torch.set_float32_matmul_precision("high")
    positives = torch.arange(300) % 110 if several else None
    try:
        plain = _gradients(o, "cuda", dtype, positives)
        monkeypatch.setattr(fused, "_LEAST", 1)
        monkeypatch.setattr(fused, "_BLOCK", 300 * 128 * 4)  # several blocks
        taken: list[Objective] = []
        weigh = fused.weigh_fused
        monkeypatch.setattr(fused, "weigh_fused", lambda w, *a: taken.append(o) or weigh(w, *a))
        got = _gradients(o, "cuda", dtype, positives)
    finally:
        torch.set_float32_matmul_precision("highest")
        o.to("cpu")
    stream = o.stream()
    assert stream is not None
    assert stream.tile not in gpu._broken
    assert len(taken) == (0 if several and stream.per_pair else 1)
    # In blocks positives are not rounded, in one piece they are: the narrowest sigmoid sees that.
    narrow = dtype == torch.bfloat16 and str(o) == "smooth-ap(tau=0.005)"
    for one, other in zip(got, plain, strict=True):
        assert _close(one, other, 0.04 if narrow else 0.02), f"{one} is not {other}"


@pytest.mark.cuda
@on_a_gpu
@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    "spec", ["nt-xent", "nt-xent(tau=0.05)", "nt-xent(tau=0.01)", "smooth-ap", "smooth-ap(tau=0.1)"]
)
def test_one_block_equals_plain(
    spec: str, dtype: torch.dtype, several: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is kept, where the scale and the precision allow it."""
    pytest.importorskip("triton")
    o, positives = objective(spec), torch.arange(300) % 110 if several else None
    if several and spec.startswith("smooth-ap"):
        pytest.skip("no kernels for this")
    torch.set_float32_matmul_precision("high")
    try:
        plain = _gradients(o, "cuda", dtype, positives)
        monkeypatch.setattr(fused, "_LEAST", 1)
        got = _gradients(o, "cuda", dtype, positives)
    finally:
        torch.set_float32_matmul_precision("highest")
    assert gpu._broken.isdisjoint({"softmax", "rank"})
    for one, other in zip(got, plain, strict=True):
        assert _close(one, other), f"{one} is not {other}"


@pytest.mark.cuda
@on_a_gpu
@pytest.mark.parametrize(
    ("name", "home"),
    [("nt-xent", "cuda"), ("triplet-sh", "cuda"), ("siglip", "cuda"),
     ("siglip(learned=false)", "cpu")],
)  # fmt: skip
def test_captured_after_a_step_outside(
    name: str, home: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("triton")
    monkeypatch.setattr(gpu, "_ran", set())
    o, taken, weigh = objective(name).to(home), [], fused.weigh_fused
    monkeypatch.setattr(fused, "weigh_fused", lambda w, *a: taken.append(w) or weigh(w, *a))
    given = [torch.zeros(8192, 64, device="cuda").requires_grad_() for _ in range(2)]
    learned = [p for p in o.parameters() if p.requires_grad]

    def step() -> tuple[Tensor, ...]:
        loss = o(*given)
        return (loss.detach(), *torch.autograd.grad(loss, [*given, *learned]))

    def fill(seed: int) -> None:
        generator = torch.Generator("cuda").manual_seed(seed)
        with torch.no_grad():
            for x in given:
                x.normal_(generator=generator)

    torch.set_float32_matmul_precision("high")
    try:
        fill(0)
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            step()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            captured = step()
        fill(1)
        graph.replay()
        torch.cuda.synchronize()
        again = [x.clone() for x in captured]
        eager = step()
    finally:
        torch.set_float32_matmul_precision("highest")
    assert len(taken) == 3  # warm-up, capture, eager
    for one, other in zip(again, eager, strict=True):
        assert _close(one, other), f"{one} is not {other}"


def test_only_calls_that_ran_before_are_captured(monkeypatch: pytest.MonkeyPatch) -> None:
    """As far as that can be told without a GPU: the same call is found again, another is not."""
    seen: list[object] = []
    stand_in(monkeypatch)
    monkeypatch.setattr(gpu, "_ran", set())
    without_a_gpu(monkeypatch, 384)
    for spec, width in (("nt-xent", 8), ("nt-xent", 8), ("nt-xent", 16), ("nt-xent(tau=0.2)", 8)):
        _gradients(objective(spec), "cpu", torch.float32, None, width)
        seen.append(len(gpu._ran))
    several = torch.arange(300) % 110  # the host counts their blocks
    _gradients(objective("nt-xent"), "cpu", torch.float32, several, 24)
    assert [*seen, len(gpu._ran)] == [1, 1, 2, 3, 3]


@pytest.mark.parametrize("rows", [128, 384])  # of a block: several blocks, and one
@pytest.mark.parametrize("several", [False, True])
@each_objective
def test_what_surrounds_the_kernels(
    o: Objective, several: bool, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel emulated: what it is given, where its parts lie, and what is made of them."""
    stream = o.stream()
    assert stream is not None
    if stream.tile is None or (several and stream.per_pair):
        pytest.skip("no kernels for this")
    positives = torch.arange(300) % 110 if several else None
    plain = _gradients(o, "cpu", torch.float32, positives)
    kernels = stand_in(monkeypatch)
    without_a_gpu(monkeypatch, rows)
    got = _gradients(o, "cpu", torch.float32, positives)
    assert stream.tile not in gpu._broken
    blocks = -(-300 // rows)  # of about as many pairs as rows
    # One block, its scale known and not too large, keeps what it has seen.
    taus = {"softmax": (0.1, 0.3, 0.05), "rank": (0.01, 0.1)}.get(stream.tile, ())
    kept = getattr(o, "tau", None) in taus and not list(o.parameters()) and blocks == 1
    twice = fused._RULES[stream.tile][1] is not None and not kept
    assert kernels["tile"].launches == blocks * (2 if twice else 1)
    finished = kernels["normalise"].launches, kernels["rank"].launches
    assert finished == (int(kept and stream.tile == "softmax"), int(kept and stream.tile == "rank"))
    for one, other in zip(got, plain, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


@interpreted
@pytest.mark.parametrize(
    "shape", [Shape(128, 128, 64, 8, 3), Shape(64, 256, 32, 4, 3, 2, 99, True)]
)
@pytest.mark.parametrize("rows", [128, 384])
@pytest.mark.parametrize("several", [False, True])
@each_objective
def test_interpreted_equals_plain(
    o: Objective, several: bool, rows: int, shape: Shape, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernels themselves, worked by Triton's interpreter on a CPU."""
    monkeypatch.setattr(fused, "SHAPES", dict.fromkeys(SHAPES, shape))
    monkeypatch.setattr(tiles, "_limits", lambda _: (2**30, True))
    stream = o.stream()
    assert stream is not None
    if stream.tile is None or (several and stream.per_pair):
        pytest.skip("no kernels for this")
    positives = torch.arange(300) % 110 if several else None
    plain = _gradients(o, "cpu", torch.float32, positives)
    without_a_gpu(monkeypatch, rows)
    got = _gradients(o, "cpu", torch.float32, positives)
    assert stream.tile not in gpu._broken
    for one, other in zip(got, plain, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("spec", "bounded"),
    [("nt-xent(tau=0.02)", True), ("nt-xent(tau=0.015)", False),
     ("nt-xent(learned=true)", False), ("smooth-ap", True), ("smooth-ap(tau=0.005)", False),
     ("goal(beta=64)", True), ("goal(beta=65)", False), ("triplet", True)],
)  # fmt: skip
def test_exponentials_without_maxima_where_they_are_numbers(spec: str, bounded: bool) -> None:
    o, x = objective(spec), torch.randn(5, 4)
    stream, (scale, bias) = o.stream(), o.affine()
    assert stream is not None
    known = 1.0 if scale is None else scale.detach() if scale.requires_grad else float(scale)
    z, pairs = torch.cat([x, x]), Positives.diagonal(5, x.device)
    work = Work(o, bias, pairs, (None, None), 25, z, z, known)
    assert fused.FusedTiles(work, stream).bounded == bounded


def test_kernels_that_do_not_run_are_said_once_and_done_without(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    o = objective("nt-xent")
    plain = _gradients(o, "cpu", torch.float32, None)
    monkeypatch.setattr(gpu, "_broken", set())
    monkeypatch.setattr(fused, "suits", lambda work, stream, *_: stream.tile not in gpu._broken)
    with pytest.warns(UserWarning, match="fused kernels do not run here"):
        first = _gradients(o, "cpu", torch.float32, None)  # tensors of a CPU: no kernel takes them
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        second = _gradients(o, "cpu", torch.float32, None)
    for one, two, three in zip(plain, first, second, strict=True):
        torch.testing.assert_close(one, two, rtol=0, atol=0)
        torch.testing.assert_close(one, three, rtol=0, atol=0)


def test_a_hardest_negative_beyond_the_edge_is_none() -> None:
    o, x = objective("triplet-sh"), torch.randn(5, 4)
    stream, pairs = o.stream(), Positives.diagonal(5, x.device)
    assert stream is not None
    z = torch.cat([x, x])
    worked = fused.FusedTiles(Work(o, None, pairs, (None, None), 25, z, z), stream)
    parts = torch.tensor([[[0.5, -torch.inf]], [[3.0, 127.0]]])  # (summaries, tiles, queries)
    assert worked._merged(parts, 5)[1].tolist() == [3, 4]


def test_a_cpu_and_a_small_batch_take_no_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object) -> None:
        raise AssertionError("a fused kernel was started")

    monkeypatch.setattr(fused, "weigh_fused", never)
    for o in STREAMED:
        _gradients(o, "cpu", torch.float32, None)
