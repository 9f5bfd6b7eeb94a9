"""Pages from templates: one Jinja2 environment and one stylesheet for reports, lab and notebooks.

A room that makes pages has a folder `templates`; the macros for blocks are in pages/templates.
Everything that a template prints is escaped."""

import base64
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from itertools import count, groupby
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from simgrad.core.errors import InputError
from simgrad.core.files import atomic_write
from simgrad.pages.blocks import Block, Figure, Inline, Term, Words
from simgrad.pages.svg import RULES, colours, described

_PIECES = count()  # of HTML that were made
_PIECE = (
    "font:15px/1.5 system-ui,-apple-system,'Segoe UI',Roboto,sans-serif;color:var(--ink);"
    "background:var(--paper);padding:.6rem .8rem;"
)


class Meanings:
    """The words that a page explains, each once.

    `prefix` keeps ids apart where several pieces share a page, as in a notebook.
    """

    def __init__(self, prefix: str = "") -> None:
        self.prefix = prefix
        self._names: dict[tuple[str, str], str] = {}

    def name(self, text: str, meaning: str) -> str:
        """The id under which the page keeps this meaning."""
        return self._names.setdefault((text, meaning), f"{self.prefix}word-{len(self._names)}")

    def __iter__(self) -> Iterator[tuple[str, str, str]]:
        """(id, word, meaning) of all that were asked for so far."""
        return iter([(name, *word) for word, name in self._names.items()])


@lru_cache
def environment(package: str) -> Environment:
    """The templates of a room, and those that all rooms share."""
    folders = [str(files(name).joinpath("templates")) for name in (package, "simgrad.pages")]
    made = Environment(
        loader=FileSystemLoader(folders),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {"drawn": _drawn, "webp": webp, "consecutive": _consecutive}
    made.filters |= {"breakable": _breakable, "glued": _glued, "coded": _coded}
    return made


def render(package: str, template: str, prefix: str = "", **values: Any) -> str:
    """A page; half surrogates in captions become question marks, as UTF-8 has none."""
    made = environment(package).get_template(template)
    text = made.render(meanings=Meanings(prefix), **values)
    return text.encode("utf-8", "replace").decode()


def theme(dark: bool = True) -> str:
    """Colours and what blocks look like, as CSS; `dark`: dark where the reader's system is.

    Print is always light: dark paper wastes ink.
    """
    return _coloured(":root", dark) + RULES + stylesheet("simgrad.pages", "blocks.css")


def _coloured(where: str, dark: bool) -> str:
    css = f"{where}{{{colours(False)}}}"
    if dark:
        css += f"@media screen and (prefers-color-scheme:dark){{{where}{{{colours(True)}}}}}"
    return css


def fragment(blocks: Sequence[Block]) -> str:
    """Blocks as a piece of HTML that leaves the page around it as it is."""
    css = RULES + stylesheet("simgrad.pages", "blocks.css")
    style = _coloured(".simgrad", True) + f".simgrad{{{_PIECE}{css}}}"
    values = {"blocks": blocks, "css": Markup(style)}
    return render("simgrad.pages", "fragment.html", f"piece{next(_PIECES)}-", **values)


def stylesheet(package: str, name: str) -> str:
    """A CSS file among the templates of a room."""
    return files(package).joinpath("templates", name).read_text(encoding="utf-8")


def webp(data: bytes) -> str:
    """A picture as an address that holds all of it."""
    return "data:image/webp;base64," + base64.b64encode(data).decode()


def _drawn(figure: Figure, prefix: str) -> Markup:
    # The drawing is ours and its texts are escaped: see `svg.element`.
    name = f"{prefix}{figure.name}"
    return Markup(described(figure.svg, name, figure.title, figure.description))


def _breakable(text: str) -> str:
    """A spec whose line may be broken after a bracket and an equals sign."""
    return re.sub(r"([(=])", "\\1\u200b", text)


def _coded(text: str) -> Markup:
    """A sentence with its `code` set as code."""
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text))))


def _glued(words: Words) -> list[tuple[str, Inline, str]]:
    """Each word; a term with the bracket before it and the punctuation after it.

    A browser may break a line on either side of a button, whatever stands there.
    """
    found: list[tuple[str, Inline, str]] = []
    for word in words:
        if isinstance(word, str) and found and isinstance(found[-1][1], Term):
            after = re.match(r"[),.;:!?]*", word)
            assert after is not None
            found[-1] = (*found[-1][:2], after[0])
            word = word[after.end() :]
        before = ""
        if isinstance(word, Term) and found and isinstance(found[-1][1], str):
            left = found[-1][1]
            before = left[len(left.rstrip("(")) :]
            found[-1] = ("", left[: len(left) - len(before)], "")
        found.append((before, word, ""))
    return found


def _consecutive(items: Sequence[Any], name: str) -> list[tuple[Any, int]]:
    """(value, how many in a row have it)"""
    return [(k, len(list(same))) for k, same in groupby(items, lambda item: getattr(item, name))]


_SUFFIXES = (".html", ".htm")
_PAGE = '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>simgrad</title></head>'


@dataclass(frozen=True)
class Shown:
    """Something to look at. A notebook draws it; `print` gives its words; `save` writes a page."""

    blocks: Sequence[Block]
    text: str

    def _repr_html_(self) -> str:
        return fragment(self.blocks)

    def __repr__(self) -> str:
        return self.text

    def save(self, path: str | Path) -> Path:
        """Write it as a page of its own, .html."""
        if Path(path).suffix.lower() not in _SUFFIXES:
            kind = Path(path).suffix or "a file without an ending"
            raise InputError(
                f"{path}: it is written as a page, {' or '.join(_SUFFIXES)}, not as {kind}. A "
                "browser prints the page as PDF."
            )
        with atomic_write(path) as file:
            file.write(f"{_PAGE}\n<body>{fragment(self.blocks)}</body></html>\n")
        return Path(path)
