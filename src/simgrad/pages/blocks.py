"""What pages are made of: plain data, which the templates of `rendering.py` turn into markup.

Every text in here is plain text. Only templates make markup of it, and they escape all of it, so
no caption or file name can become part of a page.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

Mark = Literal["right", "true", ""]  # the paired one; not paired, but true all the same; neither


@dataclass(frozen=True)
class Strong:
    """Words that matter."""

    kind: ClassVar[str] = "strong"
    text: str


@dataclass(frozen=True)
class Code:
    """A name as a program writes it."""

    kind: ClassVar[str] = "code"
    text: str


@dataclass(frozen=True)
class Key:
    """A system's name with its colour."""

    kind: ClassVar[str] = "key"
    text: str
    colour: int | None


@dataclass(frozen=True)
class Term:
    """A word that not everybody knows, with its meaning."""

    kind: ClassVar[str] = "term"
    text: str
    meaning: str


Inline = str | Strong | Code | Key | Term
Words = Sequence[Inline]


@dataclass(frozen=True)
class Paragraph:
    """A paragraph; `lead` is large, `note` small."""

    kind: ClassVar[str] = "paragraph"
    words: Words
    tone: Literal["", "lead", "note"] = ""


@dataclass(frozen=True)
class Callout:
    """Something the reader must not miss."""

    kind: ClassVar[str] = "callout"
    title: str
    lines: Sequence[str]


@dataclass(frozen=True)
class Column:
    """A column's head; columns that share `over` stand under it together."""

    label: str
    numeric: bool = True
    over: str = ""
    meaning: str = ""  # shown when asked for


@dataclass(frozen=True)
class Cell:
    """A cell; `note` is small and beneath."""

    text: str
    note: str = ""
    strong: bool = False
    key: bool = False  # the first cell of a system: with its colour
    colour: int | None = None
    badge: Literal["", "good", "bad", "plain"] = ""  # a word in a frame of its own


@dataclass(frozen=True)
class BodyRow:
    """A row; `aside` rows are what a paper printed, `group` rows are headings."""

    cells: Sequence[Cell]
    tone: Literal["", "aside", "group"] = ""


@dataclass(frozen=True)
class Table:
    """A table that scrolls sideways where it does not fit."""

    kind: ClassVar[str] = "table"
    title: str
    columns: Sequence[Column]
    rows: Sequence[BodyRow]
    caption: str = ""


@dataclass(frozen=True)
class Figure:
    """A drawing; `name` is its file's stem where it gets a file."""

    name: str
    title: str
    svg: str
    description: str  # what a reader who cannot see it is told
    see: str = ""  # one sentence above: what to look for
    caption: str = ""  # beneath: what the signs mean


@dataclass(frozen=True)
class Figures:
    """Drawings side by side, with the systems' colours above."""

    kind: ClassVar[str] = "figures"
    figures: Sequence[Figure]
    keys: Sequence[Key] = ()


@dataclass(frozen=True)
class Thumb:
    """A picture of the album, or its name where there is no picture."""

    picture: str | None
    name: str
    mark: Mark = ""
    note: str = ""  # beneath it


@dataclass(frozen=True)
class Line:
    """A retrieved caption."""

    text: str
    mark: Mark = ""
    note: str = ""


@dataclass(frozen=True)
class Strip:
    """What one system retrieved: pictures or captions, best first."""

    system: Key
    outcome: str  # where the right one stood
    thumbs: Sequence[Thumb] = ()
    lines: Sequence[Line] = ()


@dataclass(frozen=True)
class Example:
    """A query and what was retrieved for it: a sentence, or a picture where `sentence` is None."""

    sentence: str | None
    strips: Sequence[Strip]
    picture: Thumb | None = None  # the query, or what the sentence was written for
    asked: str = "Which captions belong to this picture?"  # in the place of a sentence


@dataclass(frozen=True)
class Examples:
    """Queries, one after another."""

    kind: ClassVar[str] = "examples"
    examples: Sequence[Example]


@dataclass(frozen=True)
class Listing:
    """Text as a program reads it."""

    kind: ClassVar[str] = "listing"
    text: str


@dataclass(frozen=True)
class Details:
    """What is folded away until asked for."""

    kind: ClassVar[str] = "details"
    title: str
    blocks: "Sequence[Block]"


Block = Paragraph | Callout | Table | Figures | Examples | Listing | Details
Album = dict[str, tuple[bytes, int, int]]  # name -> WebP, width, height


@dataclass(frozen=True)
class Section:
    """A titled part of a page."""

    anchor: str
    title: str
    short: str  # for the list of contents
    blocks: Sequence[Block]
