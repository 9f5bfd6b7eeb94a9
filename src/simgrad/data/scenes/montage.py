"""A sheet of scenes with their captions, as shown in the documents.

Run `python -m simgrad.data.scenes.montage docs/images/scenes.png` to make it again.
"""

import sys
import textwrap
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

from simgrad.core.files import atomic_path
from simgrad.data.scenes.captions import make_captions
from simgrad.data.scenes.dataset import FIRST
from simgrad.data.scenes.render import render
from simgrad.data.scenes.world import make_scene

_PICTURE = 200  # pixels a side
_TEXT = 92  # height of the captions below
_GAP = 16


def montage(
    indices: list[int], *, seed: int = 0, columns: int = 4, captions: int = 2
) -> Image.Image:
    """Pictures of these scenes in a grid, each above the first few of its captions."""
    rows = -(-len(indices) // columns)
    cell = (_PICTURE + _GAP, _PICTURE + _TEXT)
    sheet = Image.new("RGB", (columns * cell[0] + _GAP, rows * cell[1] + _GAP), "white")
    draw = ImageDraw.Draw(sheet)
    font = ImageFont.load_default(size=12)
    for n, index in enumerate(indices):
        scene = make_scene(seed, index)
        left, top = _GAP + n % columns * cell[0], _GAP + n // columns * cell[1]
        sheet.paste(render(scene, _PICTURE), (left, top))
        lines: list[str] = []
        for caption in make_captions(scene)[:captions]:
            wrapped = textwrap.wrap(caption, 33)
            lines += ["· " + wrapped[0], *("   " + line for line in wrapped[1:])]
        draw.multiline_text((left, top + _PICTURE + 4), "\n".join(lines), "#222", font, spacing=2)
    return sheet


def main(path: str) -> None:
    """Write the sheet of the first twelve scenes of the default world's test split."""

    sheet = montage(list(range(FIRST["test"], FIRST["test"] + 12)))
    with atomic_path(Path(path)) as temporary:
        # A palette is a third of the size, and the eye does not see it.
        sheet.quantize(256).save(temporary, format="PNG", optimize=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
