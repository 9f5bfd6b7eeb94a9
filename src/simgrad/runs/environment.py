"""What a run was made with: versions, code and command, so that a number can be traced."""

import os
import platform
import shlex
import socket
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import simgrad

COMMAND = "SIMGRAD_COMMAND"  # in a worker's environment: the command that started it
HOST = "SIMGRAD_HOST"  # the same: what its machine is called, where that is more than its name


def environment() -> dict[str, Any]:
    """Versions, code and command, so that a number can be traced."""
    import numpy
    import torch

    return {
        "versions": {
            "simgrad": simgrad.__version__,
            "python": platform.python_version(),
            "torch": torch.__version__,
            "numpy": numpy.__version__,
            "gpu": torch.cuda.get_device_name(0) if torch.cuda.is_available() else None,
        },
        "git": _git(),
        "command": command(),
    }


def host() -> str:
    """What this machine is called."""
    return os.environ.get(HOST) or socket.gethostname()


def command() -> str:
    """What was typed to train; a worker is told it by whoever started the worker."""
    if told := os.environ.get(COMMAND):
        return told
    if Path(sys.argv[0]).name.startswith("simgrad"):
        return shlex.join(["simgrad", *sys.argv[1:]])
    return shlex.join(sys.argv)


@cache
def _git() -> str | None:
    """The commit of the source, with + if it has been changed; None where nobody knows.

    A copy made by `git archive` carries its commit in a file.
    """
    own = Path(__file__)

    def ask(*arguments: str) -> str:
        told = subprocess.run(
            ["git", *arguments],
            cwd=own.parent,
            env={**os.environ, "GIT_OPTIONAL_LOCKS": "0"},
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        )
        return told.stdout.strip()

    try:
        ask("ls-files", "--error-unmatch", own.name)  # the repository around us may be another
        changed = ask("status", "--porcelain", "--untracked-files=no")
        return ask("rev-parse", "HEAD")[:12] + ("+" if changed else "")
    except (OSError, subprocess.SubprocessError):
        archived = (own.parents[1] / "commit.txt").read_text().strip()
        return None if archived.startswith("$") else archived[:12]
