"""Scale: NT-Xent and its peers over the size of the batch, up to a million pairs.

    python benchmarks/scale.py             # two cores
    python benchmarks/scale.py --cuda      # a GPU
    python benchmarks/scale.py --picture   # docs/images/scale.png, of the recorded figures
    python benchmarks/scale.py --costs 262144 0.57   # docs/scale.md's table, of a measured step

Forward and backward, in bfloat16 on a GPU, in float32 on a CPU. All go on to the next size until
memory ends, or until a step would take too long. The floor is three bare matrix products. At 65,536
pairs every declared objective is measured.
"""

import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import torch
from common import MIB, Row, best_time, command, cuda_peak_above, goal, installed, row, timed
from objectives_gpu import embeddings, floor_of

from objectives import measure, step
from simgrad.objectives import objectives

WIDTH = 512
SIZES = (8192, 16384, 32768, 65536, 131072, 262144, 524288, 1048576)
LONGEST = 15.0  # seconds of a step, beyond which a larger batch is not tried
OURS = ("nt-xent", "triplet-sh")
EVERY = tuple(entry.name for entry in objectives)
# Those that compute what nt-xent does, and their packages.
PEERS = {
    "plain nt-xent": "torch",
    "open_clip ClipLoss": "open_clip",
    "Liger fused cross entropy": "liger_kernel",
    "cut-cross-entropy": "cut_cross_entropy",
    "Inf-CL": "inf_cl",
    "MemoryEfficientCLIP": "memeff",
}
_MANY, _ROOM = 65536, 512  # pairs, and MiB for them
_PICTURE = Path(__file__).resolve().parent.parent / "docs" / "images" / "scale.png"


def run(quick: bool = False) -> list[Row]:
    """The table of a CPU."""
    rows: list[Row] = []
    for name in (*OURS, "plain nt-xent"):
        for batch in (1024, 2048) if quick else (1024, 2048, 4096, 8192, 16384):
            if name.startswith("plain") and batch > 8192:
                continue  # 8 GiB and more
            found = measure(name, batch, budget=3.0)
            if found is not None:
                told = {key: found[key] for key in ("seconds", "peak_mib")}
                rows.append(row(name, f"B={batch} d={WIDTH} CPU", **told))
    return rows


def run_cuda(quick: bool = False) -> list[Row]:
    """The table of a GPU."""
    if not torch.cuda.is_available():
        raise SystemExit("there is no CUDA device here.")
    sizes = SIZES[:3] if quick else SIZES
    floors = {batch: floor_of(batch, WIDTH, torch.bfloat16) for batch in sizes}
    rows = [row("floor: three products", _setting(b), seconds=s) for b, s in floors.items()]
    ours: dict[tuple[str, int], float] = {}
    there = [name for name, package in PEERS.items() if installed(package, name)]
    for name in (*OURS, *there):
        rows += _up_to_the_end(name, sizes, floors, ours)
    for name in () if quick else EVERY:
        if name not in OURS:
            rows += _up_to_the_end(name, (_MANY,), floors, ours)
    return rows


def _up_to_the_end(
    name: str, sizes: tuple[int, ...], floors: dict[int, float], ours: dict[tuple[str, int], float]
) -> list[Row]:
    rows: list[Row] = []
    for batch in sizes:
        torch.cuda.empty_cache()
        try:
            seconds, peak = _measured(name, batch)
        except Exception as error:  # others' code, and memory that ends in many ways
            what = str(error).strip().splitlines()[0][:120] if str(error).strip() else ""
            print(f"{name} ends at B={batch}: {type(error).__name__} {what}", file=sys.stderr)
            if name in EVERY:
                rows.append(row(name, _setting(batch), **goal("runs", False, type(error).__name__)))
            break
        told: dict[str, Any] = {"seconds": seconds, "peak_mib": peak}
        if name in EVERY:
            ours[name, batch] = seconds
            told |= {"floor": floors[batch], "ratio": floors[batch] / seconds}
            if batch == _MANY:
                told |= goal(f"<= {_ROOM} MiB", peak <= _ROOM)
            elif batch == SIZES[-1]:
                told |= goal("runs", True)
            rows.append(row(name, _setting(batch), **told))
        else:
            beside = ours.get((OURS[0], batch))
            told |= {} if beside is None else {"ratio": seconds / beside}
            rows.append(row(f"{OURS[0]} / {name}", _setting(batch), **told))
        if 4 * seconds > LONGEST and batch != sizes[-1]:
            print(f"{name} ends at B={batch}: the next would take too long", file=sys.stderr)
            break
    return rows


