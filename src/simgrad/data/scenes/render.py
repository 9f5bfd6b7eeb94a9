"""Pictures of the embedded world: grounds, shadows, textures, clutter and a camera's noise.

Everything is drawn several times too large and scaled down, so that edges are smooth. What the
captions do not tell (clutter, noise, shades) comes from the scene's number.
"""

import functools

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageChops, ImageDraw, ImageFilter

from simgrad.data.scenes.shapes import shape_mask
from simgrad.data.scenes.world import COLOURS, GROUNDS, TEXTURES, Scene, Thing

Colour = tuple[int, int, int]

_PAINT: dict[str, Colour] = {
    "red": (214, 48, 44),
    "orange": (244, 138, 38),
    "yellow": (250, 214, 60),
    "green": (52, 158, 72),
    "blue": (44, 104, 210),
    "purple": (134, 66, 176),
    "pink": (244, 138, 178),
    "brown": (122, 78, 46),
    "white": (246, 246, 244),
    "black": (34, 34, 40),
}
# Colour at the top and at the bottom of the picture.
_GROUND: dict[str, tuple[Colour, Colour]] = {
    "grass": ((150, 200, 120), (92, 160, 78)),
    "sand": ((240, 222, 172), (220, 190, 128)),
    "night": ((16, 20, 52), (46, 50, 104)),
    "snow": ((226, 236, 246), (250, 252, 255)),
    "water": ((120, 198, 222), (48, 132, 180)),
    "brick": ((184, 108, 88), (166, 92, 74)),
    "wood": ((206, 162, 112), (178, 132, 84)),
}


def render(scene: Scene, size: int = 64, noise: float = 0.02) -> Image.Image:
    """The picture of a scene, `size` pixels a side; `noise`: a share of full brightness."""
    rng = np.random.default_rng(scene.number)
    large = size * (4 if size <= 96 else 2)
    picture = _ground(GROUNDS[scene.ground], large, rng)
    _clutter(picture, rng)
    for thing in scene.things:
        _draw_thing(picture, thing, rng)
    picture = picture.resize((size, size), Image.Resampling.BOX)
    if noise <= 0:
        return picture
    pixels = np.asarray(picture, dtype=np.float32)
    # Some grain, and light that differs from picture to picture.
    grain = rng.standard_normal(pixels.shape, dtype=np.float32) * (255 * noise)
    light = 1 + rng.normal(0, 2 * noise)
    return Image.fromarray(np.clip(pixels * light + grain, 0, 255).astype(np.uint8))


def _ground(name: str, size: int, rng: np.random.Generator) -> Image.Image:
    top, bottom = (np.array(c, dtype=np.float32) for c in _GROUND[name])
    share = np.linspace(0, 1, size, dtype=np.float32)[:, None]
    column = (top * (1 - share) + bottom * share)[:, None, :]
    picture = Image.fromarray(np.broadcast_to(column, (size, size, 3)).astype(np.uint8).copy())
    draw = ImageDraw.Draw(picture)
    unit = size / 64
    if name == "brick":
        _bricks(draw, size, unit)
    elif name == "wood":
        _planks(draw, size, unit, rng)
    elif name == "water":
        _strokes(draw, size, rng, 26, (6 * unit, 0), (196, 232, 242), unit)
    elif name == "grass":
        _strokes(draw, size, rng, 90, (0.6 * unit, -2.6 * unit), (70, 138, 60), unit * 0.7)
    else:
        fill = {"sand": (196, 162, 104), "night": (240, 240, 200), "snow": (200, 214, 232)}[name]
        _specks(draw, size, rng, {"sand": 90, "night": 34, "snow": 60}[name], fill, unit)
    return picture


def _bricks(draw: ImageDraw.ImageDraw, size: int, unit: float) -> None:
    high, wide = 8 * unit, 16 * unit
    for row in range(9):
        y = row * high
        draw.line((0, y, size, y), fill=(210, 176, 158), width=max(1, round(unit)))
        for column in range(5):
            x = column * wide + (wide / 2 if row % 2 else 0)
            draw.line((x, y, x, y + high), fill=(210, 176, 158), width=max(1, round(unit)))


def _planks(draw: ImageDraw.ImageDraw, size: int, unit: float, rng: np.random.Generator) -> None:
    for row in range(5):
        y = row * 13 * unit
        draw.line((0, y, size, y), fill=(126, 88, 52), width=max(1, round(unit)))
    _strokes(draw, size, rng, 40, (9 * unit, 0), (164, 118, 72), unit * 0.6)


