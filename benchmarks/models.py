"""Models: training steps beside plainly written ones, and SCAN's similarities of a test set.

    python benchmarks/models.py            # two cores
    python benchmarks/models.py --cuda     # a GPU: training steps too
    python benchmarks/models.py --quick    # a smaller test set, fewer models

A step is forward, backward, clipping and Adam at batch 128. Ours runs in bfloat16 as a captured
CUDA graph, as training does; the plain one in eager float32, with the usual host-side packing and
reading of the loss. X-VLM and CLIP have no second version: the plain step is the same model in
eager float32 with attention written out. SCAN's similarities are compared with a loop over
captions, timed on a share of them, and with the products of regions and words alone, which any
exact method needs. On two cores a fifth of the images is scored; the time is linear in them.
"""

import argparse
import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import torch
from common import MIB, Row, goal, in_turn, print_rows, row
from floor import floor
from plain_models import PLAIN, REGIONS, WIDTH, WORDS, loop_over_captions, triplet_sh
from torch import Tensor, nn

BATCH = 128
SPECS = {
    "vse++": ("vse++", "features", (WIDTH,)),
    "vsrn": ("vsrn", "regions", (REGIONS, WIDTH)),
    "vse-infinity": ("vse-infinity(text=bigru)", "regions", (REGIONS, WIDTH)),
    "scan": ("scan(memory_mib=8192)", "regions", (REGIONS, WIDTH)),
    "bfan": ("bfan(memory_mib=8192)", "regions", (REGIONS, WIDTH)),
    "vse-infinity bert": ("vse-infinity(bert=none)", "regions", (REGIONS, WIDTH)),
    "clip": ("clip(source=none)", "pixels", (3, 224, 224)),
    "x-vlm": ("x-vlm", "pixels", (3, 384, 384)),
}
Step = Callable[[], Any]


def captions(m: int, device: str) -> tuple[Tensor, Tensor]:
    """Lengths as in Flickr30k: about 14 words, start and end among them."""
    generator = torch.Generator().manual_seed(0)
    lengths = torch.poisson(torch.full((m,), 13.0), generator=generator).long().clamp(5, 28)
    lengths[0] = 28
    tokens = torch.randint(4, WORDS, (m, 28), generator=generator)
    tokens = tokens * (torch.arange(28) < lengths[:, None])
    return tokens.to(device), lengths.to(device)


