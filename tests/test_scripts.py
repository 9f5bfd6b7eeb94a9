"""Scripts beside the package name only what is there, so that old commands still run."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import simgrad

ROOT = Path(__file__).parents[1]
OURS = re.compile(r"(import |from )?simgrad(\.\w+)*( import \w+)?")


def named(text: str) -> Iterator[str]:
    """What a script imports of simgrad, one name a line, and attributes of it as spelt out."""
    for node in ast.walk(ast.parse(text)):
        lines = []
        if isinstance(node, ast.Import):
            lines = [f"import {alias.name}" for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            lines = [f"from {node.module} import {alias.name}" for alias in node.names]
        elif isinstance(node, ast.Attribute):
            lines = [ast.unparse(node)]
        yield from filter(OURS.fullmatch, lines)


def missing(folder: Path) -> dict[str, list[str]]:
    """Script -> its lines that name what is not there."""
    found: dict[str, list[str]] = {}
    for file in sorted(folder.rglob("*.py")):
        for line in dict.fromkeys(named(file.read_text("utf-8"))):
            try:
                exec(line, {"simgrad": simgrad})
            except (ImportError, AttributeError):
                found.setdefault(str(file.relative_to(folder)), []).append(line)
    return found


@pytest.mark.parametrize("folder", ["results", "benchmarks", "examples", "tools", "docs"])
def test_scripts_name_what_is_there(folder: str) -> None:
    assert any((ROOT / folder).rglob("*.py"))
    assert missing(ROOT / folder) == {}


def test_what_is_gone_is_found(tmp_path: Path) -> None:
    (tmp_path / "good.py").write_text(
        "import simgrad.data.base\nfrom simgrad.mining.mine import mine\nfrom gone import mine\n"
        "simgrad.open('x').gone, simgrad.Study.create, simgrad.data.base.Split\n"
    )
    gone = ["import simgrad.one", "from simgrad.runs.systems import open_system"]
    gone += ["from simgrad.data import two", "simgrad.Study.three", "simgrad.four"]
    (tmp_path / "bad.py").write_text("\n".join(gone))
    assert missing(tmp_path) == {"bad.py": gone}
