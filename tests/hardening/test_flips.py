"""A flipped bit in any file is noticed, or changes nothing."""

from pathlib import Path

import pytest

from tests.hardening.flips import Flips


@pytest.mark.long
def test_thirty_flipped_bits(tmp_path: Path) -> None:
    flips = Flips(tmp_path)
    assert len(flips.files) > 20
    flips(30)
    assert flips.noticed > 5
