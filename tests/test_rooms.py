"""The rooms: an import of ours stands at the top of a file, where import-linter sees it."""

import ast
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "simgrad"


def hidden(text: str) -> list[int]:
    """Lines of imports of ours inside functions."""
    found = []
    for function in ast.walk(ast.parse(text)):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            for node in ast.walk(function):
                names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
                if isinstance(node, ast.ImportFrom):
                    names = ["simgrad" if node.level else node.module or ""]
                if any(name.split(".")[0] == "simgrad" for name in names):
                    found.append(node.lineno)
    return found


def test_no_import_of_ours_inside_a_function() -> None:
    found = {
        str(f.relative_to(SOURCE)): lines
        for f in SOURCE.rglob("*.py")
        if (lines := hidden(f.read_text("utf-8")))
    }
    # The command itself imports its own room, and says what to install where that fails.
    assert set(found) <= {"cli/__init__.py"}


def test_the_search_finds_them() -> None:
    assert hidden("def f():\n    from simgrad.data import x") == [2]
    assert hidden("async def f():\n    import simgrad.data") == [2]
    assert hidden("def f():\n    from . import x") == [2]
    assert hidden("import simgrad\ndef f():\n    import torch") == []


def test_tests_have_the_rooms_of_the_source() -> None:
    rooms = {p.parent.name for p in SOURCE.glob("*/__init__.py")}
    tested = {p.name for p in Path(__file__).parent.iterdir() if p.is_dir()}
    assert rooms - tested <= {"cli"}  # commands are tested with what they do, and in test_cli.py
