"""The embedded world: what exists in a scene, and what is true of it.

A scene is one to five things on a ground. Each thing has a kind, a colour, a size, a texture and a
place; things that come later are drawn in front of earlier ones. (seed, index) decides everything.
"""

import math
import random
from dataclasses import dataclass, replace

KINDS = (
    "circle", "square", "triangle", "star", "heart", "ring", "cross", "diamond", "moon", "flower",
    "house", "fish",
)  # fmt: skip
COLOURS = (
    "red", "orange", "yellow", "green", "blue", "purple", "pink", "brown", "white", "black",
)  # fmt: skip
SIZES = ("small", "medium", "large")
TEXTURES = ("plain", "striped", "dotted", "checked")
COLUMNS = ("left", "centre", "right")
ROWS = ("top", "centre", "bottom")
GROUNDS = ("grass", "sand", "night", "snow", "water", "brick", "wood")
RELATIONS = ("left", "right", "above", "below", "behind", "front", "near")
# What the second thing is to the first, given what the first is to the second.
CONVERSE = {
    "left": "right",
    "right": "left",
    "above": "below",
    "below": "above",
    "behind": "front",
    "front": "behind",
    "near": "near",
}

MOST_THINGS = 5
RADIUS = (0.085, 0.13, 0.19)  # of a small, medium and large thing, as a share of the picture
_APART = 0.1  # nobody says "left of" for less than this


@dataclass(frozen=True)
class Thing:
    """One thing; numbers are positions in the tuples above, places are shares of the picture."""

    kind: int
    colour: int
    size: int
    texture: int
    x: float
    y: float
    angle: float = 0.0  # degrees; seen in the picture, never told

    @property
    def radius(self) -> float:
        return RADIUS[self.size]

    @property
    def column(self) -> int:
        return min(int(self.x * 3), 2)

    @property
    def row(self) -> int:
        return min(int(self.y * 3), 2)

    @property
    def box(self) -> tuple[float, float, float, float]:
        """left, top, right, bottom, each between 0 and 1."""
        r = self.radius
        return (
            max(self.x - r, 0.0),
            max(self.y - r, 0.0),
            min(self.x + r, 1.0),
            min(self.y + r, 1.0),
        )


@dataclass(frozen=True)
class Scene:
    """Things on a ground, from back to front. `number` seeds what no caption tells."""

    ground: int
    things: tuple[Thing, ...]
    number: int = 0


def relations(scene: Scene, first: int, second: int) -> frozenset[str]:
    """What the thing `first` is to the thing `second`."""
    a, b = scene.things[first], scene.things[second]
    distance = math.hypot(a.x - b.x, a.y - b.y)
    touching = distance < a.radius + b.radius
    return frozenset(
        name
        for name, holds in (
            ("left", a.x < b.x - _APART),
            ("right", a.x > b.x + _APART),
            ("above", a.y < b.y - _APART),
            ("below", a.y > b.y + _APART),
            ("behind", touching and first < second),
            ("front", touching and first > second),
            ("near", distance < a.radius + b.radius + 0.1),
        )
        if holds
    )


# Kinds of things that a world of `old` shapes does not have, and every scene of `new` ones does.
HELD = tuple(range(len(KINDS) - 4, len(KINDS)))
_EVERY, _OLD = tuple(range(len(KINDS))), tuple(range(len(KINDS) - 4))


def make_scene(
    seed: int, index: int, duplicates: float = 0.0, first: int = 0, shapes: str = "all"
) -> Scene:
    """The scene number `index` of the world `seed`.

    With a probability of `duplicates` it is a slight variation of an earlier scene, one of those
    numbered from `first` on. `shapes`: all kinds of things; old: without the last four; new: at
    least one of those four.
    """
    original, rng = index, random.Random()
    while original > first and duplicates > 0:
        draw = random.Random(f"scenes/{seed}/{original}/duplicate")
        if draw.random() >= duplicates:
            break
        # The copy of a copy is made from what that was a copy of: all copies have an original.
        rng = draw if original == index else rng
        original = draw.randrange(first, original)
    if original != index:
        return replace(
            _vary(make_scene(seed, original, shapes=shapes), rng), number=_number(seed, index)
        )
    rng = random.Random(f"scenes/{seed}/{index}")
    count = rng.choices((1, 2, 3, 4, 5), (12, 26, 28, 20, 14))[0]
    things: list[Thing] = []
    usual = _OLD if shapes == "old" else _EVERY
    for k in range(count):
        kinds = HELD if shapes == "new" and k == 0 else usual
        things.append(_place(_make_thing(things, rng, kinds), things, rng))
    rng.shuffle(things)
    return Scene(rng.randrange(len(GROUNDS)), tuple(things), _number(seed, index))


def _number(seed: int, index: int) -> int:
    return random.Random(f"scenes/{seed}/{index}/number").getrandbits(62)


def _make_thing(others: list[Thing], rng: random.Random, kinds: tuple[int, ...] = _EVERY) -> Thing:
    """A thing that often shares its kind or colour with another, so that counts mean something."""
    kind, colour = kinds[rng.randrange(len(kinds))], rng.randrange(len(COLOURS))
    if others and rng.random() < 0.35:
        kind = rng.choice(others).kind
    if others and rng.random() < 0.25:
        colour = rng.choice(others).colour
    size = rng.choices(range(3), (35, 35, 30))[0]
    texture = rng.choices(range(4), (52, 16, 16, 16))[0]
    return Thing(kind, colour, size, texture, 0.5, 0.5, round(rng.uniform(-14, 14), 1))


def _place(thing: Thing, others: list[Thing], rng: random.Random) -> Thing:
    """Find it a place: mostly free of the others, sometimes half hidden or hiding."""
    overlap = bool(others) and rng.random() < 0.25
    best, least = thing, math.inf
    for _ in range(24):
        edge = thing.radius * 0.9
        placed = replace(
            thing,
            x=round(rng.uniform(edge, 1 - edge), 4),
            y=round(rng.uniform(edge, 1 - edge), 4),
        )
        # How far from touching each other thing, in radii: 1 = just touching.
        gaps = [
            math.hypot(placed.x - o.x, placed.y - o.y) / (placed.radius + o.radius) for o in others
        ]
        nearest = min(gaps, default=2.0)
        wrong = abs(nearest - 0.75) if overlap else max(0.0, 1.08 - nearest)
        if wrong < least:
            best, least = placed, wrong
        if wrong < (0.12 if overlap else 1e-9):
            break
    return best


def _vary(scene: Scene, rng: random.Random) -> Scene:
    """Nearly the same scene: things moved a little, one of them changed in one respect."""
    things = [
        replace(
            t,
            x=round(min(max(t.x + rng.gauss(0, 0.02), 0.06), 0.94), 4),
            y=round(min(max(t.y + rng.gauss(0, 0.02), 0.06), 0.94), 4),
        )
        for t in scene.things
    ]
    chosen = rng.randrange(len(things))
    respect = rng.choice(("colour", "size", "texture", "none"))
    if respect == "colour":
        things[chosen] = replace(things[chosen], colour=rng.randrange(len(COLOURS)))
    elif respect == "size":
        things[chosen] = replace(things[chosen], size=rng.randrange(len(SIZES)))
    elif respect == "texture":
        things[chosen] = replace(things[chosen], texture=rng.randrange(len(TEXTURES)))
    return replace(scene, things=tuple(things))
