"""The table of tile shapes, and the script that measures it."""

import importlib.util
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch

from simgrad.objectives import fused, tiles
from simgrad.objectives.tiles import MODEST, SHAPES, Shape, fitting

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "tiles.py"


@pytest.fixture
def script() -> Iterator[ModuleType]:
    spec = importlib.util.spec_from_file_location("benchmark_tiles", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["benchmark_tiles"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["benchmark_tiles"]


def test_every_kernel_has_its_shapes() -> None:
    rules = {rule for names in fused._RULES.values() for rule in names[:2] if rule is not None}
    both = {(r, p) for r in (*rules, "softmax-keep") for p in ("bf16", "tf32")}
    assert set(SHAPES) == both | {("rank-keep", "tf32")}


def test_a_shape_that_does_not_fit_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    large = Shape(128, 256, 64, 8, 4, described=True)
    pointed = large._replace(described=False)
    for shape, room, fetches, width, expected in (
        (large, 2**20, True, 12, large),
        (large, 2**20, False, 12, MODEST[4]),
        (large, 2**20, True, 13, MODEST[4]),  # rows that begin anywhere
        (large, 2**17, True, 12, MODEST[4]),
        (pointed, 2**20, False, 13, pointed),
        (pointed, 2**17, False, 12, MODEST[4]),
    ):
        monkeypatch.setattr(tiles, "_limits", lambda _, found=(room, fetches): found)
        assert fitting(shape, torch.zeros(2, width)) == expected


def test_the_script_tries_every_kernel_today_first(script: ModuleType) -> None:
    jobs = script.jobs()
    today = [
        (rule, precision, SHAPES[rule, precision]) for rule, precision, _ in jobs[: len(SHAPES)]
    ]
    assert jobs[: len(SHAPES)] == today
    assert {job[:2] for job in jobs} == set(SHAPES)
    assert len(set(jobs)) == len(jobs) > 200
    assert all(shape.wide == (64 if kind == "bf16" else 32) for _, kind, shape in jobs)


def test_the_fastest_shapes_are_written(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = tmp_path / "tiles.py"
    shutil.copy(tiles.__file__, copy)
    monkeypatch.setattr(tiles, "__file__", str(copy))
    slow, fast = Shape(1, 2, 3, 4, 5), Shape(256, 128, 64, 8, 3, 4, 128, True)
    tuner = script.Tuner()
    tuner.times = {("rank", "bf16"): {slow: 2.0, fast: 1.0}, ("hinge", "tf32"): {slow: 1.0}}
    tuner.write()
    spec = importlib.util.spec_from_file_location("written", copy)
    assert spec is not None
    assert spec.loader is not None
    written = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(written)
    changed = {key: shape for key, shape in written.SHAPES.items() if SHAPES[key] != shape}
    assert changed == {("rank", "bf16"): fast, ("hinge", "tf32"): slow}
