"""The Markdown writer: tables as text, drawings and pictures as files beside it."""

import re
from collections.abc import Sequence
from html import escape
from pathlib import Path

from simgrad.core.files import atomic_path, atomic_write
from simgrad.report.blocks import (
    Block,
    Callout,
    Cell,
    Code,
    Details,
    Example,
    Examples,
    Figures,
    Inline,
    Key,
    Listing,
    Paragraph,
    Report,
    Strip,
    Strong,
    Table,
    Thumb,
)
from simgrad.report.svg import described, standalone

_MARKS = {"right": " ✓", "true": " ~", "": ""}


def write_markdown(report: Report, output: Path) -> list[Path]:
    """Write `output` and a folder of its drawings and pictures; all files written."""
    folder = output.with_name(f"{output.stem}-files")
    writer = _Writer(folder.name)
    text = [f"# {_plain(report.title)}", _plain(report.subtitle)]
    text += [writer.block(block) for block in report.head]
    for section in report.sections:
        text.append(f"## {_plain(section.title)}")
        text += [writer.block(block) for block in section.blocks]
    text.append(f"---\n\n{_plain(report.foot)}")
    written = []
    for name, svg in writer.drawings.items():
        written.append(folder / f"{name}.svg")
        with atomic_write(written[-1]) as file:
            file.write(svg)
    for key, (data, _, _) in report.pictures.items():
        written.append(folder / f"{key}.webp")
        with atomic_path(written[-1]) as path:
            path.write_bytes(data)
    with atomic_write(output) as file:
        file.write("\n\n".join(part for part in text if part) + "\n")
    return [output, *written]


class _Writer:
    def __init__(self, folder: str) -> None:
        self.folder = folder.replace(" ", "%20")
        self.drawings: dict[str, str] = {}

    def block(self, block: Block) -> str:
        match block:
            case Paragraph(words, _):
                return _words(words)
            case Callout(title, lines):
                return "\n".join(
                    [f"> **{_plain(title)}**", ">", *(f"> - {_plain(t)}" for t in lines)]
                )
            case Table():
                return _table(block)
            case Figures(figures, _):
                for figure in figures:
                    svg = described(figure.svg, figure.name, figure.title, figure.description)
                    self.drawings[figure.name] = standalone(svg)
                shown = [self.picture(f.title, f"{f.name}.svg") for f in figures]
                captions = list(dict.fromkeys(f.caption for f in figures if f.caption))
                return "\n".join([*shown, "", *map(_plain, captions)]).rstrip()
            case Examples(examples):
                return "\n\n".join(self.example(example) for example in examples)
            case Listing(text):
                fence = "`" * (max([2, *(len(run) for run in re.findall("`+", text))]) + 1)
                return f"{fence}\n{text}\n{fence}"
            case Details(title, blocks):
                return "\n\n".join([f"### {_plain(title)}", *(self.block(b) for b in blocks)])

    def picture(self, title: str, file: str) -> str:
        return f"![{_plain(title)}]({self.folder}/{file})"

    def example(self, example: Example) -> str:
        if isinstance(example.query, Thumb):
            head = f"**Picture** {self.thumb(example.query)}"
        else:
            own = f" {self.thumb(example.own)}" if example.own is not None else ""
            head = f"**“{_plain(example.query)}”**{own}"
        return "\n\n".join([head, *(self.strip(strip) for strip in example.strips)])

    def strip(self, strip: Strip) -> str:
        head = f"*{_plain(strip.system.text)}*: {_plain(strip.outcome)}"
        if strip.thumbs:
            return f"{head}\n\n" + " ".join(self.thumb(t) + _MARKS[t.mark] for t in strip.thumbs)
        lines = [f"{i}. {_plain(t.text)}{_MARKS[t.mark]}" for i, t in enumerate(strip.lines, 1)]
        return f"{head}\n\n" + "\n".join(lines)

    def thumb(self, thumb: Thumb) -> str:
        if thumb.picture is None:
            return f"[{_plain(thumb.name)}]"
        return self.picture(thumb.name, f"{thumb.picture}.webp")


def _plain(text: str) -> str:
    """Text that Markdown leaves as it is, on one line."""
    flat = escape(" ".join(text.split()), quote=False)
    return re.sub(r"([\\`*_\[\]|~#!])", r"\\\1", flat)


def _words(words: Sequence[Inline]) -> str:
    found = []
    for word in words:
        match word:
            case Strong(text) | Key(text, _):
                found.append(f"**{_plain(text)}**")
            case Code(text):
                found.append(f"**{_plain(text)}**")
            case _:
                # Spaces at the ends separate this piece from its neighbours.
                bare = _plain(word)
                before = " " if word[:1].isspace() else ""
                found.append(before + bare + (" " if word[-1:].isspace() and bare else ""))
    return "".join(found)


def _table(table: Table) -> str:
    heads = [f"{c.over} {c.label}".strip() for c in table.columns]
    lines = ["| " + " | ".join(map(_plain, heads)) + " |"]
    lines.append("|" + "|".join("---:" if c.numeric else "---" for c in table.columns) + "|")
    for row in table.rows:
        cells = [_cell(cell) for cell in row.cells]
        if row.kind == "aside":
            cells = [f"*{cell}*" if cell.strip() else "" for cell in cells]
        elif row.kind == "group":
            cells = [f"**{cells[0]}**"] + [""] * (len(table.columns) - 1)
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + (f"\n\n{_plain(table.caption)}" if table.caption else "")


def _cell(cell: Cell) -> str:
    text = _plain(cell.text)
    text = f"**{text}**" if cell.strong else text
    note = _plain(cell.note.replace("\n", ", "))
    return f"{text} ({note})" if note else text
