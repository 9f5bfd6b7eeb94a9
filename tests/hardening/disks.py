"""Small disks, and disks that become read-only: in memory, for root alone."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


class Disk:
    """A mounted folder."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def set(self, options: str) -> None:
        """size=64k, ro, rw"""
        subprocess.run(["mount", "-o", f"remount,{options}", str(self.path)], check=True)


@contextmanager
def disk(path: Path, options: str = "size=64m") -> Iterator[Disk]:
    """An empty disk; skips the test where nobody may mount one."""
    path.mkdir()
    mounting = ["mount", "-t", "tmpfs", "-o", options, "none", str(path)]
    if subprocess.run(mounting, capture_output=True).returncode:
        pytest.skip("a small disk can be mounted by root alone")
    try:
        yield Disk(path)
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)
