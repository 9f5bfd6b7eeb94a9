"""Several processes on one GPU: the service is started and stopped."""

import os
from pathlib import Path
from typing import Any

import pytest

from simgrad.choosing import probe
from simgrad.runs.recipe import Recipe
from simgrad.studies.engine import shared_gpu


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What a stand-in for the service was told."""
    log = tmp_path / "calls.txt"
    control = tmp_path / "nvidia-cuda-mps-control"
    control.write_text(f'#!/bin/sh\nif [ "$1" = -d ]; then echo on; else cat; fi >> {log}\n')
    control.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    monkeypatch.delenv("CUDA_MPS_PIPE_DIRECTORY", raising=False)
    return log


def test_the_service_lives_as_long_as_the_study(log: Path) -> None:
    with shared_gpu(True) as settings:
        assert log.read_text() == "on\n"
        assert Path(settings["CUDA_MPS_PIPE_DIRECTORY"]).is_dir()
    assert log.read_text() == "on\nquit\n"
    assert not Path(settings["CUDA_MPS_PIPE_DIRECTORY"]).exists()
    with shared_gpu(False) as settings:
        assert settings == {}


def test_a_probe_shares_the_gpu_as_the_study_will(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str | None] = []

    def timed(
        jobs: list[Path], environment: dict[str, str], report: object
    ) -> list[dict[str, Any]]:
        seen.extend(environment.get("CUDA_MPS_PIPE_DIRECTORY") for _ in jobs)
        return [{"a": {"step": 0.1, "evaluation": 0.2, "start": 3.0}} for _ in jobs]

    monkeypatch.setattr(probe, "_timed", timed)
    probe.measure({"a": Recipe()}, 2, 1, 1.0, on_gpu=True)
    assert len(set(seen)) == 1
    assert seen[0] is not None
    assert log.read_text() == "on\nquit\n"
    assert "CUDA_MPS_PIPE_DIRECTORY" not in os.environ
    probe.measure({"a": Recipe()}, 2, 1, 1.0)
    assert seen[2:] == [None, None]
