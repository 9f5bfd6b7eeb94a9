"""The objectives on a GPU: time, memory, and the ratio to the floor and to everybody else.

A helper of `objectives.py`. The floor is three bare matrix products of the same batch
(similarities, gradients of images, gradients of texts) in the same precision, measured in the same
run. Sizes come in the order of their interest, and stop when the time is up. Small batches are
recorded and replayed by the package itself; beside them stands the whole step, forward and
backward, captured in one CUDA graph, as a training loop may do it.
"""

import math
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from common import MIB, Row, best_time, cuda_peak_above, goal, installed, row, timed
from torch import Tensor

Step = Callable[[], Any]
MakeStep = Callable[..., Step]
NAMES = ("nt-xent", "triplet", "triplet-sh", "smooth-ap", "siglip", "goal")
SIZES = ((8192, 512), (65536, 512), (1024, 512), (32768, 512), (65536, 1024), (8192, 1024),
         (32768, 1024), (1024, 1024))  # fmt: skip
KINDS = (torch.float32, torch.bfloat16)
PLAIN = ("nt-xent", "siglip", "triplet", "triplet-sh")
# With their packages, and the largest batch that is measured: PML's needs 26 GiB for 1,024 pairs
# and grows with their cube: for 8,192 it would be 512 times that.
PEERS = {
    "nt-xent": (("open_clip ClipLoss", "open_clip", 32768),
                ("Liger fused cross entropy", "liger_kernel", 32768),
                ("PML NTXentLoss", "pytorch_metric_learning", 1024)),
    "siglip": (("open_clip SigLipLoss", "open_clip", 32768),),
}  # fmt: skip
# Why a goal is missed, where it is.
_HOST = (
    "the captured step beside it, and what it takes the host to start a recorded batch, to copy "
    "its vectors in and its gradients out"
)
_TWICE = (
    "its sums come before its weights, so similarities are made twice: four products, not three, "
    "two of them in tiles of our own"
)
_TILES = (
    "similarities are made and weighed in tiles of our own, whose rate is below the library's bare "
    "product"
)
_WHOLE = (
    "it keeps the whole matrix of similarities, so its memory grows with the square of the batch"
)
_SMALL = "captured, neither waits for the host, and a small matrix costs the plain loss little"
_NEAR = "within 2x of the floor"
_PER_PAIR = 24  # bytes of temporaries for every similarity of a plain loss, about


def embeddings(batch: int, width: int, kind: torch.dtype, device: str = "cuda") -> list[Tensor]:
    """Captions, and images near their own."""
    generator = torch.Generator(device).manual_seed(0)
    texts = torch.randn(batch, width, generator=generator, device=device)
    noise = torch.randn(batch, width, generator=generator, device=device)
    return [x.to(kind).requires_grad_() for x in (texts + 4 * noise, texts)]


def _seconds(step: Step, budget: float = 0.12) -> float:
    return best_time(lambda: timed(step, "cuda"), budget, 10)


