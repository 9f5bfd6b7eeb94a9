"""No code block of a docstring is left to itself: each is run, read or checked by a test.

- Python is an example with `>>>`: tests/test_docstrings.py runs it.
- Commands are read here, as those of the pages are.
- Lines of a file (a study, a record) are read here, by what reads such files.
- What is no code, a table or a formula, is named here.
"""

import ast
import doctest
import functools
import json
import re
import textwrap
from collections.abc import Callable, Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import yaml

from simgrad.data.found import Pair
from simgrad.data.resplit import read_resplit
from simgrad.studies.plan import plan_from_dict
from tests.docstrings import Docstring, docstrings
from tests.named_commands import CALL, FENCE, commands, misread

SECTION = re.compile(r"[A-Z]\w+:")  # Args:, Returns:, Examples:


@functools.cache
def every() -> list[Docstring]:
    return list(docstrings())


def blocks(text: str) -> Iterator[str]:
    """What is set apart from the sentences of a docstring, without its `>>>` examples."""
    yield from (code for _, code in FENCE.findall(text))
    pieces = doctest.DocTestParser().parse(FENCE.sub("", text))
    plain = "".join(piece for piece in pieces if isinstance(piece, str))
    yield from filter(_is_code, plain.split("\n\n")[1:])  # below the title
    yield from _indented(plain)


def _is_code(paragraph: str) -> bool:
    """At the margin too: ruff puts it there where a docstring has but a title beside it."""
    if re.match(CALL, paragraph):
        return True
    try:
        found = ast.walk(ast.parse(paragraph))
    except SyntaxError:
        return False
    return any(
        isinstance(node, ast.Call | ast.Assign | ast.Import | ast.ImportFrom) for node in found
    )


def _indented(text: str, in_section: bool = False) -> Iterator[str]:
    """Indented lines below an empty line, or below one that ends with a colon.

    Others go on with what the line above says, or are a section's; there may be blocks among them.
    A section of examples has nothing beside those with `>>>`.
    """
    lines = text.split("\n")
    above = ""  # the line before the block
    while lines:
        if not lines[0].startswith(" "):
            above = lines.pop(0)
            continue
        block = []
        while lines and (lines[0].startswith(" ") or not lines[0].strip()):
            block.append(lines.pop(0))
        inner = textwrap.dedent("\n".join(block)).strip("\n")
        section = SECTION.fullmatch(above) is not None
        introduced = above.endswith(":") and not section and not in_section
        if not above or introduced or above.startswith("Example"):
            yield inner
        else:
            yield from _indented(inner, in_section or section)
        above = block[-1].strip()


# -- lines of files


def study(text: str, **more: Any) -> None:
    """A study file, or the part that a docstring shows of one."""
    plan_from_dict({**more, **yaml.safe_load(text)}, "docstring")


def settings(text: str) -> None:
    """The head and lines of settings.csv."""
    told = (files("simgrad.studies") / "published" / "settings.csv").read_text(encoding="utf-8")
    assert set(text.split("\n")) <= set(told.split("\n"))


FILES: dict[str, Callable[[str], object]] = {
    "src/simgrad/data/found.py": lambda text: Pair(**json.loads(text)),
    "src/simgrad/data/resplit.py": lambda text: read_resplit(text.strip()),
    "src/simgrad/studies/journal.py": lambda text: [
        json.loads(line.partition("#")[0]) for line in text.splitlines()
    ],
    "src/simgrad/studies/plan.py": study,
    "src/simgrad/studies/settings.py": settings,
    "src/simgrad/studies/space.py": lambda text: study(text, grid={"objective": ["nt-xent"]}),
    "src/simgrad/studies/study_file.py": lambda text: study(
        text, rows=[{"label": "one", "group": "vsrn"}]
    ),
    "src/simgrad/studies/tune.py": lambda text: study(
        "grid: {objective: [nt-xent]}",
        tune={"trials": 4, "search": "grid", "space": yaml.safe_load(text)},
    ),
}

