"""A short fuzz of every parser; `make soak` does it for minutes. Requests: tests/serve."""

import pytest

from tests.hardening.fuzzing import TARGETS, fuzz


@pytest.mark.parametrize("name", TARGETS)
def test_anything_is_read_or_refused(name: str) -> None:
    target, strategy = TARGETS[name]
    assert fuzz(target, strategy, 25 if name == "caption files" else 120) >= 20


def test_a_fault_would_be_found() -> None:
    def weak(text: str) -> None:
        assert "(" not in text or ")" in text

    with pytest.raises(AssertionError):
        fuzz(weak, TARGETS["specs"][1], 300)