def floor_of(batch: int, width: int, kind: torch.dtype) -> float:
    """Seconds of three bare products, some rows at a time where they would not fit."""
    rows = min(batch, 2**28 // batch)
    x, y = (torch.randn(n, width, device="cuda", dtype=kind) for n in (rows, batch))
    weights = torch.randn(rows, batch, device="cuda", dtype=kind)

    def products() -> None:
        x @ y.t()
        weights @ y
        weights.t() @ x

    products()
    return _seconds(products) * batch / rows


def run_cuda(make: MakeStep, quick: bool = False, budget: float = 120.0) -> list[Row]:
    """float32 with TF32, and bfloat16."""
    if not torch.cuda.is_available():
        raise SystemExit("there is no CUDA device here.")
    torch.set_float32_matmul_precision("high")
    start, rows = time.perf_counter(), []
    deadline = start + (20.0 if quick else budget)
    for batch, width in SIZES[:2] if quick else SIZES:
        for kind in KINDS:
            if time.perf_counter() > deadline:
                print(f"stopped before B={batch} d={width}: time is up", file=sys.stderr)
                return rows
            rows += _of_size(make, batch, width, kind)
            torch.cuda.empty_cache()
    for batch in (8192, 32768):
        for name in PLAIN[:2]:
            if not quick and time.perf_counter() < deadline:
                rows += _compiled(make, name, batch)
    return rows


def _of_size(make: MakeStep, batch: int, width: int, kind: torch.dtype) -> list[Row]:
    least = floor_of(batch, width, kind)
    label = "TF32" if kind == torch.float32 else "bf16"
    setting = f"B={batch} d={width} {label} CUDA"
    images, texts = embeddings(batch, width, kind)
    rows = [row("floor: three products", setting, seconds=least)]
    for name in NAMES:
        seconds, peak, value = _measured(make(name, images, texts), images, texts)
        wanted = {}
        if batch >= 8192:
            wanted = goal(_NEAR, seconds <= 2 * least, _why(name, batch))
        rows.append(
            row(name, setting, seconds=seconds, peak_mib=peak, floor=least, ratio=least / seconds,
                **wanted)
        )  # fmt: skip
        for peer in _peers(name, batch, width):
            try:
                theirs, their_peak, their_value = _measured(
                    make(peer, images, texts), images, texts
                )
            except Exception as error:  # others' code: whatever it may raise
                print(f"left out: {peer}, {setting} ({str(error)[:200]})", file=sys.stderr)
                continue
            close = 0.02 if kind == torch.float32 else 0.2
            if not peer.startswith("PML") and not math.isclose(value, their_value, rel_tol=close):
                print(f"{peer}: {their_value}, {name}: {value}, {setting}", file=sys.stderr)
            ratio = theirs / seconds
            rows.append(
                row(f"{name} / {peer}", setting, seconds=theirs, peak_mib=their_peak, ratio=ratio,
                    **goal(">= 1x", ratio >= 0.95, _why(name, batch)))
            )  # fmt: skip
        if batch <= 8192:
            rows += _captured_rows(name, images, texts, value, least, setting)
    return rows


def _captured_rows(
    name: str, images: Tensor, texts: Tensor, value: float, least: float, setting: str
) -> list[Row]:
    """The same step, captured; and the plain loss, captured too."""
    ours = _captured(name, images, texts, value, setting)
    if ours is None:
        return [row(f"{name}, captured", setting, **goal("runs", False, "it cannot be captured"))]
    wanted, why = {}, _SMALL
    if len(images) >= 8192:
        # Of a batch that is one block, all others keep what they have seen.
        twice = name == "smooth-ap" and images.dtype == torch.bfloat16
        why = _TWICE if twice else _TILES
        wanted = goal(_NEAR, ours <= 2 * least, why)
    rows = [
        row(f"{name}, captured", setting, seconds=ours, floor=least, ratio=least / ours, **wanted)
    ]
    if name in PLAIN:
        theirs = _captured(f"plain {name}", images, texts, value, setting)
        if theirs is not None:
            rows.append(
                row(f"{name}, captured / plain {name}, captured", setting, seconds=theirs,
                    ratio=theirs / ours, **goal(">= 1x", theirs >= 0.95 * ours, why))
            )  # fmt: skip
    return rows


def _captured(name: str, images: Tensor, texts: Tensor, value: float, setting: str) -> float | None:
    """Seconds of a step replayed from a CUDA graph; None if it cannot be captured."""
    import plain

    from simgrad.objectives import objective

    loss: Any = plain.step(name) if name.startswith("plain") else objective(name).to("cuda")
    learned = [] if name.startswith("plain") else [p for p in loss.parameters() if p.requires_grad]

    def step() -> tuple[Tensor, ...]:
        result: Tensor = loss(images, texts)
        return (result.detach(), *torch.autograd.grad(result, [images, texts, *learned]))

    graph, aside = torch.cuda.CUDAGraph(), torch.cuda.Stream()  # type: ignore[no-untyped-call]
    try:
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            for _ in range(2):
                step()
        torch.cuda.current_stream().wait_stream(aside)
        with torch.cuda.graph(graph):
            result = step()
        graph.replay()
        got, close = float(result[0]), 0.2 if name.startswith("plain") else 0.02
        if not math.isclose(got, value, rel_tol=close):
            print(f"{name}, captured: {got}, not {value}, {setting}", file=sys.stderr)
        return _seconds(graph.replay)
    except RuntimeError as error:
        print(f"{name}, {setting}: not captured ({str(error)[:200]})", file=sys.stderr)
        return None


def _why(name: str, batch: int) -> str:
    if batch <= 8192:
        return _HOST
    return _TWICE if name in ("nt-xent", "smooth-ap") else _TILES


def _peers(name: str, batch: int, width: int) -> list[str]:
    """Those that compute the same, fit, and are not a second's work."""
    fits = batch * batch * _PER_PAIR < torch.cuda.get_device_properties(0).total_memory
    found = [f"plain {name}"] if name in PLAIN and fits and batch <= 32768 else []
    if name == "siglip" and batch >= 8192:
        found.append("plain chunked siglip")
    if width == 512:
        found += [
            peer
            for peer, package, most in PEERS.get(name, ())
            if batch <= most and installed(package, peer)
        ]
    return found


def _measured(step: Step, images: Tensor, texts: Tensor) -> tuple[float, float, float]:
    """Seconds, MiB above the gradients, and the value."""
    images.grad = texts.grad = None
    kept, gradients = _kept(), 2 * images.numel() * images.element_size() / MIB
    for _ in range(3):  # compiles what there is to compile, records what is recorded
        step()
    images.grad = texts.grad = None
    kept, values = max(0.0, _kept() - kept), list[float]()
    peak = cuda_peak_above(lambda: values.append(step())) - gradients
    return _seconds(step), max(0.0, peak) + kept, values[0]


def _kept() -> float:
    """MiB that are not given back: what is in use, and the memory of CUDA graphs."""
    torch.cuda.empty_cache()
    return torch.cuda.memory_reserved() / MIB


def _compiled(make: MakeStep, name: str, batch: int) -> list[Row]:
    """torch.compile of the plain loss."""
    images, texts = embeddings(batch, 512, torch.float32)
    ours, *_ = _measured(make(name, images, texts), images, texts)
    theirs, peak, _ = _measured(make(f"compiled {name}", images, texts), images, texts)
    ratio = theirs / ours
    return [
        row(f"{name} / torch.compile of plain", f"B={batch} d=512 TF32 CUDA", seconds=theirs,
            peak_mib=peak, ratio=ratio, **goal(">= 1x", ratio >= 0.95, _WHOLE))
    ]  # fmt: skip


def profile(make: MakeStep, device: str) -> str:
    """Where a step's time goes: `tile` makes similarities and what follows from them."""
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as record

    gpu = device == "cuda"
    torch.set_float32_matmul_precision("high")
    kinds = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if gpu else [])]
    texts = []
    for batch in (8192, 32768) if gpu else (512,):
        for kind in KINDS if gpu else KINDS[:1]:
            pair = embeddings(batch, 512, kind, device)
            for name in NAMES:
                step = make(name, *pair)
                step()
                with record(activities=kinds) as found:
                    step()
                head = f"{name}, B={batch} d=512 {str(kind).removeprefix('torch.')}"
                texts.append(f"{head}\n{_largest(found.key_averages(), gpu)}")
    return "\n\n".join(texts) + "\n"


def _largest(events: Any, gpu: bool, most: int = 12) -> str:
    """The events that take most time by themselves; on a GPU, its kernels."""
    own = "self_device_time_total" if gpu else "self_cpu_time_total"  # microseconds
    found = [e for e in events if not gpu or str(e.device_type).endswith("CUDA")]
    found.sort(key=lambda event: -getattr(event, own))
    total, count = sum(getattr(e, own) for e in found), sum(e.count for e in found)
    lines = [f"{total / 1e3:9.3f} ms {count:4} in all"]
    lines += [f"{getattr(e, own) / 1e3:9.3f} ms {e.count:4} x  {e.key[:90]}" for e in found[:most]]
    return "\n".join(lines)
