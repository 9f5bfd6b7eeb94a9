"""What is shipped: wheel and source build, install and run; nothing in them that does not belong.

Slow: builds in an environment of its own, which takes the build tool from the package index.
"""

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
PLACES = {".venv", ".git", "runs", "studies", "features", "demo", "carry", "dist", "shared"}
KINDS = {".npy", ".npz", ".safetensors", ".pth", ".parquet", ".jpg", ".jpeg", ".pyc", ".env"}
LARGEST = 3 << 20


def run(*words: str | Path, **options: object) -> str:
    clean = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(  # type: ignore[call-overload]
        list(map(str, words)), capture_output=True, text=True, env=clean, **options
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return str(done.stdout)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """(wheel, source distribution)"""
    folder = tmp_path_factory.mktemp("dist")
    tools = folder / "tools"
    run(sys.executable, "-m", "venv", tools)
    got = subprocess.run(
        [tools / "bin" / "pip", "install", "-q", "hatchling"], capture_output=True, text=True
    )
    if got.returncode:
        pytest.skip(f"no build tool to be had: {got.stderr.strip()[-200:]}")
    run(tools / "bin" / "hatchling", "build", "-d", folder / "dist", cwd=ROOT)
    (wheel,), (source,) = (list((folder / "dist").glob(end)) for end in ("*.whl", "*.tar.gz"))
    return wheel, source


def names(archive: Path) -> dict[str, int]:
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            return {i.filename: i.file_size for i in wheel.infolist()}
    with tarfile.open(archive) as source:
        return {m.name: m.size for m in source.getmembers()}


@pytest.mark.parametrize("which", [0, 1])
def test_nothing_in_it_that_does_not_belong(which: int, built: tuple[Path, Path]) -> None:
    found = names(built[which])
    assert any(name.endswith("simgrad/cli/program.py") for name in found)
    top = 1 if which else 0  # all of a source distribution is in one folder
    for path in map(Path, found):
        assert path.parts[top : top + 1] == () or path.parts[top] not in PLACES, path
        assert path.suffix not in KINDS, path
    assert {n: s for n, s in found.items() if s > LARGEST} == {}


def test_the_wheel_installs_and_runs(built: tuple[Path, Path], tmp_path: Path) -> None:
    run(sys.executable, "-m", "venv", "--without-pip", tmp_path / "clean")
    python = tmp_path / "clean" / "bin" / "python"
    run(sys.executable, "-m", "pip", "--python", python, "install", "-q", "--no-deps", built[0])
    # The dependencies of this environment, behind what was installed; its own simgrad is not used.
    (site,) = (tmp_path / "clean" / "lib").glob("python3*/site-packages")
    here = Path(next(p for p in sys.path if p.endswith("site-packages")))
    (site / "dependencies.pth").write_text(f"{here}\n")
    words = {"cwd": tmp_path}
    where = run(python, "-c", "import simgrad; print(simgrad.__file__)", **words)
    assert str(site) in where
    command = tmp_path / "clean" / "bin" / "simgrad"
    assert "COMMAND" in run(command, "--help", **words)
    assert "triplet-sh" in run(command, "objectives", **words)
    assert "scenes" in run(command, "datasets", "scenes(train=20, val=5, test=5)", **words)
    small = ["--data", "scenes(train=40, val=10, test=10, features=global)", "--epochs", "1"]
    small += ["--model", "vse++(dimension=16, word_dimension=8)", "--output", "run"]
    assert "test split" in run(command, "train", *small, **words)
    pages = [p for p in names(built[0]) if p.endswith((".html", ".css", ".js", ".yaml", ".csv"))]
    assert pages, "the pages of the lab and the published tables are part of it"
