"""Outlines of the things of the embedded world, drawn as masks."""

import math

from PIL import Image, ImageDraw

from simgrad.data.scenes.world import KINDS

Point = tuple[float, float]


def shape_mask(kind: int, radius: float, angle: float) -> Image.Image:
    """A grey picture of 2.6 radii a side: white where the thing is."""
    side = max(8, round(2.6 * radius))
    mask = Image.new("L", (side, side), 0)
    draw = ImageDraw.Draw(mask)
    _DRAW[KINDS[kind]](draw, side / 2, radius)
    return mask.rotate(angle, resample=Image.Resampling.BILINEAR)


def _polygon(draw: ImageDraw.ImageDraw, c: float, r: float, points: list[Point]) -> None:
    draw.polygon([(c + x * r, c + y * r) for x, y in points], fill=255)


def _disc(
    draw: ImageDraw.ImageDraw, c: float, r: float, x: float, y: float, size: float, fill: int = 255
) -> None:
    draw.ellipse(
        (c + (x - size) * r, c + (y - size) * r, c + (x + size) * r, c + (y + size) * r), fill=fill
    )


def _circle(draw: ImageDraw.ImageDraw, c: float, r: float) -> None:
    _disc(draw, c, r, 0, 0, 0.95)


def _square(draw: ImageDraw.ImageDraw, c: float, r: float) -> None:
    _polygon(draw, c, r, [(-0.82, -0.82), (0.82, -0.82), (0.82, 0.82), (-0.82, 0.82)])


def _triangle(draw: ImageDraw.ImageDraw, c: float, r: float) -> None:
    _polygon(draw, c, r, [(0, -0.95), (0.95, 0.8), (-0.95, 0.8)])


def _star(draw: ImageDraw.ImageDraw, c: float, r: float) -> None:
    points = []
    for i in range(10):
        length = 1.0 if i % 2 == 0 else 0.44
        turn = math.pi * i / 5
        points.append((length * math.sin(turn), -length * math.cos(turn)))
    _polygon(draw, c, r, points)


def _heart(draw: ImageDraw.ImageDraw, c: float, r: float) -> None:
    points = []
    for i in range(60):
        t = 2 * math.pi * i / 60
        x = 16 * math.sin(t) ** 3
        y = 13 * math.cos(t) - 5 * math.cos(2 * t) - 2 * math.cos(3 * t) - math.cos(4 * t)
        points.append((x / 17, -y / 17 - 0.08))
    _polygon(draw, c, r, points)


def _ring(draw: ImageDraw.ImageDraw, c: float, r: float) -> None:
    _disc(draw, c, r, 0, 0, 0.95)
    _disc(draw, c, r, 0, 0, 0.5, fill=0)


def _cross(draw: ImageDraw.ImageDraw, c: float, r: float) -> None:
    for wide, high in ((0.95, 0.33), (0.33, 0.95)):
        _polygon(draw, c, r, [(-wide, -high), (wide, -high), (wide, high), (-wide, high)])


def _diamond(draw: ImageDraw.ImageDraw, c: float, r: float) -> None:
    _polygon(draw, c, r, [(0, -1), (0.68, 0), (0, 1), (-0.68, 0)])


def _moon(draw: ImageDraw.ImageDraw, c: float, r: float) -> None:
    _disc(draw, c, r, 0, 0, 0.95)
    _disc(draw, c, r, 0.48, -0.12, 0.75, fill=0)


def _flower(draw: ImageDraw.ImageDraw, c: float, r: float) -> None:
    for i in range(6):
        turn = math.pi * i / 3
        _disc(draw, c, r, 0.58 * math.cos(turn), 0.58 * math.sin(turn), 0.38)
    _disc(draw, c, r, 0, 0, 0.5)


def _house(draw: ImageDraw.ImageDraw, c: float, r: float) -> None:
    _polygon(draw, c, r, [(0, -0.95), (0.95, -0.1), (-0.95, -0.1)])
    _polygon(draw, c, r, [(-0.7, -0.12), (0.7, -0.12), (0.7, 0.85), (-0.7, 0.85)])
    draw.rectangle((c - 0.2 * r, c + 0.25 * r, c + 0.2 * r, c + 0.86 * r), fill=0)


def _fish(draw: ImageDraw.ImageDraw, c: float, r: float) -> None:
    draw.ellipse((c - 0.98 * r, c - 0.55 * r, c + 0.5 * r, c + 0.55 * r), fill=255)
    _polygon(draw, c, r, [(0.3, 0), (0.98, -0.6), (0.85, 0), (0.98, 0.6)])
    _disc(draw, c, r, -0.6, -0.12, 0.11, fill=0)


_DRAW = {
    "circle": _circle,
    "square": _square,
    "triangle": _triangle,
    "star": _star,
    "heart": _heart,
    "ring": _ring,
    "cross": _cross,
    "diamond": _diamond,
    "moon": _moon,
    "flower": _flower,
    "house": _house,
    "fish": _fish,
}
