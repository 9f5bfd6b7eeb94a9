"""What people install: the wheel holds all of the package, and so does one made from the sdist.

Building needs `build` and `hatchling` in this environment: `pip install build hatchling`.
"""

import subprocess
import sys
import tarfile
import tomllib
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pytest

import simgrad

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src"


def package_files() -> set[str]:
    """All that belongs to the package, code and data, by its name in a wheel."""
    found = (path for path in (SOURCE / "simgrad").rglob("*") if path.is_file())
    return {p.relative_to(SOURCE).as_posix() for p in found if "__pycache__" not in p.parts}


def build(source: Path, into: Path, *kinds: str) -> None:
    command = [sys.executable, "-m", "build", "--no-isolation", *kinds, "--outdir", str(into)]
    done = subprocess.run([*command, str(source)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr


def contents(wheel: Path) -> dict[str, int]:
    with zipfile.ZipFile(wheel) as file:
        return {one.filename: one.CRC for one in file.infolist()}


@pytest.mark.slow  # builds in processes of their own, and reads the whole source three times
@pytest.mark.skipif(
    find_spec("build") is None or find_spec("hatchling") is None,
    reason="needs the tools: pip install build hatchling",
)
def test_wheel_and_sdist_hold_the_package(tmp_path: Path) -> None:
    build(ROOT, tmp_path / "first", "--wheel", "--sdist")
    (wheel,) = (tmp_path / "first").glob("*.whl")
    (sdist,) = (tmp_path / "first").glob("*.tar.gz")
    assert simgrad.__version__ in wheel.name
    inside = contents(wheel)
    own = {name for name in inside if name.startswith("simgrad/")}
    assert own == package_files()
    assert all(name.startswith(("simgrad/", "simgrad-")) for name in inside)
    with tarfile.open(sdist) as file:
        file.extractall(tmp_path / "unpacked", filter="data")
    (unpacked,) = (tmp_path / "unpacked").iterdir()
    assert (unpacked / "examples" / "README.md").is_file()
    build(unpacked, tmp_path / "second", "--wheel")
    (again,) = (tmp_path / "second").glob("*.whl")
    assert contents(again) == inside


def test_data_of_the_package_is_there() -> None:
    """Every kind that the code reads; the test above says that a wheel holds all of them."""
    files = package_files()
    assert "simgrad/py.typed" in files
    for end in ("report.html", "report.css", "report.md", "lab.css", "charts.js", "probable.json"):
        assert any(name.endswith(f"/{end}") for name in files), end
    assert sum(name.startswith("simgrad/studies/published/") for name in files) > 15


def test_the_version_is_told_once() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["dynamic"] == ["version"]
    cited = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\nversion: {simgrad.__version__}\n" in cited


def test_the_licence_of_every_dependency_is_listed() -> None:
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    groups = [project["dependencies"], *project["optional-dependencies"].values()]
    page = (ROOT / "LICENSES.md").read_text(encoding="utf-8")
    for text in (one for group in groups for one in group):
        name = canonicalize_name(Requirement(text).name)
        assert f"\n| {name} |" in page, f"{name}: run python tools/licences.py"
