"""What this machine can do at most: operations and bytes a second, measured here and now.

The floor of a row is what its arithmetic, or its memory traffic, takes at these rates. Nothing that
computes the same numbers in the same way can be faster.
"""

import argparse
import functools

import torch
from common import Row, best_time, print_rows, row, timed

_KINDS = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


@functools.cache
def operations_per_second(device: str = "cpu", kind: str = "float32") -> float:
    """Of a large matrix product; a multiplication and an addition are two. `tf32` needs a GPU."""
    n = 2048 if device == "cpu" else 8192
    a, b = (torch.randn(n, n, device=device).to(_KINDS.get(kind, torch.float32)) for _ in "ab")
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if kind == "tf32" else "highest")
    try:
        timed(lambda: a @ b, device)
        seconds = best_time(lambda: timed(lambda: a @ b, device), 0.6)
    finally:
        torch.set_float32_matmul_precision(before)
    return 2 * n**3 / seconds


@functools.cache
def bytes_per_second(device: str = "cpu") -> float:
    """Of a copy of much memory, read and written."""
    count = 2**26 if device == "cpu" else 2**30
    source = torch.ones(count // 4, device=device)
    target = torch.empty_like(source)
    timed(lambda: target.copy_(source), device)
    return 2 * count / best_time(lambda: timed(lambda: target.copy_(source), device), 0.4)


def floor(
    operations: float, moved: float = 0.0, device: str = "cpu", kind: str = "float32"
) -> float:
    """Seconds that so many operations and bytes take at least, if both overlap."""
    needed = operations / operations_per_second(device, kind)
    return max(needed, moved / bytes_per_second(device) if moved else 0.0)


def _rows(device: str, kinds: tuple[str, ...]) -> list[Row]:
    unit = "{:,.0f} G operations/s"
    rows = [
        row(f"matrix product, {kind}", device, figure=operations_per_second(device, kind) / 1e9,
            unit=unit)
        for kind in kinds
    ]  # fmt: skip
    copied = bytes_per_second(device) / 1e9
    return [*rows, row("memory, read and written", device, figure=copied, unit="{:,.1f} GB/s")]


def run(quick: bool = False) -> list[Row]:
    """What the CPU can do."""
    return _rows("cpu", ("float32",))


def run_cuda(quick: bool = False) -> list[Row]:
    """What the GPU can do."""
    return _rows("cuda", ("float32", "tf32", "float16", "bfloat16"))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cuda", action="store_true")
    print_rows(run_cuda() if parser.parse_args().cuda else run())