class Batch:
    """What auxiliary losses read."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        generator = torch.Generator().manual_seed(1)
        self.images = torch.rand(BATCH, *shape, generator=generator).cuda()
        self.tokens, self.lengths = captions(BATCH, "cuda")
        self.image_of_caption = torch.arange(BATCH).cuda()


def update(model: nn.Module, optimiser: torch.optim.Optimizer, loss: Tensor) -> None:
    optimiser.zero_grad(set_to_none=False)
    loss.backward()
    nn.utils.clip_grad_norm_([p for p in model.parameters() if p.grad is not None], 2.0)
    optimiser.step()


def plain_step(name: str, batch: Batch) -> Step:
    """Eager float32, the loss read after every step."""
    if name in PLAIN:
        model = PLAIN[name]().cuda()
    else:
        model = our_model(name)
    optimiser = torch.optim.Adam(model.parameters(), lr=2e-4)

    def step() -> float:
        if name in PLAIN:
            loss = triplet_sh(model(batch.images, batch.tokens, batch.lengths))
        else:
            image = model.encode_images(batch.images)
            caption = model.encode_captions(batch.tokens, batch.lengths)
            loss = triplet_sh(model.similarities(image, caption))
            own = model.auxiliary_loss(image, caption, batch)
            loss = loss if own is None else loss + own
        update(model, optimiser, loss)
        return float(loss.detach())

    return step


def our_model(name: str) -> Any:
    from simgrad.models import Inputs, build

    spec, kind, shape = SPECS[name]
    torch.manual_seed(0)
    return build(spec, Inputs(kind, shape, WORDS)).cuda().train()  # type: ignore[arg-type]


def our_step(name: str, batch: Batch) -> tuple[Step, str]:
    """bfloat16, captured once and replayed."""
    import simgrad
    from simgrad.training.weighing import loss_of_few

    model, rule = our_model(name), simgrad.objective("triplet-sh")
    optimiser = torch.optim.Adam(model.parameters(), lr=2e-4, fused=True, capturable=True)

    def step() -> None:
        with torch.autocast("cuda", torch.bfloat16, cache_enabled=False):
            image = model.encode_images(batch.images)
            caption = model.encode_captions(batch.tokens, batch.lengths)
            own = model.auxiliary_loss(image, caption, batch)
        # As training does: sets are compared again only where the objective gave weight.
        if model.embeds:
            loss = rule.on(model.similarities(image, caption))
        else:
            loss = loss_of_few(rule, model, image, caption, None, None)
        update(model, optimiser, loss if own is None else loss + own)

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph):
            step()
    except RuntimeError as error:
        torch.cuda.synchronize()
        return step, f"not captured: {str(error).splitlines()[0][:80]}"
    return graph.replay, "captured"


def steady(step: Step, most: int = 20, budget: float = 0.7) -> tuple[float, float]:
    """Seconds for a step, and the peak of GPU memory in MiB."""
    for _ in range(2):
        step()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    start, done = time.perf_counter(), 0
    while done < most and time.perf_counter() - start < budget:
        step()
        done += 1
        if done % 5 == 0:
            torch.cuda.synchronize()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) / done, torch.cuda.max_memory_allocated() / MIB


@contextlib.contextmanager
def written_out_attention(name: str) -> Iterator[None]:
    from torch.nn.attention import SDPBackend, sdpa_kernel

    with sdpa_kernel(SDPBackend.MATH) if name not in PLAIN else contextlib.nullcontext():
        yield


def training_rows(names: list[str]) -> list[Row]:
    rows = []
    for name in names:
        batch = Batch(SPECS[name][2])
        with written_out_attention(name):
            plain, plain_peak = steady(plain_step(name, batch))
        torch.cuda.empty_cache()
        step, how = our_step(name, batch)
        ours, peak = steady(step)
        peak = max(peak, torch.cuda.memory_reserved() / MIB if how == "captured" else 0.0)
        setting = f"batch {BATCH}, GPU"
        why = how if how != "captured" else ""
        rows.append(row(f"{name} step", setting, seconds=ours, peak_mib=peak))
        rows.append(
            row(f"{name} step / plain float32", setting, seconds=plain, peak_mib=plain_peak,
                ratio=plain / ours, **goal(">= 2x", plain >= 2 * ours, why))
        )  # fmt: skip
        del step, batch
        torch.cuda.empty_cache()
    return rows


def scan_rows(device: str, images: int, texts: int) -> list[Row]:
    """SCAN's similarities (t-i, LSE) of a whole test set."""
    from simgrad.models.base import Encoded
    from simgrad.models.networks.cross_attention import CrossAttention, attend

    generator = torch.Generator().manual_seed(0)
    normalize = nn.functional.normalize
    regions = normalize(torch.randn(images, REGIONS, 1024, generator=generator), dim=-1)
    _, lengths = captions(texts, "cpu")
    mask = torch.arange(28) < lengths[:, None]
    words = normalize(torch.randn(texts, 28, 1024, generator=generator), dim=-1)
    words = words * mask[..., None]
    regions, words, mask = regions.to(device), words.to(device), mask.to(device)
    real = words[mask]
    how, budget = CrossAttention(9.0, aggregate="lse", sharpness=6.0), 512
    share = max(1, texts // 100)

    def bare() -> None:
        for start in range(0, len(real), 2048):
            _ = regions.flatten(0, 1) @ real[start : start + 2048].T

    def loop() -> Tensor:
        return loop_over_captions(regions, words[:share], lengths[:share].tolist())

    def ours() -> Tensor:
        left, right = Encoded(tokens=regions), Encoded(tokens=words, mask=mask)
        return attend(left, right, how, memory_mib=budget)

    kept: dict[str, Tensor] = {}
    steps: dict[str, Step] = {"bare": bare, "ours": lambda: kept.update(S=ours()), "loop": loop}
    with torch.no_grad():
        best = in_turn(steps, 2, device)
        worst = float((kept["S"][:, :share] - loop()).abs().max())
    assert worst < 1e-3, worst
    seconds, products, looped = best["ours"], best["bare"], best["loop"] * texts / share
    lowest = floor(2.0 * images * REGIONS * len(real) * 1024, device=device)
    quick_enough = goal("< 5 s", seconds < 5) if device == "cuda" else {}
    close = goal(">= 0.67x (1.5 times its time)", seconds <= 1.5 * products)
    setting = f"{images:,} x {texts:,}, {device}"
    return [
        row("SCAN similarities", setting, seconds=seconds, floor=lowest, **quick_enough),
        row("bare products", setting, seconds=products, ratio=products / seconds,
            **(close if device == "cpu" else {})),
        row("SCAN / loop over captions", setting, seconds=looped, ratio=looped / seconds),
    ]  # fmt: skip


def run(quick: bool = False) -> list[Row]:
    """On the CPU."""
    return scan_rows("cpu", *((50, 1000) if quick else (200, 5000)))


def run_cuda(quick: bool = False) -> list[Row]:
    """On a GPU."""
    names = list(SPECS)
    return [*scan_rows("cuda", 1000, 5000), *training_rows(names[:5] if quick else names)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--cuda", action="store_true")
    arguments = parser.parse_args()
    print_rows(run_cuda(arguments.quick) if arguments.cuda else run(arguments.quick))


if __name__ == "__main__":
    main()
