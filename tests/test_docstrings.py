"""The examples in the docstrings of the package run, and print what they say.

Every name of `simgrad` has one, and every name of its public rooms.
"""

import doctest
import importlib
import importlib.util
import inspect
import operator
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import simgrad
from simgrad.evaluation import METRICS
from simgrad.objectives import objectives
from simgrad.studies.plan import plan_from_dict
from simgrad.training.loggers import LOGGERS
from tests.docstrings import docstrings

NAMES = list(simgrad.__all__)
ROOMS = [name for name in NAMES if inspect.ismodule(getattr(simgrad, name))]
IN_ROOMS = [f"{room}.{name}" for room in ROOMS for name in getattr(simgrad, room).__all__]
# Methods of public classes need none; those that have one are run.
IN_CLASSES = [
    f"{name}.{method}"
    for name in (*NAMES, *IN_ROOMS)
    if inspect.isclass(found := operator.attrgetter(name)(simgrad))
    for method, what in vars(found).items()
    if ">>>" in (getattr(inspect.unwrap(what), "__doc__", "") or "")
    and inspect.isfunction(getattr(found, method))
]
BUILDER = Path(__file__).parents[1] / "docs" / "builder"
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


def thing_of(name: str) -> Any:
    """What a name stands for: `train`, `data.tokenize`."""
    return inspect.unwrap(operator.attrgetter(name)(simgrad))


def text_of(name: str) -> str:
    """What the reference shows of a name."""
    spec = importlib.util.spec_from_file_location("pages", BUILDER / "reference_pages.py")
    assert spec is not None
    assert spec.loader is not None
    pages = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(pages)
    text: str = pages.documentation(name.rpartition(".")[2], thing_of(name))
    return text


def run_examples(name: str) -> int:
    """Run the examples of a public name; how many there were."""
    return run_text(name, text_of(name), {})


def run_text(name: str, text: str, known: dict[str, Any]) -> int:
    """Run the examples of a text; how many there were. What they declare is forgotten."""
    torch.manual_seed(0)
    known = {**known, "simgrad": simgrad, "torch": torch}
    test = doctest.DocTestParser().get_doctest(text, known, name, None, None)
    told: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    with pytest.MonkeyPatch.context() as patch:
        for registry in (objectives, METRICS):
            patch.setattr(registry, "_declared", dict(registry._declared))
        loggers = dict(LOGGERS)
        runner.run(test, out=told.append)
        for own in set(LOGGERS) - set(loggers):
            del LOGGERS[own]
    assert runner.failures == 0, "".join(told)
    return len(test.examples)


@pytest.mark.parametrize("name", NAMES)
def test_examples_run(name: str, place: Path) -> None:
    assert run_examples(name) > 0, f"simgrad.{name} has no example"


@pytest.mark.parametrize("name", IN_ROOMS)
def test_examples_in_rooms_run(name: str, place: Path) -> None:
    if "metric_learning" in text_of(name):
        pytest.importorskip("pytorch_metric_learning")
    assert run_examples(name) > 0, f"simgrad.{name} has no example"


@pytest.mark.parametrize("name", IN_CLASSES)
def test_examples_of_methods_run(name: str, place: Path) -> None:
    assert run_examples(name) > 0


def test_examples_elsewhere_run(place: Path) -> None:
    """Those of no public name, with what their module knows."""
    shown = {text_of(name) for name in (*NAMES, *IN_ROOMS, *IN_CLASSES)}
    others = [one for one in docstrings(("src",)) if ">>>" in one.text and one.text not in shown]
    assert others
    for one in others:
        run_text(one.place, one.text, vars(importlib.import_module(one.module)))
