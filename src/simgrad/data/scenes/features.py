"""Features of the embedded world, as a frozen vision network would give them.

No network runs: each thing's facts go through fixed random layers, are mixed with those of its
neighbours and drowned in noise, so that a model has to learn to read them.
- `global_features`: one vector per scene, all things pooled; which colour belongs to which thing is
  only in the products that the first layer makes.
- `region_features`: 36 boxes per scene, most of them on things, none of them exactly.
"""

import functools

import numpy as np
import numpy.typing as npt

from simgrad.data.scenes.world import (
    COLOURS,
    GROUNDS,
    KINDS,
    MOST_THINGS,
    RADIUS,
    SIZES,
    TEXTURES,
    Scene,
)

Floats = npt.NDArray[np.float32]

REGIONS = 36
GLOBAL_DIMENSION = 256
REGION_DIMENSION = 128
# Chosen so that a small model neither fails nor saturates; `noise` multiplies them.
GLOBAL_NOISE = 1.8
REGION_NOISE = 1.2

_FACTS = len(KINDS) + len(COLOURS) + len(SIZES) + len(TEXTURES)
_PLACE = 8  # sine and cosine of two frequencies of x and y
_HIDDEN = 512


class _Arrays:
    """Scenes as padded arrays; absent things have no weight."""

    def __init__(self, scenes: list[Scene]) -> None:
        n = len(scenes)
        self.facts = np.zeros((n, MOST_THINGS, _FACTS), dtype=np.float32)
        self.x = np.zeros((n, MOST_THINGS), dtype=np.float32)
        self.y = np.zeros((n, MOST_THINGS), dtype=np.float32)
        self.radius = np.zeros((n, MOST_THINGS), dtype=np.float32)
        self.present = np.zeros((n, MOST_THINGS), dtype=np.float32)
        self.count = np.array([len(s.things) for s in scenes])
        self.ground = np.eye(len(GROUNDS), dtype=np.float32)[[s.ground for s in scenes]]
        for i, scene in enumerate(scenes):
            for t, thing in enumerate(scene.things):
                at = 0
                for value, values in (
                    (thing.kind, KINDS),
                    (thing.colour, COLOURS),
                    (thing.size, SIZES),
                    (thing.texture, TEXTURES),
                ):
                    self.facts[i, t, at + value] = 1
                    at += len(values)
                self.x[i, t], self.y[i, t] = thing.x, thing.y
                self.radius[i, t], self.present[i, t] = thing.radius, 1


@functools.cache
def _layer(name: str, inputs: int, outputs: int) -> Floats:
    """A fixed random layer: the same in every world, as a pretrained network would be."""
    rng = np.random.default_rng(list(name.encode()))
    layer: Floats = (rng.standard_normal((inputs, outputs)) / np.sqrt(inputs)).astype(np.float32)
    return layer


def _place(x: Floats, y: Floats) -> Floats:
    """(...,) and (...,) -> (..., 8): smooth codes of a place."""
    waves = [f(np.pi * k * v) for v in (x, y) for k in (1, 2) for f in (np.sin, np.cos)]
    codes: Floats = np.stack(waves, axis=-1).astype(np.float32)
    return codes


def global_features(scenes: list[Scene], rng: np.random.Generator, noise: float = 1.0) -> Floats:
    """(scenes, 256): what a network's pooled output might be."""
    arrays = _Arrays(scenes)
    facts = np.concatenate([2.2 * arrays.facts, _place(arrays.x, arrays.y)], axis=-1)
    inner = np.maximum(facts @ _layer("things", _FACTS + _PLACE, _HIDDEN), 0)
    # Big things weigh more, and every further thing takes attention from the others.
    weight = arrays.present * np.sqrt(arrays.radius / RADIUS[1])
    pooled = (inner * weight[..., None]).sum(1) / np.sqrt(arrays.count)[:, None].astype(np.float32)
    pooled += 1.5 * np.maximum(arrays.ground @ _layer("grounds", len(GROUNDS), _HIDDEN), 0)
    outer: Floats = np.maximum((3 * pooled) @ _layer("pool", _HIDDEN, GLOBAL_DIMENSION), 0)
    outer += noise * GLOBAL_NOISE * rng.standard_normal(outer.shape, dtype=np.float32)
    return outer


