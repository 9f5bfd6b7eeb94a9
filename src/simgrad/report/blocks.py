"""What a report is made of: plain data, which the HTML and the Markdown writers render.

Every text in here is plain text. Only the writers turn it into markup, and they escape all of it,
so no caption or file name can become part of the page.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

Mark = Literal["right", "true", ""]  # the paired one; not paired, but true all the same; neither


class Strong(NamedTuple):
    """Words that matter."""

    text: str


class Code(NamedTuple):
    """A name as a program writes it."""

    text: str


class Key(NamedTuple):
    """A system's name with its colour."""

    text: str
    colour: int | None


Inline = str | Strong | Code | Key
Words = Sequence[Inline]


@dataclass(frozen=True)
class Paragraph:
    """A paragraph; `lead` is large, `note` small."""

    words: Words
    kind: Literal["", "lead", "note"] = ""


@dataclass(frozen=True)
class Callout:
    """Something the reader must not miss."""

    title: str
    lines: Sequence[str]


@dataclass(frozen=True)
class Column:
    """A column's head; columns that share `over` stand under it together."""

    label: str
    numeric: bool = True
    over: str = ""


@dataclass(frozen=True)
class Cell:
    """A cell; `note` is small and beneath."""

    text: str
    note: str = ""
    strong: bool = False
    key: bool = False  # the first cell of a system: with its colour
    colour: int | None = None


@dataclass(frozen=True)
class Row:
    """A row; `aside` rows are what others published, `group` rows are headings."""

    cells: Sequence[Cell]
    kind: Literal["", "aside", "group"] = ""


@dataclass(frozen=True)
class Table:
    """A table that scrolls sideways where it does not fit."""

    title: str
    columns: Sequence[Column]
    rows: Sequence[Row]
    caption: str = ""


@dataclass(frozen=True)
class Figure:
    """A drawing; `name` is its file's stem where it gets a file."""

    name: str
    title: str
    svg: str
    description: str  # what a reader who cannot see it is told
    caption: str = ""


@dataclass(frozen=True)
class Figures:
    """Drawings side by side, with the systems' colours above."""

    figures: Sequence[Figure]
    keys: Sequence[Key] = ()


@dataclass(frozen=True)
class Thumb:
    """A picture of the album, or its name where there is no picture."""

    picture: str | None
    name: str
    mark: Mark = ""


@dataclass(frozen=True)
class Line:
    """A retrieved caption."""

    text: str
    mark: Mark = ""


@dataclass(frozen=True)
class Strip:
    """What one system retrieved: pictures or captions, best first."""

    system: Key
    outcome: str  # where the right one stood
    thumbs: Sequence[Thumb] = ()
    lines: Sequence[Line] = ()


@dataclass(frozen=True)
class Example:
    """A query and what was retrieved for it."""

    query: str | Thumb
    strips: Sequence[Strip]
    own: Thumb | None = None  # the picture that a caption belongs to


@dataclass(frozen=True)
class Examples:
    """Queries, one after another."""

    examples: Sequence[Example]


@dataclass(frozen=True)
class Listing:
    """Text as a program reads it."""

    text: str


@dataclass(frozen=True)
class Details:
    """What is folded away until asked for."""

    title: str
    blocks: "Sequence[Block]"


Block = Paragraph | Callout | Table | Figures | Examples | Listing | Details


@dataclass(frozen=True)
class Section:
    """A titled part of the report."""

    anchor: str
    title: str
    short: str  # for the list of contents
    blocks: Sequence[Block]


@dataclass(frozen=True)
class Report:
    """A whole report."""

    title: str
    subtitle: str
    head: Sequence[Block]
    sections: Sequence[Section]
    foot: str
    pictures: dict[str, tuple[bytes, int, int]] = field(default_factory=dict)  # WebP, width, height
