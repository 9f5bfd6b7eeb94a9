"""A folder from somebody else, with modules named like those that everybody imports: none runs."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

from simgrad.choosing.probe import measure
from simgrad.core.children import python
from simgrad.data.reading import read_by, readers
from simgrad.lab.workers import Decoders
from simgrad.studies.cluster import run_ray
from simgrad.studies.engine import run_local
from simgrad.studies.plan import plan_from_dict
from simgrad.studies.study import Study
from tests.hardening.jobs import recipe

# What children of ours import: of Python, of others, and simgrad itself.
NAMES = (
    "json", "struct", "mmap", "queue", "tempfile", "pickle", "signal", "threading", "subprocess",
    "numpy", "torch", "PIL", "yaml", "optuna", "simgrad", "ray",
)  # fmt: skip


@pytest.fixture
def trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stand in a folder of such modules; each would leave its name in this file."""
    folder, trace = tmp_path / "stranger", tmp_path / "ran.txt"
    folder.mkdir()
    for name in NAMES:
        (folder / f"{name}.py").write_text(f"open({str(trace)!r}, 'a').write({name!r})\n")
    monkeypatch.chdir(folder)
    return trace


def _study(folder: Path) -> Study:
    values = {"recipe": recipe(epochs=1).to_dict(), "grid": {"objective": ["triplet", "nt-xent"]}}
    return Study.create(plan_from_dict(values, "strange"), folder)


def _uploads(folder: Path) -> None:
    decoders = Decoders(1)
    Image.new("RGB", (4, 4), "red").save(folder / "a.png")
    try:
        assert decoders.rgb((folder / "a.png").read_bytes()).size == (4, 4)
    finally:
        decoders.close()


def _reads(folder: Path) -> None:
    Image.new("RGB", (4, 4), "red").save(folder / "a.png")
    with readers(1, "plain", 4, 1) as free:
        pixels = read_by(free, [folder / "a.png"], 4, lambda bytes_: bytes_.clone())
    assert pixels.shape == (1, 3, 4, 4)


def _studies(folder: Path) -> None:
    study = _study(folder / "study")
    run_local(study, processes=2, quiet=True)
    assert study.complete


def _probes(folder: Path) -> None:
    assert measure({"one": recipe()}, processes=2, cores=1, seconds=0.2)["one"].step > 0


def _rays(folder: Path) -> None:
    ray = pytest.importorskip("ray", reason="the extra `ray` is not installed")
    study = _study(folder / "study")
    try:
        run_ray(study, processes=1, quiet=True)
    finally:
        ray.shutdown()
    assert study.complete


@pytest.mark.parametrize(
    "use",
    [
        _uploads,
        _reads,
        pytest.param(_studies, marks=pytest.mark.long),
        pytest.param(_probes, marks=pytest.mark.long),
        pytest.param(_rays, marks=pytest.mark.slow),
    ],
)
def test_nothing_that_lies_in_the_current_folder_runs(
    use: Callable[[Path], None], trace: Path, tmp_path: Path
) -> None:
    use(tmp_path)
    assert not trace.exists(), trace.read_text()


def test_the_trap_works(trace: Path) -> None:
    """Started as Python does by default, the process would run what lies there."""
    subprocess.run([sys.executable, "-m", "simgrad.lab.decoder"], input=b"", stderr=-3)
    assert "simgrad" in trace.read_text()


def test_pythonpath_still_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a_module_of_mine.py").write_text("print('mine')\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    told = subprocess.run(python("a_module_of_mine"), capture_output=True, text=True)
    assert told.stdout == "mine\n"
