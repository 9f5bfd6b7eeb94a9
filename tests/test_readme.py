"""What the README says is so: its code runs as written, it names every objective, it is short."""

import re
from pathlib import Path

from simgrad.objectives import objectives
from tests.processes import script

README = Path(__file__).parents[1] / "README.md"
TEXT = README.read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)


def run(code: str, folder: Path) -> str:
    path = folder / "example.py"
    path.write_text(code, encoding="utf-8")
    done = script(path)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_five_lines_in_a_loop_of_ones_own(tmp_path: Path) -> None:
    example = BLOCKS[0]
    assert len([line for line in example.splitlines() if line.strip()]) <= 5
    check = "\nassert (images._base.grad.abs().sum(dim=(1, 2)) > 0).all()"
    assert "loss.backward()" in example
    run(example + check, tmp_path)


def test_its_own_objective_is_that_of_the_page() -> None:
    """docs/own.md has it first; tests/test_own.py says that it is right."""
    page = (README.parent / "docs" / "own.md").read_text(encoding="utf-8")
    declared = BLOCKS[1][BLOCKS[1].index("@") :].splitlines()
    assert all(line.split("  #")[0] in page for line in declared)


def test_every_objective_is_named() -> None:
    (listed,) = re.findall(r"## Objectives\n(.*?)\n## ", TEXT, re.DOTALL)
    named = set(re.findall(r"`([a-z-]+)`", listed))
    assert {e.name for e in objectives if e.paper != "your own"} <= named


def test_it_is_short() -> None:
    assert len(TEXT.split()) <= 900


def test_linked_files_are_there() -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", TEXT):
        assert (README.parent / target).exists(), target
