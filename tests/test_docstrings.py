"""The examples in the docstrings of every public name run, and print what they say."""

import doctest
import inspect
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import simgrad
from simgrad.studies.plan import plan_from_dict

NAMES = list(simgrad.__all__)
GRID = {"recipe": {"epochs": 1}, "grid": {"objective": ["triplet-sh", "nt-xent"]}}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with what the examples open: the run that `train`'s example makes, and a study."""
    folder, before = tmp_path_factory.mktemp("examples"), Path.cwd()
    os.chdir(folder)
    try:
        simgrad.Study.create(plan_from_dict(GRID, "grid"), "studies/mine")
        run_examples("train")
        yield folder
    finally:
        os.chdir(before)


def run_examples(name: str) -> int:
    """Run the examples of a public name; how many there were."""
    thing: Any = inspect.unwrap(getattr(simgrad, name))
    torch.manual_seed(0)
    known = {"simgrad": simgrad, "torch": torch}
    text = inspect.getdoc(thing) or ""
    test = doctest.DocTestParser().get_doctest(text, known, name, None, None)
    told: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    runner.run(test, out=told.append)
    assert runner.failures == 0, "".join(told)
    return len(test.examples)


@pytest.mark.parametrize("name", NAMES)
def test_examples_run(name: str, place: Path) -> None:
    assert run_examples(name) > 0, f"simgrad.{name} has no example"
