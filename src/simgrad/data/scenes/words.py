"""The words of the embedded world: how people say what is in a scene, and what each phrase means.

A phrase about one thing means a set of values it allows, written as bits (`allowed`): "red" allows
one colour and everything else, "dark" four colours. Phrases never mean more than one line here.
"""

from dataclasses import dataclass
from typing import Literal

from simgrad.data.scenes.world import (
    COLOURS,
    COLUMNS,
    GROUNDS,
    KINDS,
    RELATIONS,
    ROWS,
    SIZES,
    TEXTURES,
)

Role = Literal[
    "article", "number", "lone", "adjective", "noun", "trait", "relation", "ground", "and", "filler"
]

# Where each attribute's bits begin in a thing's code.
_ATTRIBUTES = {
    "kind": KINDS,
    "colour": COLOURS,
    "size": SIZES,
    "texture": TEXTURES,
    "column": COLUMNS,
    "row": ROWS,
}
_START: dict[str, int] = {}
for _name, _values in _ATTRIBUTES.items():
    _START[_name] = sum(len(_ATTRIBUTES[n]) for n in _START)
BITS = sum(map(len, _ATTRIBUTES.values()))
EVERYTHING = (1 << BITS) - 1


def bit(attribute: str, value: int) -> int:
    """The bit of one value of one attribute."""
    return 1 << (_START[attribute] + value)


def allow(attribute: str, *values: str) -> int:
    """The things whose attribute has one of these values."""
    names = _ATTRIBUTES[attribute]
    whole = ((1 << len(names)) - 1) << _START[attribute]
    return (EVERYTHING ^ whole) | sum(bit(attribute, names.index(v)) for v in values)


@dataclass(frozen=True)
class Phrase:
    """One phrase: its role in a sentence and what it means there."""

    role: Role
    allowed: int = EVERYTHING  # noun, adjective, trait: the things it fits
    value: str = ""  # relation, ground: which one
    least: int = 0  # number: how many at least
    most: int = 99  # number: how many at most


# Singular and plural of every noun, by kind.
NOUNS: dict[str, tuple[tuple[str, str], ...]] = {
    "circle": (("ball", "balls"), ("circle", "circles"), ("disc", "discs")),
    "square": (("square", "squares"), ("box", "boxes"), ("block", "blocks")),
    "triangle": (("triangle", "triangles"), ("wedge", "wedges")),
    "star": (("star", "stars"),),
    "heart": (("heart", "hearts"),),
    "ring": (("ring", "rings"), ("hoop", "hoops")),
    "cross": (("cross", "crosses"), ("plus", "pluses")),
    "diamond": (("diamond", "diamonds"), ("gem", "gems")),
    "moon": (("moon", "moons"), ("crescent", "crescents")),
    "flower": (("flower", "flowers"), ("blossom", "blossoms")),
    "house": (("house", "houses"), ("hut", "huts")),
    "fish": (("fish", "fish"),),
}
ANYTHING = (("thing", "things"), ("object", "objects"), ("shape", "shapes"))
COLOUR_WORDS: dict[str, tuple[str, ...]] = {
    "red": ("red", "red", "crimson"),
    "orange": ("orange",),
    "yellow": ("yellow", "yellow", "golden"),
    "green": ("green", "green", "emerald"),
    "blue": ("blue", "blue", "azure"),
    "purple": ("purple", "violet"),
    "pink": ("pink", "rosy"),
    "brown": ("brown",),
    "white": ("white",),
    "black": ("black",),
}
VAGUE_COLOURS = {
    "dark": ("black", "brown", "purple", "blue"),
    "bright": ("red", "orange", "yellow", "pink"),
}
SIZE_WORDS: dict[str, tuple[str, ...]] = {
    "small": ("small", "little", "tiny"),
    "medium": ("medium",),
    "large": ("large", "big", "huge"),
}
TEXTURE_WORDS: dict[str, tuple[str, ...]] = {
    "plain": ("plain",),
    "striped": ("striped", "stripy"),
    "dotted": ("dotted", "spotted"),
    "checked": ("checked", "chequered"),
}
TEXTURE_TRAITS: dict[str, tuple[str, ...]] = {
    "striped": ("with stripes",),
    "dotted": ("with dots", "with spots"),
    "checked": ("with checks",),
}
# (column, row) -> how people say it; None = either.
PLACES: dict[tuple[str | None, str | None], tuple[str, ...]] = {
    ("left", None): ("on the left", "on the left side"),
    ("right", None): ("on the right", "on the right side"),
    (None, "top"): ("at the top",),
    (None, "bottom"): ("at the bottom",),
    ("centre", "centre"): ("in the middle", "in the centre"),
    ("left", "top"): ("in the top left corner", "at the top left"),
    ("right", "top"): ("in the top right corner", "at the top right"),
    ("left", "bottom"): ("in the bottom left corner", "at the bottom left"),
    ("right", "bottom"): ("in the bottom right corner", "at the bottom right"),
}
RELATION_WORDS: dict[str, tuple[str, ...]] = {
    "left": ("left of", "to the left of"),
    "right": ("right of", "to the right of"),
    "above": ("above", "over", "higher than"),
    "below": ("below", "under", "beneath", "lower than"),
    "behind": ("behind", "partly hidden by"),
    "front": ("in front of", "covering part of"),
    "near": ("near", "next to", "beside", "close to"),
}
GROUND_WORDS: dict[str, tuple[str, ...]] = {
    "grass": ("on the grass", "on a lawn", "in a meadow"),
    "sand": ("on the sand", "at the beach"),
    "night": ("at night", "in the night sky"),
    "snow": ("in the snow", "on a snowy field"),
    "water": ("in the water", "at sea"),
    "brick": ("against a brick wall", "on a wall of bricks"),
    "wood": ("on a wooden table", "on a wooden floor"),
}
NUMBER_WORDS: dict[str, tuple[int, int]] = {
    "exactly one": (1, 1),
    "just one": (1, 1),
    "two": (2, 2),
    "a pair of": (2, 2),
    "a couple of": (2, 2),
    "three": (3, 3),
    "four": (4, 4),
    "five": (5, 5),
    "some": (2, 99),
    "several": (3, 99),
}
LONE_WORDS = ("only", "nothing but", "lone")
OPENINGS = ("there is", "i see", "a picture of", "a photo of", "here is", "this shows", "we see")
VERBS = ("sits", "lies", "is", "can be seen", "is placed", "appears")
_FILLERS = (*OPENINGS, *VERBS, "there are", "here are", "that is", "which is", "scene", "are")


