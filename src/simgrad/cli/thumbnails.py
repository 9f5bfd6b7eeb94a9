"""Pictures in a terminal: kitty's and iTerm2's own protocols, coloured half blocks elsewhere."""

import base64
import io
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from PIL.Image import Image
    from rich.text import Text

_PIXELS = 192  # a side, where the terminal draws pixels
_CELLS = 20  # columns of a picture made of half blocks
_CHUNK = 4096  # kitty takes no more base64 at once


def protocol(stream: TextIO, environment: Mapping[str, str] | None = None) -> str | None:
    """How this terminal shows pictures: kitty, iterm2, blocks, or None for a pipe."""
    known = os.environ if environment is None else environment
    if not stream.isatty() or known.get("TERM") == "dumb":
        return None
    if known.get("TMUX") is None:  # a multiplexer swallows both protocols
        if "kitty" in known.get("TERM", "") or known.get("TERM_PROGRAM") == "ghostty":
            return "kitty"
        if known.get("TERM_PROGRAM") in {"iTerm.app", "WezTerm"}:
            return "iterm2"
    return None if "NO_COLOR" in known else "blocks"


def show(picture: "Image", how: str, stream: TextIO) -> None:
    """Write one picture below what has been written."""
    if how == "blocks":
        from rich.console import Console

        Console(file=stream, force_terminal=True, color_system="truecolor").print(blocks(picture))
        return
    small = picture.copy()
    small.thumbnail((_PIXELS, _PIXELS))
    buffer = io.BytesIO()
    small.save(buffer, "PNG")
    stream.write((kitty if how == "kitty" else iterm2)(buffer.getvalue()) + "\n")
    stream.flush()


def kitty(png: bytes) -> str:
    """Escape sequences of kitty's graphics protocol."""
    data = base64.standard_b64encode(png).decode()
    pieces = [data[i : i + _CHUNK] for i in range(0, len(data), _CHUNK)]
    out = []
    for place, piece in enumerate(pieces):
        head = "a=T,f=100," if place == 0 else ""
        out.append(f"\x1b_G{head}m={int(place < len(pieces) - 1)};{piece}\x1b\\")
    return "".join(out)


def iterm2(png: bytes) -> str:
    """The escape sequence of iTerm2's inline pictures."""
    data = base64.standard_b64encode(png).decode()
    return f"\x1b]1337;File=inline=1;size={len(png)}:{data}\x07"


def blocks(picture: "Image", columns: int = _CELLS) -> "Text":
    """Two pixels a character: the upper half block in one colour on a ground of another."""
    from rich.color import Color
    from rich.style import Style
    from rich.text import Text

    rows = max(2, 2 * round(columns * picture.height / picture.width / 2))
    small = picture.convert("RGB").resize((columns, min(rows, 4 * columns)))
    text = Text()
    for y in range(0, small.height - 1, 2):
        for x in range(small.width):
            upper, lower = small.getpixel((x, y)), small.getpixel((x, y + 1))
            assert isinstance(upper, tuple)
            assert isinstance(lower, tuple)
            style = Style(color=Color.from_rgb(*upper[:3]), bgcolor=Color.from_rgb(*lower[:3]))
            text.append("▀", style)
        text.append("\n")
    return text
