"""A short fuzz of every parser and of the lab page; `make soak` does it for minutes."""

import pytest

from tests.hardening.fuzzing import TARGETS, fuzz
from tests.hardening.kills import ended, in_child


@pytest.mark.long
@pytest.mark.parametrize("name", TARGETS)
def test_anything_is_read_or_refused(name: str) -> None:
    target, strategy = TARGETS[name]
    examples = 25 if name in {"caption files", "run folders"} else 120

    def attack() -> None:
        assert fuzz(target, strategy, examples) >= 20

    # In a child: the lab page has threads, and other tests fork this process.
    assert ended(in_child(attack)) == 0


def test_a_fault_would_be_found() -> None:
    def weak(text: str) -> None:
        assert "(" not in text or ")" in text

    with pytest.raises(AssertionError):
        fuzz(weak, TARGETS["specs"][1], 300)