def _lexicon() -> dict[tuple[str, ...], Phrase]:
    """Every phrase by its words."""
    words: dict[str, Phrase] = {}
    for article in ("a", "an", "the", "another"):
        words[article] = Phrase("article")
    for kind, nouns in NOUNS.items():
        words |= {form: Phrase("noun", allow("kind", kind)) for noun in nouns for form in noun}
    words |= {form: Phrase("noun") for noun in ANYTHING for form in noun}
    for attribute, table in (
        ("colour", COLOUR_WORDS),
        ("size", SIZE_WORDS),
        ("texture", TEXTURE_WORDS),
    ):
        for value, synonyms in table.items():
            words |= {w: Phrase("adjective", allow(attribute, value)) for w in synonyms}
    for vague, colours in VAGUE_COLOURS.items():
        words[vague] = Phrase("adjective", allow("colour", *colours))
    for texture, traits in TEXTURE_TRAITS.items():
        words |= {t: Phrase("trait", allow("texture", texture)) for t in traits}
    for (column, row), phrases in PLACES.items():
        fits = allow("column", column) if column else EVERYTHING
        fits &= allow("row", row) if row else EVERYTHING
        words |= {p: Phrase("trait", fits) for p in phrases}
    for relation in RELATIONS:
        words |= {w: Phrase("relation", value=relation) for w in RELATION_WORDS[relation]}
    for ground in GROUNDS:
        words |= {w: Phrase("ground", value=ground) for w in GROUND_WORDS[ground]}
    for number, (least, most) in NUMBER_WORDS.items():
        words[number] = Phrase("number", least=least, most=most)
    words |= {w: Phrase("lone") for w in LONE_WORDS}
    words |= {w: Phrase("and") for w in ("and", "with")}
    words |= {w: Phrase("filler") for w in _FILLERS}
    return {tuple(phrase.split()): meaning for phrase, meaning in words.items()}


LEXICON = _lexicon()
LONGEST_PHRASE = max(map(len, LEXICON))
VOCABULARY = frozenset(word for phrase in LEXICON for word in phrase)
