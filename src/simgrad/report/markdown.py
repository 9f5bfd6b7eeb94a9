"""A report as Markdown: tables as text, drawings and pictures as files beside it."""

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import quote

from jinja2 import Environment
from markupsafe import Markup

from simgrad.core.files import atomic_path, atomic_write
from simgrad.pages.blocks import Block, Details, Figure, Figures
from simgrad.pages.rendering import Meanings, environment
from simgrad.pages.svg import described, standalone
from simgrad.report.page import Report


def write_markdown(report: Report, output: Path) -> list[Path]:
    """Write `output` and a folder of its drawings and pictures; all files written."""
    folder = output.with_name(f"{output.stem}-files")
    template = _environment().get_template("report.md")
    text = template.render(report=report, folder=_address(folder.name), meanings=Meanings())
    written = []
    for figure in _figures(report.blocks()):
        written.append(folder / f"{figure.name}.svg")
        svg = described(figure.svg, figure.name, figure.title, figure.description)
        with atomic_write(written[-1]) as file:
            file.write(standalone(svg))
    for name, (data, _, _) in report.pictures.items():
        written.append(folder / f"{name}.webp")
        with atomic_path(written[-1]) as path:
            path.write_bytes(data)
    with atomic_write(output) as file:
        file.write(re.sub(r"\n{3,}", "\n\n", text).strip() + "\n")
    return [output, *written]


@lru_cache(maxsize=1)
def _environment() -> Environment:
    """Whatever a template prints is made harmless for Markdown, unless it is markup already."""
    made = environment("simgrad.report").overlay(finalize=_plain)
    made.filters = {**made.filters, "fenced": _fenced, "address": _address}
    return made


def _plain(value: Any) -> Markup:
    """Text that Markdown leaves as it is, on one line."""
    if isinstance(value, Markup):
        return value
    text = str(value)
    flat = escape(" ".join(text.split()), quote=False)
    flat = re.sub(r"([\\`*_\[\]|~#!])", r"\\\1", flat)
    # Spaces at the ends separate a piece from its neighbours.
    before = " " if flat and text[:1].isspace() else ""
    return Markup(before + flat + (" " if text[-1:].isspace() else ""))


def _address(name: str) -> Markup:
    """A file's name in a link."""
    return Markup(quote(name))


def _fenced(text: str) -> Markup:
    """Text as it is, between fences longer than any inside."""
    fence = "`" * (max([2, *(len(run) for run in re.findall("`+", text))]) + 1)
    return Markup(f"{fence}\n{text}\n{fence}")


def _figures(blocks: Sequence[Block]) -> Iterator[Figure]:
    for block in blocks:
        match block:
            case Figures(figures):
                yield from figures
            case Details(blocks=inner):
                yield from _figures(inner)
