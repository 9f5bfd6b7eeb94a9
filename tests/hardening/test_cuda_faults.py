"""On a GPU: out of memory for real, a kill, and the same seed twice."""

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from simgrad.training import Run

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]
DATA = "scenes(train=1500, val=50, test=50, features=global)"
# Trains as the command line does, in a part of the memory; prints how much it reserved.
CHILD = """
import sys, torch
from simgrad.cli.program import main
total = torch.cuda.get_device_properties(0).total_memory
torch.cuda.set_per_process_memory_fraction(min(1.0, int(sys.argv[1]) / total))
try:
    main(sys.argv[2:])
finally:
    print("reserved", torch.cuda.max_memory_reserved())
"""


def words(folder: Path, **options: object) -> list[str]:
    chosen = {
        "data": DATA, "model": "vse++(dimension=1024)", "objective": "nt-xent", "batch": 4096,
        "epochs": 2, "evaluate_every": 1, "device": "cuda", "output": folder, **options,
    }  # fmt: skip
    pairs = [(f"--{key.replace('_', '-')}", str(value)) for key, value in chosen.items()]
    return ["train", *(word for pair in pairs for word in pair)]


def begun(limit: int, asked: list[str]) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", CHILD, str(limit), *asked]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def ended(child: "subprocess.Popen[str]") -> tuple[int, str, int]:
    """(exit code, what it said, bytes reserved)"""
    said = " ".join(child.communicate(timeout=280)[0].split())
    found = re.search(r"reserved (\d+)", said)
    assert found is not None, said[-2000:]
    return child.returncode, said, int(found[1])


def trained(limit: int, asked: list[str]) -> tuple[int, str, int]:
    return ended(begun(limit, asked))


def test_out_of_memory_names_a_setting_that_helps(tmp_path: Path) -> None:
    everything = 1 << 50
    code, said, whole = trained(everything, words(tmp_path / "whole"))
    assert code == 0, said
    code, said, pieces = trained(everything, words(tmp_path / "pieces", micro_batch=256))
    assert code == 0, said
    assert pieces < 0.8 * whole
    limit = (pieces + whole) // 2
    code, said, _ = trained(limit, words(tmp_path / "run"))
    assert code == 2, said
    for _ in range(5):  # as a person would: take what the message says
        asked = re.search(r"--micro-batch (\d+)", said)
        assert asked is not None, said
        code, said, _ = trained(limit, words(tmp_path / "run", micro_batch=asked[1]))
        if code == 0:
            break
    assert Run.open(tmp_path / "run").finished


def test_a_killed_run_goes_on_and_ends_alike(tmp_path: Path) -> None:
    # Little of everything: each child starts anew, draws its scenes and writes at every step.
    options = {
        "data": "scenes(train=300, val=50, test=50, features=global)", "batch": 128, "epochs": 3,
        "model": "vse++(dimension=32, word_dimension=16)",
    }  # fmt: skip
    whole = begun(1 << 50, words(tmp_path / "whole", **options))  # meanwhile
    options["checkpoint_seconds"] = 0
    child = begun(1 << 50, words(tmp_path / "run", **options))
    state = tmp_path / "run" / "last" / "state.safetensors"
    until = time.monotonic() + 120
    while not state.exists() and child.poll() is None and time.monotonic() < until:
        time.sleep(0.01)
    assert child.poll() is None, "over before it could be killed"
    child.kill()
    child.communicate()
    code, said, _ = ended(whole)
    assert code == 0, said
    code, said, _ = trained(1 << 50, words(tmp_path / "run", **options))
    assert code == 0, said
    found, expected = (Run.open(tmp_path / name).test for name in ("run", "whole"))
    assert found is not None
    assert expected is not None
    # Kernels may add in another order: close, not equal.
    assert found["rsum"] == pytest.approx(expected["rsum"], abs=15)
    assert not [p for p in os.listdir(tmp_path / "run") if p.endswith(".tmp")]
