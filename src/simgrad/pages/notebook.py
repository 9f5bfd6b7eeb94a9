"""What a notebook draws: blocks as HTML, and as text where there is no browser."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from simgrad.core.errors import InputError
from simgrad.core.files import atomic_write
from simgrad.pages.blocks import Block
from simgrad.pages.rendering import fragment

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
