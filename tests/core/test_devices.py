"""Devices: Apple's is accepted, and nothing there needs float64. (Not run on one here.)"""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.utils import backend_registration

from simgrad.core.devices import pick_device, random_state, set_random_state, widened
from simgrad.core.errors import InputError


@pytest.mark.long
@pytest.mark.skipif(
    not hasattr(backend_registration, "_setup_privateuseone_for_python_backend"),
    reason="this PyTorch lets Python declare no device",
)
def test_on_a_device_without_float64(tmp_path: Path) -> None:
    command = [sys.executable, "-W", "ignore", "-m", "tests.core.narrow", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout.endswith("done\n"), done.stdout + done.stderr[-3000:]


def test_devices_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert pick_device("cpu") == torch.device("cpu")
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert pick_device("mps") == torch.device("mps")
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    with pytest.raises(InputError, match="Apple"):
        pick_device("mps")
    with pytest.raises(InputError, match="mps"):
        pick_device("abacus")


def test_random_numbers_come_again() -> None:
    here = torch.device("cpu")
    state = random_state(here)
    drawn = torch.rand(3)
    set_random_state(state, here)
    assert torch.equal(torch.rand(3), drawn)
    assert widened(drawn).dtype == torch.float64
