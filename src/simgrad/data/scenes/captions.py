"""Captions of a scene, as different people would write them.

Each caption is told by somebody with habits of their own: which things they mention, how many facts
about each, in which words and which order. All they say is true; none says everything.
"""

import random

from simgrad.data.scenes.words import (
    ANYTHING,
    COLOUR_WORDS,
    GROUND_WORDS,
    LONE_WORDS,
    NOUNS,
    NUMBER_WORDS,
    OPENINGS,
    PLACES,
    RELATION_WORDS,
    SIZE_WORDS,
    TEXTURE_TRAITS,
    TEXTURE_WORDS,
    VAGUE_COLOURS,
    VERBS,
)
from simgrad.data.scenes.world import (
    COLOURS,
    COLUMNS,
    GROUNDS,
    KINDS,
    ROWS,
    SIZES,
    TEXTURES,
    Scene,
    Thing,
    relations,
)

CAPTIONS_PER_SCENE = 5


def make_captions(scene: Scene) -> tuple[str, ...]:
    """What five people say of a scene; no two of them say it in the same words."""
    captions: list[str] = []
    rng = random.Random(f"captions/{scene.number}")
    while len(captions) < CAPTIONS_PER_SCENE:
        caption = _Teller(scene, rng).tell()
        if caption not in captions:
            captions.append(caption)
    return tuple(captions)


