"""Pictures in terminals: the right protocol, and none in a pipe."""

import base64
import io
import re

import pytest
from PIL import Image

from simgrad.cli.search import blocks, iterm2, kitty, protocol, show


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"TERM": "xterm-kitty"}, "kitty"),
        ({"TERM": "xterm-256color", "TERM_PROGRAM": "iTerm.app"}, "iterm2"),
        ({"TERM": "xterm-256color"}, "blocks"),
        ({"TERM": "xterm-kitty", "TMUX": "x"}, "blocks"),
        ({"TERM": "dumb"}, None),
        ({"TERM": "xterm", "NO_COLOR": "1"}, None),
    ],
)
def test_protocol(environment: dict[str, str], expected: str | None) -> None:
    assert protocol(Terminal(), environment) == expected
    assert protocol(io.StringIO(), environment) is None


def test_kitty_sends_all_in_small_pieces() -> None:
    data = bytes(range(256)) * 40
    pieces = re.findall(r"\x1b_G([^;]*);([^\x1b]*)\x1b\\", kitty(data))
    assert base64.b64decode("".join(piece for _, piece in pieces)) == data
    assert all(len(piece) <= 4096 for _, piece in pieces)
    assert [head[-3:] for head, _ in pieces] == ["m=1"] * (len(pieces) - 1) + ["m=0"]
    assert iterm2(b"abc").endswith(":YWJj\x07")


def test_blocks_have_the_colours_of_the_picture() -> None:
    picture = Image.new("RGB", (40, 20), (250, 10, 20))
    text = blocks(picture, 10)
    assert text.plain.split("\n")[0] == "▀" * 10
    colour = text.spans[0].style.color.triplet  # type: ignore[union-attr]
    assert tuple(colour) == (250, 10, 20)


@pytest.mark.parametrize("how", ["kitty", "iterm2", "blocks"])
@pytest.mark.parametrize("size", [(1, 1), (1, 3000), (3000, 1), (64, 64)])
def test_any_shape_can_be_shown(how: str, size: tuple[int, int]) -> None:
    stream = Terminal()
    show(Image.new("RGB", size), how, stream)
    assert "\x1b" in stream.getvalue()