# Tables and formulas: what they begin with.
NO_CODE = {
    "src/simgrad/analysis/counting.py": ["contributing  "],
    "src/simgrad/analysis/gradient_check.py": ["value  "],
    "src/simgrad/analysis/published.py": ["triplet  "],
    "src/simgrad/evaluation/crossed.py": ["metric + effect", "var(run) / k"],
    "src/simgrad/data/fingerprint.py": ["9f2c... "],
    "src/simgrad/objectives/debiased.py": ["max( (mean of e"],
    "src/simgrad/objectives/family.py": ["known(pairs)  "],
    "src/simgrad/objectives/focused.py": ["mean over p in P"],
    "src/simgrad/objectives/goal.py": ["weight on s+:", "m+ = mean"],
    "src/simgrad/objectives/multisimilarity.py": ["log(1 + sum over P"],
    "src/simgrad/objectives/offline.py": ["w [online"],
    "src/simgrad/objectives/smoothap.py": ["R_i = 1 + sum of"],
    "src/simgrad/search/calibration.py": ["score  "],
}


def unchecked(docstring: Docstring) -> list[str]:
    """The blocks of a docstring that no test knows."""
    known = commands(docstring.text)
    found = []
    for block in blocks(docstring.text):
        typed = all(line in known for line in block.split("\n") if line)
        plain = any(block.startswith(start) for start in NO_CODE.get(docstring.file, ()))
        if not (typed or plain or docstring.file in FILES):
            found.append(block)
    if ">>>" in docstring.text and not docstring.file.startswith("src/"):
        found.append("an example with >>>")  # only those of the package are run
    return found


def test_every_block_is_known() -> None:
    wrong = {one.place: found for one in every() if (found := unchecked(one))}
    assert not wrong, f"write it with >>>, or add it to tests/test_docstring_blocks.py: {wrong}"


@pytest.mark.parametrize("file", FILES)
def test_lines_of_files_are_read(file: str) -> None:
    (block,) = (block for one in every() if one.file == file for block in blocks(one.text))
    FILES[file](block)


def test_commands_can_be_typed() -> None:
    named = [(one.place, line) for one in every() for line in commands(one.text)]
    wrong = {place: f"{line}: {why}" for place, line in named if (why := misread(line))}
    assert named
    assert not wrong


def test_no_table_is_listed_in_vain() -> None:
    for file, starts in NO_CODE.items():
        found = [block for one in every() if one.file == file for block in blocks(one.text)]
        for start in starts:
            assert any(block.startswith(start) for block in found), f"{file}: {start}"


@pytest.mark.parametrize(
    ("text", "is_known"),
    [
        ("A sentence.\n\n    loss = made(images)\n", False),
        ("A sentence.\n\n    made(loss=loss, ...).train()\n", False),  # not even Python
        ("A sentence:\n    loss = made(images)\n", False),
        ("A sentence.\n\nloss = made(images)\n", False),
        ("A sentence.\n\npython made.py\n", False),
        ("A sentence.\n\n```python\nloss = made(images)\n```\n", False),
        ("A sentence.\n\n    apt-get install things\n", False),
        ("A sentence.\n\n    simgrad demo\n    rm -r studies\n", False),
        ("A sentence.\n\nExamples:\n    loss = made(images)\n", False),
        ("A sentence.\n\nArgs:\n    one: what it is\n        and more of it\n", True),
        ("A sentence.\n\nArgs:\n    one: as in\n\n        made(one)\n", False),
        ("A sentence.\n\n- a point\n  that goes on\n", True),
        ("A sentence.\n\n    simgrad demo\n    make demo\n", True),
        ("A sentence.\n\nExamples:\n    >>> 1 + 1\n    2\n", True),
    ],
)
def test_a_block_that_nobody_runs_is_found(text: str, is_known: bool, tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "new.py").write_text(f'"""{text}"""\n', encoding="utf-8")
    (one,) = docstrings(("src",), tmp_path)
    assert (unchecked(one) == []) == is_known
