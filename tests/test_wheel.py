"""What people install: the wheel holds all of the package, and so does one made from the sdist.

Building needs `build` and `hatchling` in this environment: `pip install build hatchling`.
"""

import re
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


# What a user does without an extra, beside the first lines of the README.
LIGHT = """
import torch, simgrad
images, texts = torch.randn(40, 8, requires_grad=True), torch.randn(40, 8)
simgrad.objective("nt-xent(tau=0.05)")(images, texts).backward()
simgrad.objective("goal", margin=0.3)(images, texts)
simgrad.objective("siglip", reduction="none")(images, texts).i2t.sum().backward()
a = simgrad.evaluate(images, texts, range(40), normalise=True)
b = simgrad.evaluate(images, texts + torch.randn(40, 8), range(40), normalise=True)
print(a.rsum, simgrad.compare(a, b), simgrad.compare([a, b], [b, a]))
print(simgrad.evaluation.stand({"a": [a.ranks, b.ranks], "b": [b.ranks, b.ranks]}).leader)
print(simgrad.cocos("nt-xent", images.detach() @ texts.T).i2t.effective)
print(simgrad.mine(images.detach(), texts, range(40), depth=5))
simgrad.distributed("triplet")(images, texts).backward()
simgrad.integrations.ClipLoss()(images, texts, torch.tensor(10.0))
cache = simgrad.integrations.GradCache([torch.nn.Linear(8, 4)] * 2, 16)
cache.backward(simgrad.objective("nt-xent")(*cache.encode(images.detach(), texts)))
assert simgrad.analysis.check("triplet", images.detach(), texts).ok
for name in ("train", "Recipe", "Study"):
    try:
        getattr(simgrad, name)
    except ModuleNotFoundError as error:
        assert "pip install 'simgrad[train]'" in str(error), error
    else:
        raise AssertionError(name)
"""


def needed_by(*names: str) -> set[str]:
    """Top-level modules of distributions and of all that they need."""
    from importlib.metadata import PackageNotFoundError, distribution

    from packaging.requirements import Requirement

    found: set[str] = set()
    queue, seen = list(names), set()
    while queue:
        name = queue.pop()
        if name in seen:
            continue
        seen.add(name)
        try:
            one = distribution(name)
        except PackageNotFoundError:
            continue
        found |= {str(file).split("/")[0] for file in one.files or [] if str(file)[:2] != ".."}
        needs = map(Requirement, one.requires or [])
        queue += [n.name for n in needs if n.marker is None or n.marker.evaluate({"extra": ""})]
    return found


@pytest.mark.long
@pytest.mark.skipif(
    find_spec("build") is None or find_spec("hatchling") is None,
    reason="needs the tools: pip install build hatchling",
)
def test_the_light_core_needs_torch_and_numpy_alone(tmp_path: Path) -> None:
    """The wheel beside links to torch, numpy and what these need: no other package is there."""
    import torch

    build(ROOT, tmp_path, "--wheel")
    (wheel,) = tmp_path.glob("*.whl")
    installed, links = tmp_path / "installed", tmp_path / "links"
    links.mkdir()
    with zipfile.ZipFile(wheel) as file:
        file.extractall(installed)
    assert sum(p.stat().st_size for p in installed.rglob("*") if p.is_file()) < 25e6
    home = Path(torch.__file__).parents[1]
    for name in needed_by("torch", "numpy", "filelock"):
        if (home / name).exists():
            (links / name).symlink_to(home / name)
    assert not {"scipy", "pydantic", "rich", "platformdirs"} & {p.name for p in links.iterdir()}

    def run(code: str) -> "subprocess.CompletedProcess[str]":
        # -S: nothing of the environment that the tests run in; -I: nor of its variables.
        path = f"import sys; sys.path[:0] = {[str(installed), str(links)]!r}\n"
        command = [sys.executable, "-I", "-S", "-W", "ignore", "-c", path + code]
        return subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=tmp_path)

    first = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text("utf-8"), re.DOTALL)
    for code in (LIGHT, first[0]):
        done = run(code)
        assert done.returncode == 0, done.stderr
    done = run(
        "import sys; sys.argv = ['simgrad', '--version']; from simgrad.cli import main; main()"
    )
    assert done.stdout == f"{simgrad.__version__}\n", done.stderr
    done = run("from simgrad.cli import main; main()")
    assert done.returncode == 1
    assert "the command line needs the package" in done.stderr
    assert "pip install 'simgrad[train]'" in done.stderr


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
        if name == "simgrad":  # another of its extras
            continue
        assert f"\n| {name} |" in page, f"{name}: run python tools/licences.py"


def test_extras_that_are_named_exist() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    places = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *SOURCE.rglob("*.py")]
    places += [*(ROOT / "examples").glob("*.*"), *(ROOT / "results").rglob("*.md")]
    text = "\n".join(place.read_text(encoding="utf-8") for place in places)
    found = re.findall(r"(?:pip install '?|')(?:simgrad|\.)\[([a-z,]+)\]", text)
    named = {name for group in found for name in group.split(",")}
    assert named <= project["optional-dependencies"].keys()
    assert len(named) > 8


def test_what_pages_install_can_be_installed() -> None:
    """From a clone, as no index has the package, and quoted, as zsh reads brackets itself."""
    places = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "results").rglob("*.md")]
    places += [*(ROOT / "examples").glob("*.*"), ROOT / "benchmarks" / "README.md"]
    for place in [*places, *SOURCE.rglob("*.py")]:
        text = place.read_text(encoding="utf-8")
        assert not re.findall(r"pip install [\w.]+\[.*", text), place
        if place.suffix != ".py":
            assert not re.findall(r"pip install '?simgrad.*", text), place


def test_the_lowest_versions_are_those_declared() -> None:
    def told(*extras: str) -> list[str]:
        command = [sys.executable, str(ROOT / "tools" / "lowest.py"), *extras]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()

    assert [line.split("==")[0] for line in told()] == ["filelock", "numpy", "torch"]
    whole = told("all")
    assert set(told("train")) < set(whole)  # extras of extras
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for line in whole:
        name, _, version = line.partition("==")
        groups = [project["dependencies"], *project["optional-dependencies"].values()]
        declared = {text.lower().replace("_", "-") for group in groups for text in group}
        assert f"{name}>={version}" in declared, line
