"""The rooms: an import of ours stands at the top of a file, where import-linter sees it."""

import ast
import re
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "simgrad"
PAGE = (Path(__file__).parents[1] / "docs" / "architecture.md").read_text("utf-8")


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


def test_files_that_the_page_names_are_there() -> None:
    named = re.findall(r"`([a-z_]+/[\w/]+\.py)`", PAGE)
    assert len(named) > 40
    others = {"models/NAME.py"}
    assert {one for one in named if not (SOURCE / one).is_file()} == others


def test_names_that_the_page_gives_are_in_those_files() -> None:
    named = re.findall(r"`(\w+)` in `([\w/]+\.py)`", PAGE)
    assert len(named) > 8
    for name, file in named:
        text = (SOURCE / file).read_text("utf-8")
        assert re.search(rf"^ *(def |class )?{name}\b[ (:=]", text, re.MULTILINE), (name, file)


def test_registries_are_those_of_the_page() -> None:
    made = re.compile(r"^\w+(: Registry\[.+\])? = (Registry|_Models)\(", re.MULTILINE)
    files = (f for f in SOURCE.rglob("*.py") if made.search(f.read_text("utf-8")))
    table = PAGE.partition("registries of one kind")[2].partition("A declaration")[0]
    named = set(re.findall(r"\| `([\w/]+\.py)` \|", table))
    assert {file.relative_to(SOURCE).as_posix() for file in files} == named


def test_tests_have_the_rooms_of_the_source() -> None:
    rooms = {p.parent.name for p in SOURCE.glob("*/__init__.py")}
    tested = {p.name for p in Path(__file__).parent.iterdir() if p.is_dir()}
    assert rooms - tested <= {"cli"}  # commands are tested with what they do, and in test_cli.py
