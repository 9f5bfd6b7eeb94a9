"""A small run that takes a second."""

from pathlib import Path
from typing import Any

import pytest

from simgrad.data import Dataset, open_dataset
from simgrad.runs.recipe import Recipe

DATA = "scenes(train=60, val=20, test=20, features=global)"
REGIONS = "scenes(train=60, val=20, test=20, features=regions)"


@pytest.fixture(scope="session")
def scenes() -> Dataset:
    return open_dataset(DATA)


@pytest.fixture
def small() -> Any:
    def make(**changes: Any) -> Recipe:
        base = Recipe(
            data=DATA,
            model="vse++(dimension=16, word_dimension=8)",
            batch=32,
            epochs=2,
            lr=1e-3,
            checkpoint_seconds=1e9,
            device="cpu",
            workers=0,
            min_count=1,
        )
        return base.replace(**changes)

    return make


@pytest.fixture
def weights() -> Any:
    from safetensors.torch import load_file

    def read(run: Path) -> dict[str, Any]:
        return dict(load_file(run / "best" / "model.safetensors"))

    return read
