"""Which captions are true of which scenes: exact, and quick for whole matrices.

Things are bit codes, sets of things are five-bit numbers, and "is there a choice of different
things that stands in these relations" is a few operations on those numbers:
1. for each named thing of each caption, the set of the scene's things that fit it;
2. for each thing that may be the first named, the others' sets, less those not so related;
3. two sets have different members if neither is empty and their union has two or more.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from simgrad.data.scenes.meaning import MOST_COUNTED, MOST_NAMED, Claim, parse
from simgrad.data.scenes.words import BITS, EVERYTHING, bit
from simgrad.data.scenes.world import MOST_THINGS, RELATIONS, Scene, Thing, relations

Bools = npt.NDArray[np.bool_]
Rows = npt.NDArray[np.int64]
_POPCOUNT = np.array([i.bit_count() for i in range(256)], dtype=np.uint8)
_ABSENT = 1 << BITS  # a bit that no phrase allows
_ALL_BITS = EVERYTHING | _ABSENT
_BLOCK = 1 << 21  # pairs at a time: bounds the memory


def describes(caption: str, scene: Scene) -> bool:
    """Whether a caption is true of a scene, its own or any other."""
    facts, claims = SceneFacts(1), ClaimTable(1)
    facts.set(0, scene)
    claims.set(0, parse(caption))
    return bool(truth_matrix(facts, claims)[0, 0])


def thing_code(thing: Thing) -> int:
    """One bit for every value that a thing has."""
    return (
        bit("kind", thing.kind)
        | bit("colour", thing.colour)
        | bit("size", thing.size)
        | bit("texture", thing.texture)
        | bit("column", thing.column)
        | bit("row", thing.row)
    )


class SceneFacts:
    """Scenes as arrays: thing codes, relations between things, grounds."""

    def __init__(self, count: int) -> None:
        self.codes = np.full((count, MOST_THINGS), _ABSENT, dtype=np.int64)
        # related[i, a, r]: the set of things that a stands in relation r to
        self.related = np.zeros((count, MOST_THINGS, len(RELATIONS)), dtype=np.uint8)
        self.grounds = np.zeros(count, dtype=np.uint8)

    def __len__(self) -> int:
        return len(self.codes)

    def set(self, row: int, scene: Scene) -> None:
        """Enter the facts of one scene."""
        self.grounds[row] = 1 << scene.ground
        for a, thing in enumerate(scene.things):
            self.codes[row, a] = thing_code(thing)
            for b in range(len(scene.things)):
                if a != b:
                    for name in relations(scene, a, b):
                        self.related[row, a, RELATIONS.index(name)] |= 1 << b

    def rows(self, rows: Rows) -> "SceneFacts":
        """The facts of some of the scenes."""
        chosen = SceneFacts(0)
        chosen.codes, chosen.grounds = self.codes[rows], self.grounds[rows]
        chosen.related = self.related[rows]
        return chosen


class ClaimTable:
    """Claims as arrays of one row per caption."""

    def __init__(self, count: int) -> None:
        # What a thing must not have; zero where nothing is named.
        self.forbidden = np.zeros((count, MOST_NAMED), dtype=np.int64)
        self.named = np.zeros(count, dtype=np.uint8)
        self.links = np.zeros((count, MOST_NAMED - 1), dtype=np.uint8)
        self.excluded = np.zeros((count, MOST_COUNTED), dtype=np.int64)
        self.least = np.zeros((count, MOST_COUNTED), dtype=np.uint8)
        self.most = np.full((count, MOST_COUNTED), 99, dtype=np.uint8)
        self.grounds = np.zeros(count, dtype=np.uint8)

    def __len__(self) -> int:
        return len(self.named)

    def set(self, row: int, claim: Claim) -> None:
        """Enter one claim."""
        self.named[row] = len(claim.named)
        self.grounds[row] = claim.grounds
        for v, allowed in enumerate(claim.named):
            self.forbidden[row, v] = _ALL_BITS ^ allowed
        for v, needed in enumerate(claim.links):
            self.links[row, v] = needed
        for g, (allowed, least, most) in enumerate(claim.counted):
            self.excluded[row, g] = _ALL_BITS ^ allowed
            self.least[row, g], self.most[row, g] = least, most

    def rows(self, rows: Rows) -> "ClaimTable":
        """Some of the claims."""
        chosen = ClaimTable(0)
        for name, array in vars(self).items():
            setattr(chosen, name, array[rows])
        return chosen


class SceneTruth:
    """truth(image_rows, caption_rows) -> (images, captions): facts are worked out when needed."""

    def __init__(self, scenes: Sequence[Scene], captions: Sequence[str]) -> None:
        self._scenes, self._captions = scenes, captions
        self._facts, self._claims = SceneFacts(len(scenes)), ClaimTable(len(captions))
        self._scene_known = np.zeros(len(scenes), dtype=np.bool_)
        self._caption_known = np.zeros(len(captions), dtype=np.bool_)

    def __call__(self, image_rows: Rows, caption_rows: Rows) -> Bools:
        images, captions = np.asarray(image_rows), np.asarray(caption_rows)
        for row in np.unique(images[~self._scene_known[images]]).tolist():
            self._facts.set(row, self._scenes[row])
            self._scene_known[row] = True
        for row in np.unique(captions[~self._caption_known[captions]]).tolist():
            self._claims.set(row, parse(self._captions[row]))
            self._caption_known[row] = True
        return truth_matrix(self._facts.rows(images), self._claims.rows(captions))


def truth_matrix(facts: SceneFacts, claims: ClaimTable) -> Bools:
    """(scenes, captions): whether each caption is true of each scene."""
    step = max(1, _BLOCK // max(len(claims), 1))
    if len(facts) <= step:
        return _block(facts, claims)
    starts = range(0, len(facts), step)
    blocks = [_block(facts.rows(np.arange(s, min(s + step, len(facts)))), claims) for s in starts]
    return np.concatenate(blocks)


def _block(facts: SceneFacts, claims: ClaimTable) -> Bools:
    true: Bools = (facts.grounds[:, None] & claims.grounds[None, :]) != 0
    for g in range(MOST_COUNTED):
        columns = np.flatnonzero(claims.excluded[:, g])
        if len(columns):
            found = _POPCOUNT[_fitting(facts, claims.excluded[columns, g])]
            true[:, columns] &= (found >= claims.least[columns, g]) & (
                found <= claims.most[columns, g]
            )
    for named in range(1, MOST_NAMED + 1):
        columns = np.flatnonzero(claims.named == named)
        if len(columns):
            true[:, columns] &= _choice_exists(
                facts, claims.forbidden[columns, :named], claims.links[columns, : named - 1]
            )
    return true


def _fitting(facts: SceneFacts, forbidden: npt.NDArray[np.int64]) -> npt.NDArray[np.uint8]:
    """(scenes, captions): the set of things that have nothing forbidden."""
    fitting = np.zeros((len(facts), len(forbidden)), dtype=np.uint8)
    for t in range(MOST_THINGS):
        fits = (facts.codes[:, t, None] & forbidden[None, :]) == 0
        fitting |= fits.astype(np.uint8) << t
    return fitting


def _choice_exists(
    facts: SceneFacts, forbidden: npt.NDArray[np.int64], links: npt.NDArray[np.uint8]
) -> Bools:
    """(scenes, captions): whether different things can be chosen that fit and stand so."""
    first = _fitting(facts, forbidden[:, 0])
    if forbidden.shape[1] == 1:
        return np.not_equal(first, 0)
    others = [_fitting(facts, forbidden[:, v]) for v in range(1, forbidden.shape[1])]
    kinds, which = np.unique(links, return_inverse=True)
    which = which.reshape(links.shape)
    true: Bools = np.zeros(first.shape, dtype=np.bool_)
    for a in range(MOST_THINGS):
        reach = np.stack([_reach(facts, a, int(k)) for k in kinds], axis=1)  # (scenes, kinds)
        sets = [fits & reach[:, which[:, v]] for v, fits in enumerate(others)]
        possible = ((first >> a) & 1 != 0) & (sets[0] != 0)
        if len(sets) == 2:
            possible &= (sets[1] != 0) & (_POPCOUNT[sets[0] | sets[1]] >= 2)
        true |= possible
    return true


def _reach(facts: SceneFacts, a: int, needed: int) -> npt.NDArray[np.uint8]:
    """(scenes,): the set of other things that thing a stands in all the needed relations to."""
    reach = np.full(len(facts), 0b11111 ^ (1 << a), dtype=np.uint8)
    for r in range(len(RELATIONS)):
        if needed >> r & 1:
            reach &= facts.related[:, a, r]
    return reach
