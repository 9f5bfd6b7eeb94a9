"""What all tests share."""

import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from simgrad.core import extras
from simgrad.objectives import objectives
from tests.processes import ForkedPopen

# The longest, by `pytest --durations=0`. They begin first, so that none is waited for at the end.
FIRST = (
    "studies/test_study", "studies/test_tuning", "studies/test_finalists", "hardening/test_kills",
    "training/test_distributed", "integrations/test_loops", "models/test_export",
    "training/test_finetune",
    "cli/test_remembered_files", "evaluation/test_peers", "models/test_learning",
    "objectives/test_ranks_as_threads", "objectives/test_across_processes", "cli/test_choose",
    "objectives/test_compiled", "models/test_pair", "analysis/test_closedness",
    "core/test_devices", "evaluation/test_uncertainty", "hardening/test_disk_jobs",
    "training/test_stages", "hardening/test_together", "studies/test_results",
    "hardening/test_fuzz", "studies/test_worker", "studies/test_forked_workers", "lab/test_fuzz",
    "lab/test_server", "hardening/test_determinism", "lab/test_answers_survive",
)  # fmt: skip


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    place = {here / f"{name}.py": number for number, name in enumerate(FIRST)}
    items.sort(key=lambda item: place.get(item.path, len(place)))


if not torch.cuda.is_available():
    # GPU kernels run on a CPU then, slowly; Triton asks for this when it is first imported.
    os.environ.setdefault("TRITON_INTERPRET", "1")


@pytest.fixture(scope="module")
def forked_workers() -> Iterator[None]:
    """Workers of a study, and those that time objectives, need not import torch first.

    tests/studies/test_study.py starts them as users do.
    """
    with pytest.MonkeyPatch.context() as patch:
        forked = SimpleNamespace(Popen=ForkedPopen, PIPE=None, DEVNULL=None)
        for module in ("studies.engine", "choosing.probe"):
            patch.setattr(f"simgrad.{module}.subprocess", forked)
        yield


@pytest.fixture(autouse=True)
def what_a_test_declares_is_forgotten() -> Iterator[None]:
    """Neither lists of a later test nor commands that it starts know an objective of this one."""
    before = dict(objectives._declared)
    yield
    for name in objectives._declared.keys() - before.keys():
        del objectives._declared[name]
    extras._imported.clear()
    os.environ.pop("SIMGRAD_WITH", None)
