"""What all tests share."""

import os
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
import torch

from simgrad.core import extras
from tests.processes import ForkedPopen, forking

if not torch.cuda.is_available():
    # GPU kernels run on a CPU then, slowly; Triton asks for this when it is first imported.
    os.environ.setdefault("TRITON_INTERPRET", "1")


@pytest.fixture(scope="module")
def forked_workers() -> Iterator[None]:
    """Workers of a study, and those that time objectives, need not import torch first.

    tests/studies/test_study.py starts them as users do.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "simgrad.studies.engine.subprocess", SimpleNamespace(Popen=ForkedPopen, PIPE=None)
        )
        patch.setattr(
            "simgrad.studies.probe.multiprocessing",
            SimpleNamespace(get_context=lambda kind: forking()),
        )
        yield


@pytest.fixture(autouse=True)
def files_given_by_with_are_forgotten() -> Iterator[None]:
    """What one test gave to `--with` here is not imported by commands that a later one starts."""
    yield
    extras._imported.clear()
    os.environ.pop("SIMGRAD_WITH", None)
