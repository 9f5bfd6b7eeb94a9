"""The docstrings of the repository's Python files, and the text below assigned names."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
FOLDERS = ("src", "benchmarks", "examples", "tools", "docs", "results")  # tests speak to themselves


class Docstring(NamedTuple):
    """One of them, without its margin."""

    file: str  # from the root: src/simgrad/core/spec.py
    line: int
    text: str

    @property
    def place(self) -> str:
        return f"{self.file}:{self.line}"

    @property
    def module(self) -> str:
        """How a file of the package is imported."""
        parts = Path(self.file).with_suffix("").parts[1:]
        return ".".join(part for part in parts if part != "__init__")


def docstrings(folders: tuple[str, ...] = FOLDERS, root: Path = ROOT) -> Iterator[Docstring]:
    for folder in folders:
        for path in sorted((root / folder).rglob("*.py")):
            file = path.relative_to(root).as_posix()
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                text = getattr(getattr(node, "value", None), "value", None)
                if isinstance(node, ast.Expr) and isinstance(text, str):
                    yield Docstring(file, node.lineno, _without_margin(text, node.col_offset))


def _without_margin(text: str, margin: int) -> str:
    """`inspect.cleandoc` would also take the indentation of a block that nothing stands beside."""
    first, *rest = text.expandtabs().split("\n")
    return "\n".join([first, *(re.sub(f"^ {{0,{margin}}}", "", line) for line in rest)]).strip()
