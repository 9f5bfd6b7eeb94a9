"""The same objectives on a GPU: equal to the CPU, in half precision, inside a CUDA graph."""

import pytest
import torch
from torch import Tensor

from simgrad.objectives import Objective, Offline, Positives, objective

from .cases import everything, names

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]

EVERYTHING = everything()
each_objective = pytest.mark.parametrize("o", EVERYTHING, ids=names(EVERYTHING))
INDEX = torch.arange(60) % 24


def _batch(dtype: torch.dtype, captions: int = 60) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(24, 32, generator=generator, dtype=torch.float64)
    texts = torch.randn(captions, 32, generator=generator, dtype=torch.float64)
    return images.to(dtype), texts.to(dtype)


def _gradients(o: Objective, device: str, dtype: torch.dtype, **options: int) -> list[Tensor]:
    images, texts = (x.to(device).requires_grad_() for x in _batch(dtype))
    offline = None
    if o.needs_offline:
        four = torch.rand(4, 60, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
        offline = Offline(*four.to(device, dtype))
    loss = o.to(device)(images, texts, INDEX.to(device), offline, **options)
    learned = [p for p in o.parameters() if p.requires_grad]
    return [x.cpu() for x in (loss.detach(), *torch.autograd.grad(loss, [images, texts, *learned]))]


@pytest.mark.parametrize("block", [None, 500])
@each_objective
def test_equal_to_the_cpu(o: Objective, block: int | None) -> None:
    options = {} if block is None else {"block": block}
    expected = _gradients(o, "cpu", torch.float64, **options)
    got = _gradients(o, "cuda", torch.float64, **options)
    for one, other in zip(got, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-9)


def _calls(o: Objective, device: str, dtype: torch.dtype, block: int | None) -> list[Tensor]:
    """Values of each query, one direction alone, graded pairs, labels of one batch."""
    images, texts = (x.to(device).requires_grad_() for x in _batch(dtype))
    index, o = INDEX.to(device), o.to(device)
    each = o.each(images, texts, index, block=block)
    losses = {"each": each.i2t.square().sum() + each.t2i.sum()}
    losses["within"] = o.within(texts, index, block=block)
    if o.graded:
        sure = torch.linspace(0, 2, len(texts), device=device, dtype=dtype)
        losses["graded"] = o(images, texts, index, weights=sure, block=block)
    try:
        o.direction = "t2i"
        losses["one way"] = o(images, texts, index, block=block)
    finally:
        o.direction = "both"
    found = [v.detach() for v in each]
    for loss in losses.values():
        given = torch.autograd.grad(loss, [images, texts], allow_unused=True)
        found += [loss.detach(), *(g for g in given if g is not None)]
    return [x.cpu() for x in found]


# Nothing that is drawn, and rows that have values of their own.
CALLED = [o for o in EVERYTHING if not o.needs_offline and o.separable]


@pytest.mark.parametrize("block", [None, 500])
@pytest.mark.parametrize("o", CALLED, ids=names(CALLED))
def test_the_calls_people_know_are_those_of_the_cpu(o: Objective, block: int | None) -> None:
    expected = _calls(o, "cpu", torch.float64, block)
    for one, other in zip(_calls(o, "cuda", torch.float64, block), expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("block", [None, 500])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@each_objective
def test_half_precision_is_close_to_exact(
    o: Objective, dtype: torch.dtype, block: int | None
) -> None:
    """Products of unit vectors in bfloat16, everything else in float32."""
    options = {} if block is None else {"block": block}
    got = _gradients(o, "cuda", dtype, **options)
    images, texts = _batch(dtype)
    assert got[1].dtype == got[2].dtype == dtype
    assert images.shape == got[1].shape
    assert texts.shape == got[2].shape
    exact = _gradients(o, "cpu", torch.float32, **options)
    torch.testing.assert_close(got[0].float(), exact[0], rtol=0.05, atol=0.05)
    for one, other in zip(got[1:3], exact[1:3], strict=True):
        cosine = torch.cosine_similarity(one.float().flatten(), other.flatten(), dim=0)
        # A hinge at its edge or a narrow sigmoid may see a rounded similarity on the other side.
        assert cosine > 0.97, f"{cosine}"


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@each_objective
def test_autocast_with_a_grad_scaler(o: Objective, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    encoder = torch.nn.Linear(32, 32).cuda()
    before = encoder.weight.detach().clone()
    optimiser = torch.optim.SGD(encoder.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cuda", init_scale=256.0)
    images, texts = (x.cuda() for x in _batch(torch.float32))
    offline = Offline(*torch.rand(4, 60, device="cuda")) if o.needs_offline else None
    with torch.autocast("cuda", dtype=dtype):
        loss = o.to("cuda")(encoder(images), encoder(texts), INDEX.cuda(), offline)
    scaler.scale(loss).backward()
    scaler.unscale_(optimiser)
    assert encoder.weight.grad is not None
    assert encoder.weight.grad.isfinite().all()
    scaler.step(optimiser)
    assert not torch.equal(before, encoder.weight)


@pytest.mark.parametrize("kind", ["padded", "index", "square"])
@each_objective
def test_captured_in_a_graph(o: Objective, kind: str) -> None:
    """A batch of fixed shape, replayed with other values than it was captured with."""
    o = o.to("cuda")
    many = 60 if kind == "square" else 30
    images = torch.zeros(many, 32, device="cuda").requires_grad_()
    texts = torch.zeros(60, 32, device="cuda").requires_grad_()
    index = torch.zeros(60, dtype=torch.long, device="cuda")
    present = torch.zeros(30, dtype=torch.bool, device="cuda")
    four = torch.rand(4, 60, device="cuda")
    offline = Offline(*four) if o.needs_offline else None
    learned = [p for p in o.parameters() if p.requires_grad]

    def step() -> tuple[Tensor, ...]:
        positives: Positives | Tensor | None = None
        if kind != "square":
            padded = kind == "padded"
            positives = Positives.of_captions(index, 30, present) if padded else index
        loss = o(images, texts, positives, offline)
        return (loss.detach(), *torch.autograd.grad(loss, [images, texts, *learned]))

    def fill(seed: int, count: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            images.copy_(torch.randn(many, 32, generator=generator))
            texts.copy_(torch.randn(60, 32, generator=generator))
            index.copy_((torch.arange(60) + seed) % (count if kind == "padded" else 30))
            present.copy_(torch.arange(30) < count)

    fill(0, 24)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = step()
    fill(1, 20)
    graph.replay()
    torch.cuda.synchronize()
    for one, other in zip(captured, step(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_memory_grows_with_the_batch_not_its_square() -> None:
    images, texts = (torch.randn(32768, 64, device="cuda").requires_grad_() for _ in range(2))
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    objective("nt-xent")(images, texts, block=2**24).backward()
    assert torch.cuda.max_memory_allocated() - before < 2**30  # 32768² floats would be 4 GiB
