"""What the package says of its arguments holds in Python; a command says it of its options."""

import ast
import re
from pathlib import Path

import pytest

import simgrad
from simgrad.cli.choose import choose
from simgrad.cli.options import as_options
from simgrad.cli.program import main
from simgrad.cli.train import train

ROOT = Path(simgrad.__file__).parent
ELSEWHERE = ("cli", "pages")  # what a command alone says; style sheets
COMMAND = re.compile(r"`simgrad [^`]*`|^\s*simgrad .*$|simgrad \w+ --\w+", re.MULTILINE)
# What runs before any command, a part of one, and what other programs are told.
NO_ARGUMENT = r"with\b|grid 7|error-unmatch|porcelain|untracked-files|num-cpus"
OPTION = re.compile(rf"(?<![\w-])--(?!{NO_ARGUMENT})[a-z]")


def _texts(file: Path) -> list[tuple[int, str]]:
    """Every text of a file that somebody may read, with its line; values are left out."""
    tree = ast.parse(file.read_text("utf-8"))
    skipped, found = set(), []  # texts that document, and parts of texts
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            skipped |= {id(part) for part in node.values}
        elif isinstance(node, ast.Expr):
            skipped.add(id(node.value))
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            parts = [one.value if isinstance(one, ast.Constant) else "X" for one in node.values]
            found.append((node.lineno, "".join(map(str, parts))))
        elif isinstance(node, ast.Constant) and id(node) not in skipped:
            found.append((node.lineno, str(node.value)))
    return found


def test_no_text_of_the_package_names_an_option_as_a_command_has_it() -> None:
    told = [
        f"{file.relative_to(ROOT)}:{line}: {text}"
        for file in sorted(ROOT.rglob("*.py"))
        if file.relative_to(ROOT).parts[0] not in ELSEWHERE
        for line, text in _texts(file)
        if OPTION.search(COMMAND.sub("", text))
    ]
    assert not told, "\n".join(["say `name` or `name=value` instead:", *told])


@pytest.mark.parametrize(
    ("text", "command", "told"),
    [
        ("`minutes` is a number above 0.", choose, "--minutes is a number above 0."),
        ("give about `minutes=52`.", choose, "give about --minutes 52."),
        ("`micro_batch=16` is smaller", train, "--micro-batch 16 is smaller"),
        ("`strict=True`, `strict=False`", choose, "--strict, --no-strict"),
        ("`model='a b'`, no `layout`", choose, "--model 'a b', no `layout`"),
        ("`simgrad choose --minutes 3`", choose, "`simgrad choose --minutes 3`"),
    ],
)
def test_a_command_names_its_options(text: str, command: object, told: str) -> None:
    assert as_options(text, command) == told


def test_an_error_is_worded_for_whoever_gets_it(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError, match="`minutes` is a number above 0"):
        simgrad.choose("scenes", minutes=0)
    with pytest.raises(SystemExit):
        main(["choose", "scenes", "--minutes", "0"])
    assert capsys.readouterr().err.startswith("simgrad: --minutes is a number above 0")