def _measured(name: str, batch: int) -> tuple[float, float]:
    """Seconds, and MiB above the embeddings and their gradients."""
    images, texts = embeddings(batch, WIDTH, torch.bfloat16)
    once = step(name, images, texts)
    once()  # compiles what there is to compile
    torch.cuda.synchronize()
    images.grad = texts.grad = None
    torch.cuda.empty_cache()
    gradients = 2 * images.numel() * images.element_size() / MIB
    begin = time.perf_counter()
    peak = max(0.0, cuda_peak_above(once) - gradients)
    seconds = time.perf_counter() - begin
    if seconds < 2.0:  # a step that is so long needs no second measurement
        seconds = best_time(lambda: timed(once, "cuda"), 0.5, 10)
    print(f"{name}, B={batch}: {seconds:.4g} s, {peak:,.0f} MiB", file=sys.stderr, flush=True)
    return seconds, peak


def _setting(batch: int) -> str:
    return f"B={batch} d={WIDTH} bf16 CUDA"


def picture() -> None:
    """Time and memory over the batch, of the figures that are recorded."""
    import json

    import matplotlib.pyplot as plt
    import results

    recorded = json.loads((Path(__file__).resolve().parent / results.RECORDED).read_text())
    kinds = [kind for kind in recorded if _lines(recorded[kind])]
    if not kinds:
        raise SystemExit("nothing is recorded: python -m benchmarks scale --record")
    kind = next((k for k in kinds if k != "cpu"), kinds[0])
    figure, sides = plt.subplots(1, 2, figsize=(11, 4.4))
    for number, (name, points) in enumerate(sorted(_lines(recorded[kind]).items())):
        style: dict[str, Any] = {"color": f"C{number}", "linewidth": 2.4}  # alike on both sides
        if name not in OURS:
            style |= {"linewidth": 1.2, "linestyle": "--"}
        for side, key in zip(sides, ("seconds", "peak_mib"), strict=True):
            line = [(b, told[key]) for b, told in sorted(points.items()) if told.get(key)]
            if line:
                side.plot(*zip(*line, strict=True), marker="o", markersize=3, label=name, **style)
    for side, text in zip(sides, ("seconds of a step", "MiB beside embeddings"), strict=True):
        side.set(xscale="log", yscale="log", xlabel="pairs in the batch", title=text)
        side.grid(alpha=0.3, which="both", linewidth=0.4)
    sides[0].legend(fontsize=7)
    figure.suptitle(f"forward and backward, both directions, d={WIDTH}, {kind}")
    figure.tight_layout()
    figure.savefig(_PICTURE, dpi=130)
    print(_PICTURE)


# Bytes a second and GPU, one way, as the makers state them.
LINKS = {"NVLink 4": 450e9, "InfiniBand NDR": 50e9}


def costs(pairs: int, seconds: float) -> str:
    """What larger batches take on several GPUs, if one takes so long for so many pairs.

    Of the two passes of a ring each does half of the work. Texts travel meanwhile (bfloat16);
    gradients travel after the work on a shard (float32), so they are waited for.
    """
    each = seconds / pairs**2
    lines = ["| pairs | GPUs | link | share | work | waiting | step |", "|" + " --- |" * 7]
    for total in (2**20, 2**22):
        for gpus, link in ((1, ""), (8, "NVLink 4"), (64, "InfiniBand NDR")):
            share = total // gpus
            work, waiting = gpus * share**2 * each, 0.0
            if link:
                texts, half = 2 * WIDTH * share / LINKS[link], share**2 * each / 2
                gradients = 4 * WIDTH * share / LINKS[link]
                waiting = gpus * (gradients + 2 * max(0.0, texts - half))
            told = (f"{total:,}", gpus, link, f"{share:,}", *(
                f"{x:.2f} s" for x in (work, waiting, work + waiting)))  # fmt: skip
            lines.append("| " + " | ".join(map(str, told)) + " |")
    for link, speed in LINKS.items():
        least = 2 * 2 * WIDTH / speed / each
        lines.append(f"{link}: texts are hidden from {least:,.0f} pairs a GPU on.")
    return "\n".join(lines)


def _lines(machine: Any) -> dict[str, dict[int, Any]]:
    """name -> batch -> figures"""
    import results

    found: dict[str, dict[int, Any]] = {}
    for told in results.rows_of(machine):
        if told["benchmark"] == "scale" and told["name"] not in set(EVERY) - set(OURS):
            batch = int(told["setting"].split()[0].removeprefix("B="))
            found.setdefault(told["name"].removeprefix(f"{OURS[0]} / "), {})[batch] = told
    return found


if __name__ == "__main__":
    if "--picture" in sys.argv:
        picture()
    elif "--costs" in sys.argv:
        print(costs(int(sys.argv[-2]), float(sys.argv[-1])))
    else:
        command(__doc__, run, run_cuda)
