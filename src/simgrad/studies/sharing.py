"""Letting several processes work on one GPU at the same time.

Without NVIDIA's multi-process service, processes take turns on a GPU: while one runs its small
kernels, the others wait. With it their kernels run side by side. It comes with the driver.
Each process may use a part of the GPU only: a kernel that spreads over all of it would shut the
others out. Sixteen runs of VSE++ on an H200 make 1,591 steps a second with 30 % each and 1,110
without a limit; with 15 % some matrix products came back as NaN, so the part is never that small.
"""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress


def share(processes: int) -> int:
    """The percentage of a GPU that each of so many processes may use: in all, about five times."""
    return max(30, min(100, 500 // processes))


@contextmanager
def shared_gpu(processes: int) -> Iterator[dict[str, str]]:
    """Start the service for so many workers on a GPU; yields their environment, empty without."""
    control = shutil.which("nvidia-cuda-mps-control")
    if processes < 2 or control is None or "CUDA_MPS_PIPE_DIRECTORY" in os.environ:
        yield {}
        return
    with tempfile.TemporaryDirectory(prefix="simgrad-mps-", ignore_cleanup_errors=True) as folder:
        settings = {
            "CUDA_MPS_PIPE_DIRECTORY": folder,
            "CUDA_MPS_LOG_DIRECTORY": folder,
            "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": str(share(processes)),
        }
        environment = {**os.environ, **settings}
        try:
            started = subprocess.run(
                [control, "-d"], env=environment, timeout=30, capture_output=True
            )
        except (OSError, subprocess.SubprocessError):
            started = None
        if started is None or started.returncode:
            yield {}
            return
        try:
            yield settings
        finally:
            with suppress(OSError, subprocess.SubprocessError):
                subprocess.run(
                    [control], input=b"quit\n", env=environment, timeout=30, capture_output=True
                )
