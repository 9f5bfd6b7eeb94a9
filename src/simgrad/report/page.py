"""A whole report as one file: HTML with no script and nothing from the network, or Markdown."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import quote

from jinja2 import Environment
from markupsafe import Markup

from simgrad.core.files import atomic_path, atomic_write
from simgrad.pages.blocks import Album, Block, Details, Figure, Figures, Section
from simgrad.pages.rendering import Meanings, environment, render, stylesheet, theme
from simgrad.pages.svg import described, standalone

_PAPER = "#training,#cocos,#triplets,#examples,#provenance{break-before:page}"


@dataclass(frozen=True)
class Report:
    """A whole report."""

    title: str
    subtitle: str
    head: Sequence[Block]
    sections: Sequence[Section]
    foot: str
    pictures: Album = field(default_factory=dict)

    def blocks(self) -> list[Block]:
        """Everything that is shown, in its order."""
        return [*self.head, *(block for section in self.sections for block in section.blocks)]


def page(report: Report, *, paper: bool = False) -> str:
    """The whole file; `paper`: light, unfolded and broken into pages, to be printed to PDF."""
    css = theme(dark=not paper) + stylesheet("simgrad.report", "report.css")
    css += _PAPER if paper else ""
    return render("simgrad.report", "report.html", report=report, paper=paper, css=Markup(css))


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
