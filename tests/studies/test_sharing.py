"""Several processes on one GPU: the service is started and stopped, and nobody takes it all."""

from pathlib import Path

import pytest

from simgrad.studies.sharing import share, shared_gpu


@pytest.mark.parametrize(
    ("processes", "percent"), [(2, 100), (5, 100), (10, 50), (16, 31), (64, 30)]
)
def test_the_parts_add_up_to_about_five_gpus_and_are_never_small(
    processes: int, percent: int
) -> None:
    assert share(processes) == percent


def test_the_service_lives_as_long_as_the_study(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "calls.txt"
    control = tmp_path / "nvidia-cuda-mps-control"
    control.write_text(f'#!/bin/sh\nif [ "$1" = -d ]; then echo on; else cat; fi >> {log}\n')
    control.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    monkeypatch.delenv("CUDA_MPS_PIPE_DIRECTORY", raising=False)
    with shared_gpu(10) as settings:
        assert log.read_text() == "on\n"
        assert settings["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "50"
        assert Path(settings["CUDA_MPS_PIPE_DIRECTORY"]).is_dir()
    assert log.read_text() == "on\nquit\n"
    assert not Path(settings["CUDA_MPS_PIPE_DIRECTORY"]).exists()
    with shared_gpu(1) as settings:
        assert settings == {}
