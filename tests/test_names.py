"""A class has one name, and a name one class, in the whole tree."""

import ast
from collections import defaultdict
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "simgrad"


def public_classes(folder: Path) -> dict[str, list[str]]:
    """Name -> the files that define a class of that name."""
    found = defaultdict(list)
    for file in sorted(folder.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].append(str(file.relative_to(folder)))
    return found


def test_no_public_class_name_stands_twice() -> None:
    classes = public_classes(SOURCE)
    assert len(classes) > 200
    assert {name: files for name, files in classes.items() if len(files) > 1} == {}


def test_the_search_finds_them(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("class One: ...\nclass _Two: ...\n")
    (tmp_path / "b.py").write_text("def f():\n    class One: ...\n    class _Two: ...\n")
    assert public_classes(tmp_path) == {"One": ["a.py", "b.py"]}
