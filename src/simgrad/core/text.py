"""Text of messages: what comes from files is made harmless, names are guessed, words are listed.

Names, labels and captions from files may hold any character.
"""

import difflib
import inspect
import json
import re
import textwrap
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

_SHOWN = 4  # names, where many have the same to say
_JOINERS = "\u200c\u200d"  # Persian, Hindi and many emoji need them


def _harmless(character: str) -> bool:
    """Printable, or a space of any script."""
    return (
        character.isprintable() or character in _JOINERS or unicodedata.category(character) == "Zs"
    )


def plain(text: str) -> str:
    """Text in which nothing can steer a terminal: what cannot be printed is spelled out."""
    if text.isprintable():
        return text
    return "".join(c if _harmless(c) or c == "\n" else ascii(c)[1:-1] for c in text)


def as_json(value: Any) -> str:
    """JSON for people and programs: letters of any script as they are, and nothing that could
    steer a terminal; what cannot be printed is escaped, so it reads back the same."""
    text = json.dumps(value, indent=1, ensure_ascii=False)
    return "".join(c if _harmless(c) or c == "\n" else _escaped(c) for c in text)


def _escaped(character: str) -> str:
    """By JSON's rules: two halves where one is not enough."""
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i : i + 2].hex()}" for i in range(0, len(units), 2))


def one_line(text: str) -> str:
    """Text in one line: breaks and what cannot be printed become spaces."""
    return " ".join("".join(c if _harmless(c) else " " for c in text).split())


def place_of(function: Any) -> str:
    """`mine.py:12`: where a function of somebody's own is written."""
    code = getattr(function, "__code__", None)
    if code is None:
        return type(function).__name__
    return place(code.co_filename, code.co_firstlineno)


def place(file: str, line: int) -> str:
    """`mine.py:12`, from here."""
    path, here = Path(file), Path.cwd()
    return f"{path.relative_to(here) if path.is_relative_to(here) else path}:{line}"


_LATEX = (
    (r"\\text\{([^{}]*)\}", r"\1"),
    (r"\\hat\{(\w)\}", r"\1'"),
    (r"\\tilde\{(\w)\}", r"\1''"),
    (r"\\left|\\right", ""),
    (r"\\(?:[,; ]|quad)", " "),
    (r"\\partial ", "d"),
    (r"\\cdot", "*"),
    (r"\\neq", "!="),
    (r"\^\{([+-])\}", r"\1"),  # s^{+} is s+
    (r"([_^])\{(\w+)\}", r"\1\2"),
)


def plain_formula(latex: str) -> str:
    """A formula of LaTeX, a line each, as one writes it in a program: s+ / (s+ + sum_n s_n)."""
    text, before = latex.strip(), ""
    for pattern, written in _LATEX:
        text = re.sub(pattern, written, text)
    while text != before:  # from the inside out
        before = text
        text = re.sub(r"([_^])\{([^{}]*)\}", r"\1(\2)", text)
        text = re.sub(r"\\frac\{([^{}]*)\}\{([^{}]*)\}", _fraction, text)
    return "\n".join(" ".join(line.replace("\\", "").split()) for line in text.splitlines())


def _fraction(found: re.Match[str]) -> str:
    bare = r"[\\\w^]+|\w\^\([^()]*\)|d\w[+-]"  # what needs no parentheses
    above, below = (x if re.fullmatch(bare, x) else f"({x})" for x in found.groups())
    return f"({above} / {below})"


def with_section(doc: str | None, title: str, entries: Mapping[str, str]) -> str:
    """A docstring with a section of names and their meanings, before its examples."""
    text = inspect.cleandoc(doc or "")
    if not entries:
        return text
    lines = [
        textwrap.fill(
            line, 88, initial_indent=" " * 4, subsequent_indent=" " * 8, break_on_hyphens=False
        )
        for name, told in entries.items()
        for line in f"{name}: {told}".splitlines()
    ]
    head, examples, rest = text.partition("Examples:")
    section = "\n".join([f"{title}:", *lines])
    return "\n\n".join(filter(None, [head.strip(), section, examples + rest]))


def did_you_mean(name: str, names: Iterable[str], cutoff: float = 0.6) -> str:
    """The name that was probably meant; "" if none is near."""
    return next(iter(difflib.get_close_matches(name, list(names), n=1, cutoff=cutoff)), "")


def near_path(text: str | Path) -> str:
    """A sentence that names the file or folder that was probably meant; "" if none is near."""
    try:
        path = Path(text).expanduser()
        near = did_you_mean(path.name, sorted(one.name for one in path.parent.iterdir()), 0.7)
    except (OSError, ValueError, RuntimeError):  # no folder, no name of a file, no such user
        return ""
    return f" Did you mean {path.parent / near}?" if near else ""


def listed(words: Sequence[str], word: str) -> str:
    """`a, b or c`, with "or" as the word."""
    *first, last = words
    return f"{', '.join(first)} {word} {last}" if first else last


def counted(number: int, noun: str, verb: str = "") -> str:
    """`1 image` and `2,000 images`; with the verb `are`, `1 image is` and `2,000 images are`."""
    one = {"are": "is", "were": "was"}
    words = [f"{number:,}", noun if number == 1 else f"{noun}s"]
    return " ".join([*words, one.get(verb, verb) if number == 1 else verb]).rstrip()


def duration(seconds: float | None) -> str:
    """`8 s`, `3 min`, `2.5 h`; a dash if it is not known."""
    if seconds is None:
        return "–"
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def told_once(reasons: list[tuple[str, str]]) -> list[str]:
    """(name, reason) pairs as lines, each reason once; of many names the first."""
    names: dict[str, list[str]] = {}
    for name, reason in reasons:
        names.setdefault(reason, []).append(name)
    return [f"{_some(found)}: {reason}" for reason, found in names.items()]


def _some(names: list[str]) -> str:
    if len(names) <= _SHOWN:
        return ", ".join(names)
    return f"{', '.join(names[:_SHOWN])} and {len(names) - _SHOWN} more"