def _strokes(
    draw: ImageDraw.ImageDraw,
    size: int,
    rng: np.random.Generator,
    count: int,
    step: tuple[float, float],
    fill: Colour,
    width: float,
) -> None:
    for x, y in rng.uniform(0, size, (count, 2)).tolist():
        draw.line((x, y, x + step[0], y + step[1]), fill=fill, width=max(1, round(width)))


def _specks(
    draw: ImageDraw.ImageDraw,
    size: int,
    rng: np.random.Generator,
    count: int,
    fill: Colour,
    unit: float,
) -> None:
    for x, y, r in rng.uniform(0, 1, (count, 3)).tolist():
        r = (0.25 + 0.35 * r) * unit
        draw.ellipse((x * size - r, y * size - r, x * size + r, y * size + r), fill=fill)


def _clutter(picture: Image.Image, rng: np.random.Generator) -> None:
    """Twigs and pebbles that nobody mentions."""
    draw = ImageDraw.Draw(picture)
    size = picture.width
    for _ in range(int(rng.integers(2, 7))):
        x, y = rng.uniform(0.02, 0.98, 2) * size
        grey = int(rng.integers(90, 190))
        tint = tuple(int(v) for v in np.clip(grey + rng.integers(-25, 25, 3), 0, 255))
        length = rng.uniform(0.015, 0.045) * size
        if rng.random() < 0.5:
            turn = rng.uniform(0, np.pi)
            end = (x + length * np.cos(turn), y + length * np.sin(turn))
            draw.line((x, y, *end), fill=tint, width=max(1, size // 100))
        else:
            r = length * 0.4
            draw.ellipse((x - r, y - r * 0.7, x + r, y + r * 0.7), fill=tint)


def _draw_thing(picture: Image.Image, thing: Thing, rng: np.random.Generator) -> None:
    """Shadow, outline, then the textured thing itself, lit from above."""
    size = picture.width
    mask = shape_mask(thing.kind, thing.radius * size, thing.angle)
    side = mask.width
    left, top = round(thing.x * size - side / 2), round(thing.y * size - side / 2)
    paint = np.array(_PAINT[COLOURS[thing.colour]], dtype=np.float32)
    paint = np.clip(paint + rng.normal(0, 6, 3), 0, 255)
    shift = max(1, round(size * 0.012))
    shadow = mask.filter(ImageFilter.GaussianBlur(shift)).point(_SHADOW)
    picture.paste((20, 20, 30), (left + shift, top + shift * 2), shadow)
    edge = max(1, round(size / 128)) * 2 + 1
    outline = mask.filter(ImageFilter.MaxFilter(edge))
    picture.paste(_darker(paint), (left, top), outline)
    # Lighter at the top, darker at the bottom.
    light = np.linspace(1.1, 0.88, side, dtype=np.float32)[:, None, None]
    body = np.clip(np.broadcast_to(paint, (side, side, 3)) * light, 0, 255).astype(np.uint8)
    picture.paste(Image.fromarray(body), (left, top), mask)
    if TEXTURES[thing.texture] != "plain":
        pattern = _pattern(TEXTURES[thing.texture], side, size / 64)
        second = _darker(paint) if paint.mean() > 110 else _lighter(paint)
        picture.paste(second, (left, top), ImageChops.multiply(mask, pattern))


_SHADOW = [round(v * 0.38) for v in range(256)]


def _darker(paint: npt.NDArray[np.float32]) -> Colour:
    red, green, blue = (int(v * 0.5) for v in paint)
    return red, green, blue


def _lighter(paint: npt.NDArray[np.float32]) -> Colour:
    red, green, blue = (int(v + (255 - v) * 0.6) for v in paint)
    return red, green, blue


@functools.lru_cache(maxsize=256)
def _pattern(texture: str, side: int, unit: float) -> Image.Image:
    """White where the second colour of a texture goes."""
    pattern = Image.new("L", (side, side), 0)
    draw = ImageDraw.Draw(pattern)
    step = 3.6 * unit
    count = int(side / step) + 2
    for i in range(-count, count):
        if texture == "striped":
            x = i * step * 1.3
            draw.line((x, 0, x + side, side), fill=255, width=max(1, round(step * 0.45)))
            continue
        for j in range(count):
            x, y = i * step, j * step
            if texture == "dotted":
                x += step / 2 if j % 2 else 0
                r = step * 0.28
                draw.ellipse((x - r, y - r, x + r, y + r), fill=255)
            elif (i + j) % 2 == 0:
                draw.rectangle((x, y, x + step - 1, y + step - 1), fill=255)
    return pattern