class _Teller:
    """Somebody who describes one scene once."""

    def __init__(self, scene: Scene, rng: random.Random) -> None:
        self.scene = scene
        self.rng = rng
        self.detail = rng.choice((0.55, 0.8, 1.0, 1.2))  # how much they like to tell
        # People start with what stands out.
        self.order = sorted(
            range(len(scene.things)),
            key=lambda i: -scene.things[i].size + rng.gauss(0, 1.0),
        )

    def tell(self) -> str:
        """One caption."""
        many = len(self.scene.things)
        ways = [
            (self._one, 12 if many > 1 else 70),
            (self._alone, 0 if many > 1 else 30),
            (self._list, 34 if many > 1 else 0),
            (self._related, 40 if many > 1 else 0),
            (self._turned, 12 if many > 1 else 0),
            (self._counted, 22 if many > 1 else 0),
        ]
        way = self.rng.choices([w for w, _ in ways], [weight for _, weight in ways])[0]
        body, opens = way()
        if opens and self._chance(0.3):
            body = f"{self.rng.choice(OPENINGS)} {body}"
        if self._chance(0.42 * self.detail):
            ground = self.rng.choice(GROUND_WORDS[GROUNDS[self.scene.ground]])
            return f"{ground} {body}" if opens and self._chance(0.3) else f"{body} {ground}"
        return body

    # -- the ways to tell: each gives the text and whether an opening may stand before it

    def _one(self) -> tuple[str, bool]:
        thing = self.scene.things[self.order[0]]
        return self._thing(thing, self.detail * 1.5, place=0.6), True

    def _alone(self) -> tuple[str, bool]:
        described = self._thing(self.scene.things[0], self.detail * 1.3, place=0.5)
        word = self.rng.choice(LONE_WORDS)
        if word == "lone":
            return f"a lone {described.split(' ', 1)[1]}", True
        return f"{word} {described}", False

    def _list(self) -> tuple[str, bool]:
        chosen = self.order[: self.rng.choice((2, 2, 3))]
        told = [self._thing(self.scene.things[i], self.detail * 0.9, place=0.15) for i in chosen]
        joint = self.rng.choice((" and ", " with ", " and "))
        return ", ".join(told[:-1]) + joint + told[-1], True

    def _related(self) -> tuple[str, bool]:
        first, second, relation = self._pair()
        things = self.scene.things
        verb = f" {self.rng.choice(VERBS)}" if self._chance(0.3) else ""
        text = (
            f"{self._thing(things[first], self.detail * 0.9)}{verb} "
            f"{self._relation(relation)} {self._thing(things[second], self.detail * 0.9)}"
        )
        rest = [i for i in self.order if i not in (first, second)]
        if rest and self._chance(0.45 * self.detail):
            third = rest[0]
            link = ""
            known = sorted(relations(self.scene, first, third) - {"near"})
            if known and self._chance(0.5):
                link = f"{self._relation(self.rng.choice(known))} "
            text += f" and {link}{self._thing(things[third], self.detail * 0.7)}"
        return text, not verb

    def _turned(self) -> tuple[str, bool]:
        first, second, relation = self._pair()
        things = self.scene.things
        verb = self.rng.choice(("is", "there is", "sits", "we see"))
        return (
            f"{self._relation(relation)} {self._thing(things[second], self.detail * 0.9)} {verb} "
            f"{self._thing(things[first], self.detail)}"
        ), False

    def _counted(self) -> tuple[str, bool]:
        groups = self._groups()
        fits, name = self.rng.choice(groups)
        told = f"{self._number(len(fits))} {name}"
        rest = [i for i in self.order if i not in fits]
        if rest and self._chance(0.75):
            others = rest[: 2 if self._chance(0.35) else 1]
            more = [self._thing(self.scene.things[i], self.detail * 0.9, place=0.2) for i in others]
            told += " and " + " and ".join(more)
        return told, True

    # -- parts of sentences

    def _groups(self) -> list[tuple[list[int], str]]:
        """Sets of two or more things that one plural names exactly."""
        things = self.scene.things
        everything = list(range(len(things)))
        groups = [(everything, self.rng.choice(ANYTHING)[1])]
        for i, thing in enumerate(things):
            alike = [j for j in everything if things[j].kind == thing.kind]
            noun = self.rng.choice(NOUNS[KINDS[thing.kind]])[1]
            colour = self.rng.choice(COLOUR_WORDS[COLOURS[thing.colour]])
            same = [j for j in everything if things[j].colour == thing.colour]
            both = [j for j in alike if j in same]
            # The first of a group speaks for it, so that big groups are not chosen more often.
            if len(alike) > 1 and alike[0] == i:
                groups += [(alike, noun)] * 3
            if len(same) > 1 and same[0] == i:
                groups += [(same, f"{colour} {self.rng.choice(ANYTHING)[1]}")] * 2
            if len(both) > 1 and both[0] == i:
                groups += [(both, f"{colour} {noun}")] * 4
        return groups

    def _number(self, count: int) -> str:
        fitting = [w for w, (least, most) in NUMBER_WORDS.items() if least <= count <= most]
        exact = [w for w in fitting if NUMBER_WORDS[w][0] == NUMBER_WORDS[w][1]]
        return self.rng.choice(fitting if self._chance(0.3) else exact)

    def _pair(self) -> tuple[int, int, str]:
        """Two things and what the first is to the second; what is rare is worth telling.

        There is always a pair: things too close for "left of" or "above" are near each other.
        """
        pairs = [
            (i, j, relation)
            for i in self.order[:3]
            for j in self.order[:3]
            if i != j
            for relation in sorted(relations(self.scene, i, j))
        ]
        rare = {"behind": 4.0, "front": 4.0, "near": 1.5}
        return self.rng.choices(pairs, [rare.get(r, 1.0) for _, _, r in pairs])[0]

    def _relation(self, relation: str) -> str:
        return self.rng.choice(RELATION_WORDS[relation])

    def _thing(self, thing: Thing, detail: float, place: float = 0.0) -> str:
        """A thing with its article, some of its adjectives, and perhaps its place."""
        words, after = [], []
        size = SIZES[thing.size]
        if self._chance((0.05 if size == "medium" else 0.38) * detail):
            words.append(self.rng.choice(SIZE_WORDS[size]))
        texture = TEXTURES[thing.texture]
        if self._chance((0.06 if texture == "plain" else 0.55) * detail):
            if texture in TEXTURE_TRAITS and self._chance(0.3):
                after.append(self.rng.choice(TEXTURE_TRAITS[texture]))
            else:
                words.append(self.rng.choice(TEXTURE_WORDS[texture]))
        if self._chance(0.78 * detail):
            words.insert(self._colour_place(len(words)), self._colour(thing))
        vague = self._chance(0.12) and bool(words)
        nouns = ANYTHING if vague else NOUNS[KINDS[thing.kind]]
        words.append(self.rng.choice(nouns)[0])
        if self._chance(place):
            after.append(self._place(thing))
        article = "an" if words[0][0] in "aeiou" else "a"
        return " ".join([article, *words, *after])

    def _colour_place(self, words: int) -> int:
        """Colours mostly stand last: "small striped red", sometimes "red striped"."""
        return words if self._chance(0.75) else self.rng.randint(0, words)

    def _colour(self, thing: Thing) -> str:
        colour = COLOURS[thing.colour]
        for word, colours in VAGUE_COLOURS.items():
            if colour in colours and self._chance(0.1):
                return word
        return self.rng.choice(COLOUR_WORDS[colour])

    def _place(self, thing: Thing) -> str:
        column, row = COLUMNS[thing.column], ROWS[thing.row]
        fitting = [
            phrases
            for (c, r), phrases in PLACES.items()
            if c in (column, None) and r in (row, None)
        ]
        return self.rng.choice(self.rng.choice(fitting))

    def _chance(self, probability: float) -> bool:
        return self.rng.random() < probability
