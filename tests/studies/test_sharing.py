"""Several processes on one GPU: the service is started and stopped."""

from pathlib import Path

import pytest

from simgrad.studies.sharing import shared_gpu


def test_the_service_lives_as_long_as_the_study(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "calls.txt"
    control = tmp_path / "nvidia-cuda-mps-control"
    control.write_text(f'#!/bin/sh\nif [ "$1" = -d ]; then echo on; else cat; fi >> {log}\n')
    control.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    monkeypatch.delenv("CUDA_MPS_PIPE_DIRECTORY", raising=False)
    with shared_gpu(True) as settings:
        assert log.read_text() == "on\n"
        assert Path(settings["CUDA_MPS_PIPE_DIRECTORY"]).is_dir()
    assert log.read_text() == "on\nquit\n"
    assert not Path(settings["CUDA_MPS_PIPE_DIRECTORY"]).exists()
    with shared_gpu(False) as settings:
        assert settings == {}
