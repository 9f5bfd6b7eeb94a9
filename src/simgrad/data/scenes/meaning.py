"""What a caption of the embedded world claims: sentences parsed back into facts.

A sentence is cut into known phrases (the longest first) and read left to right:
- "a red ball" claims a thing; things that one caption names are different things;
- "two red balls" claims how many there are, exactly; "several" claims at least three;
- a place or texture after a thing belongs to it; before any thing, to the next one;
- a relation links the last thing (after "and": the first thing) to the next one; at the very start
  of a sentence it is turned round: "left of a star is a ball";
- "on the grass" is about the ground, wherever it stands.
"""

import functools
import re
from dataclasses import dataclass, field

from simgrad.core.errors import InputError
from simgrad.data.scenes.words import EVERYTHING, LEXICON, LONGEST_PHRASE, VOCABULARY, Phrase
from simgrad.data.scenes.world import CONVERSE, GROUNDS, RELATIONS

MOST_NAMED = 3  # things one caption may name one by one
MOST_COUNTED = 3  # groups one caption may count
_WORDS = re.compile(r"[^\W_]+")


@dataclass(frozen=True)
class Claim:
    """What a caption says of a scene; every part must hold.

    `named`: what each thing named must fit (bits of scenes_words). `links`: for every named thing
    after the first place of `named`, the relations (bits) it must stand in to `named[0]`, seen from
    `named[0]`. `counted`: (what fits, at least, at most). `grounds`: bits of the grounds allowed.
    """

    named: tuple[int, ...] = ()
    links: tuple[int, ...] = ()
    counted: tuple[tuple[int, int, int], ...] = ()
    grounds: int = (1 << len(GROUNDS)) - 1


@functools.lru_cache(maxsize=1 << 17)
def parse(caption: str) -> Claim:
    """Read a caption; one that is not in the language is an InputError that names the place."""
    reader = _Reader(caption)
    for phrase in _cut(caption):
        reader.read(phrase)
    return reader.claim()


def _cut(caption: str) -> list[Phrase]:
    words = [w.lower() for w in _WORDS.findall(caption)]
    phrases, at = [], 0
    while at < len(words):
        for length in range(min(LONGEST_PHRASE, len(words) - at), 0, -1):
            phrase = LEXICON.get(tuple(words[at : at + length]))
            if phrase is not None:
                phrases.append(phrase)
                at += length
                break
        else:
            known = "is used differently" if words[at] in VOCABULARY else "is not a word of scenes"
            raise InputError(
                f"scenes caption {caption!r:.120}: '{words[at][:40]}' (word {at + 1}) {known}."
            )
    return phrases


@dataclass
class _Noun:
    """A thing or group being read."""

    allowed: int = EVERYTHING
    number: Phrase | None = None


@dataclass
class _Reader:
    """The state of reading one caption."""

    caption: str
    things: list[_Noun] = field(default_factory=list)  # named one by one
    groups: list[_Noun] = field(default_factory=list)  # counted
    links: list[tuple[int, int, str]] = field(default_factory=list)
    grounds: int = (1 << len(GROUNDS)) - 1
    lone: bool = False
    open: _Noun | None = None  # adjectives read, noun to come
    last: _Noun | None = None  # the noun that a trait belongs to
    traits: int = EVERYTHING  # traits read before any thing
    subject: int | None = None  # the thing a relation would begin from
    pending: list[str] = field(default_factory=list)  # relations waiting for their other thing
    turned: bool = False  # a relation opened the sentence

    def read(self, phrase: Phrase) -> None:
        match phrase.role:
            case "article" | "adjective" | "number":
                self.open = self.open or _Noun()
                self.open.allowed &= phrase.allowed
                if phrase.role == "number":
                    self.open.number = phrase
            case "noun":
                self._noun(phrase)
            case "trait":
                if self.last is None:
                    self.traits &= phrase.allowed
                else:
                    self.last.allowed &= phrase.allowed
            case "relation":
                self._relation(phrase.value)
            case "ground":
                self.grounds &= 1 << GROUNDS.index(phrase.value)
            case "and":
                self.subject = 0 if self.things else None
            case "lone":
                self.lone = True
            case "filler":
                pass

    def _noun(self, phrase: Phrase) -> None:
        noun = self.open or _Noun()
        noun.allowed &= phrase.allowed & self.traits
        self.open, self.traits, self.last = None, EVERYTHING, noun
        if noun.number is not None:
            if self.pending:
                raise self._error("a relation cannot lead to a number of things")
            self.groups.append(noun)
            self.subject = None
            return
        self.things.append(noun)
        here = len(self.things) - 1
        for relation in self.pending:
            if self.turned and here == 0:
                return  # "left of a star …": its subject is still to come
            subject = here - 1 if self.turned else self.subject
            if subject is None:
                raise self._error("a relation has no first thing")
            first, second = (here, subject) if self.turned else (subject, here)
            self.links.append((first, second, relation))
        self.pending, self.turned = [], False
        self.subject = here

    def _relation(self, relation: str) -> None:
        if not self.things and not self.groups:
            self.turned = True
        elif self.subject is None:
            raise self._error(f"'{relation}' follows no single thing")
        self.pending.append(relation)

    def claim(self) -> Claim:
        if self.open is not None or self.pending or self.traits != EVERYTHING:
            raise self._error("it ends in the middle")
        if len(self.things) > MOST_NAMED or len(self.groups) > MOST_COUNTED - self.lone:
            raise self._error(f"it names more than {MOST_NAMED} things")
        counted = tuple((g.allowed, g.number.least, g.number.most) for g in self.groups if g.number)
        if self.lone:
            counted += ((EVERYTHING, 1, 1),)
        named, links = self._around_the_linked()
        return Claim(named, links, counted, self.grounds)

    def _around_the_linked(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Put the thing that has the most links first: with three things, all links meet there."""
        if not self.things:
            return (), ()
        ends = [end for first, second, _ in self.links for end in (first, second)]
        centre = max(range(len(self.things)), key=ends.count)
        others = [i for i in range(len(self.things)) if i != centre]
        needed = dict.fromkeys(others, 0)
        for first, second, relation in self.links:
            if first != centre:
                first, second, relation = second, first, CONVERSE[relation]
            needed[second] |= 1 << RELATIONS.index(relation)
        named = (self.things[centre].allowed, *(self.things[i].allowed for i in others))
        return named, tuple(needed[i] for i in others)

    def _error(self, why: str) -> InputError:
        return InputError(f"scenes caption {self.caption!r:.120}: {why}.")
