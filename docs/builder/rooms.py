"""Draw the rooms of the house, from pyproject.toml: `python docs/builder/rooms.py`.

Writes docs/images/rooms.svg. The order is the one that `make check` holds.
"""

import importlib
import re
import textwrap
import tomllib
from pathlib import Path

from simgrad.pages.svg import described, drawing, element, standalone

ROOT = Path(__file__).parents[2]
WIDTH, LINE, GAP, LEFT = 720.0, 16.0, 10.0, 8.0
LETTER = 6.6  # pixels of an average one


def layers() -> list[list[str]]:
    """From the top down; rooms on one line do not import each other."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    (contract,) = project["tool"]["importlinter"]["contracts"]
    return [line.split(" | ") for line in contract["layers"]]


def purpose(room: str) -> str:
    """The first sentence of what a room says of itself, without its name."""
    text = importlib.import_module(f"simgrad.{room}").__doc__ or ""
    first = re.split(r"[.;](?:\s|$)|\n", text.strip().replace("`", ""), maxsplit=1)[0]
    return re.sub(rf"^{room}s?:\s*", "", first, flags=re.IGNORECASE)


def draw() -> str:
    """One box for each room, one line for each layer."""
    parts, top = [], 4.0
    for rooms in layers():
        wide = (WIDTH - 2 * LEFT - GAP * (len(rooms) - 1)) / len(rooms)
        told = [textwrap.wrap(purpose(room), int((wide - 20) / LETTER)) for room in rooms]
        height = 28 + LINE * max(map(len, told))
        for i, (room, lines) in enumerate(zip(rooms, told, strict=True)):
            x = LEFT + i * (wide + GAP)
            box = {"x": x, "y": top, "width": wide, "height": height, "rx": 6}
            parts.append(element("rect", **box, fill="var(--sunken)", class_="axis"))
            parts.append(element("text", room, x=x + 10, y=top + 19, class_="strong"))
            for j, line in enumerate(lines):
                parts.append(element("text", line, x=x + 10, y=top + 19 + LINE * (j + 1)))
        top += height + GAP
    chart = drawing(WIDTH, top, parts)
    about = "From the top: " + "; ".join(" and ".join(rooms) for rooms in layers()) + "."
    return standalone(described(chart, "rooms", "The rooms of the house", about))


if __name__ == "__main__":
    target = ROOT / "docs" / "images" / "rooms.svg"
    target.write_text(draw(), encoding="utf-8")
    print(target)
