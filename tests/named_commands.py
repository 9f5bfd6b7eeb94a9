"""Commands that a text names, and what is wrong with them: none is run, all are read.

tests/test_pages.py asks this of the pages, tests/test_docstring_blocks.py of docstrings.
"""

import functools
import importlib
import importlib.util
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tyro
from benchmarks.run import bench

from simgrad.cli.options import JSON, answers, complete_flags, registry
from simgrad.cli.program import COMMANDS

ROOT = Path(__file__).parents[1]
FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
CALL = r"(?:simgrad|python|torchrun|make) "


def commands(text: str) -> list[str]:
    """Lines of code blocks that call a program of ours, and code in a sentence that does."""
    found = []
    for language, block in FENCE.findall(text):
        if language in ("", "bash", "sh", "console", "text"):
            joined = block.replace("\\\n", " ")
            found += re.findall(rf"^(?:\$ )?({CALL}.+)$", joined, re.MULTILINE)
    plain = FENCE.sub("", text)
    found += re.findall(rf"^ {{4}}({CALL}.+)$", plain, re.MULTILINE)
    found += [" ".join(each.split()) for each in re.findall(rf"`({CALL}[^`]+)`", plain)]
    return found


def misread(line: str) -> str:
    """What is wrong with a command; "" if it can be typed so."""
    program, *words = _words(line)
    if program == "torchrun":  # its own options, each with a value, then what python is given
        while words and words[0].startswith("--"):
            words[:2] = []
        program = "python"
    if program == "make":
        return _misread_make(words)
    if program == "python" and words[:2] != ["-m", "simgrad.cli"]:
        return _misread_python(words)
    return _misread_simgrad(words[2:] if program == "python" else words)


def _words(line: str) -> list[str]:
    """The words of a command, without what stands for more."""
    line = re.sub(r"\s[|>]\s.*| #.*", "", line)
    return [w for w in shlex.split(line.replace("{split}", "split")) if w not in ("...", "…")]


def _misread_simgrad(words: list[str]) -> str:
    while words[:1] == ["--with"]:
        words = words[2:]
    if not words or words[0] in ("--help", "--version", "--completion", "COMMAND"):
        return ""
    if words[0] not in COMMANDS:
        return f"there is no command {words[0]}"
    if len(words) == 1:  # its name
        return ""
    module, function, _ = COMMANDS[words[0]]
    command = getattr(importlib.import_module(f"simgrad.cli.{module}"), function)
    if answers(command):
        words = [word for word in words if word != JSON]
    return _misread_options(command, words[1:], tyro.conf.OmitArgPrefixes)


def _misread_options(command: Callable[..., Any], words: list[str], *config: Any) -> str:
    """Whether a typed function can be called so."""

    @functools.wraps(command)
    def nothing(*_: Any, **__: Any) -> None:
        """It is only read."""

    nothing.__doc__ = command.__doc__
    try:
        with registry():
            tyro.cli(
                nothing,
                args=complete_flags(command, words),
                config=(*config, tyro.conf.FlagConversionOff),
                console_outputs=False,
            )
    except SystemExit as ended:
        return f"not understood (exit {ended.code})" if ended.code else ""
    return ""


def _misread_make(words: list[str]) -> str:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = re.findall(r"^([a-z-]+):", makefile, re.MULTILINE)
    unknown = [word for word in words if "=" not in word and word not in targets]
    return f"nothing is made by {unknown[0]}" if unknown else ""


def _misread_python(words: list[str]) -> str:
    """A script or module must be there and know the options; to ask it would import torch."""
    if words[:2] == ["-m", "benchmarks"]:
        return _misread_options(bench, words[2:])
    if words[0] == "-m":
        found = importlib.util.find_spec(words[1])
        place = Path(found.origin) if found is not None and found.origin else ROOT / words[1]
    else:
        place = ROOT / words[0]
    if not place.is_file():
        return f"there is no {words[1] if words[0] == '-m' else words[0]}"
    texts = [place.read_text(encoding="utf-8")]
    if "command(__doc__" in texts[0]:  # benchmarks share the options of one function
        texts.append((place.parent / "common.py").read_text(encoding="utf-8"))
    for word in words:
        option = word.partition("=")[0]
        if option.startswith("--") and not any(f'"{option}"' in text for text in texts):
            return f"{place.name} has no option {option}"
    return ""