def region_boxes(scenes: list[Scene], rng: np.random.Generator) -> Floats:
    """(scenes, 36, 4): left, top, right, bottom; two thirds aim at things, the rest anywhere."""
    arrays = _Arrays(scenes)
    n = len(scenes)
    target = rng.integers(0, 1 << 30, (n, REGIONS)) % arrays.count[:, None]
    # The first boxes take one thing each, so that every thing is seen.
    target[:, :MOST_THINGS] = np.arange(MOST_THINGS) % arrays.count[:, None]
    aimed = np.arange(REGIONS) < REGIONS * 2 // 3
    pick = np.arange(n)[:, None]
    jitter = rng.normal(0, 0.25, (n, REGIONS, 4)).astype(np.float32)
    size = arrays.radius[pick, target]
    x = arrays.x[pick, target] + jitter[..., 0] * size
    y = arrays.y[pick, target] + jitter[..., 1] * size
    wide, high = size * np.exp(jitter[..., 2]), size * np.exp(jitter[..., 3])
    anywhere = rng.uniform(0, 1, (n, REGIONS, 4)).astype(np.float32)
    x, y = np.where(aimed, x, anywhere[..., 0]), np.where(aimed, y, anywhere[..., 1])
    wide = np.where(aimed, wide, 0.06 + 0.24 * anywhere[..., 2])
    high = np.where(aimed, high, 0.06 + 0.24 * anywhere[..., 3])
    boxes = np.stack([x - wide, y - high, x + wide, y + high], axis=-1)
    clipped: Floats = np.clip(boxes, 0, 1).astype(np.float32)
    return clipped


def region_features(scenes: list[Scene], rng: np.random.Generator, noise: float = 1.0) -> Floats:
    """(scenes, 36, 128): what is inside each box, and where the box is."""
    boxes = region_boxes(scenes, rng)
    arrays = _Arrays(scenes)
    seen = _coverage(boxes, arrays) * arrays.present[:, None, :]  # (scenes, 36, things)
    inside = np.matmul(seen, arrays.facts)
    x: Floats = (boxes[..., 0] + boxes[..., 2]) / np.float32(2)
    y: Floats = (boxes[..., 1] + boxes[..., 3]) / np.float32(2)
    empty = 1 - seen.max(-1, keepdims=True)
    ground = np.broadcast_to(arrays.ground[:, None, :], (*seen.shape[:2], len(GROUNDS)))
    facts = np.concatenate([2.2 * inside, _place(x, y), 2.2 * empty * ground], axis=-1)
    layer = _layer("regions", _FACTS + _PLACE + len(GROUNDS), REGION_DIMENSION)
    outer: Floats = np.maximum(facts @ (2 * layer), 0)
    outer += noise * REGION_NOISE * rng.standard_normal(outer.shape, dtype=np.float32)
    return outer


def _coverage(boxes: Floats, arrays: _Arrays) -> Floats:
    """(scenes, 36, things): how well a box shows a thing, between 0 and 1."""
    low_x, high_x = arrays.x - arrays.radius, arrays.x + arrays.radius
    low_y, high_y = arrays.y - arrays.radius, arrays.y + arrays.radius
    box = boxes[:, :, None, :]
    wide = np.minimum(box[..., 2], high_x[:, None]) - np.maximum(box[..., 0], low_x[:, None])
    high = np.minimum(box[..., 3], high_y[:, None]) - np.maximum(box[..., 1], low_y[:, None])
    shared = np.maximum(wide, 0) * np.maximum(high, 0)
    area = (box[..., 2] - box[..., 0]) * (box[..., 3] - box[..., 1])
    union = area + (2 * arrays.radius[:, None]) ** 2 - shared
    shown: Floats = np.sqrt(shared / np.maximum(union, 1e-6)).astype(np.float32)
    return shown
