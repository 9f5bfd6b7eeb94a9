"""Drawing from mined candidates for the second round (AOQ).

For each pair (I, T) of a batch a rank n is drawn from the first `depth`; T̂ is I's n-th candidate
caption, Î is T's candidate image at rank n // 5 (coupled, as published), Ĩ the image of T̂ and T̃
one of Î's captions. Each distinct image and caption of all of these is encoded once.

A list that filters have shortened ends in -1: its first entry stands in. Where nothing is left of
it, or Î has no caption, any other image of the training set does.
"""

import numpy as np

from simgrad.core.errors import InputError
from simgrad.data.base import Rows, Split
from simgrad.data.candidates import Candidates, Lists
from simgrad.data.sampling import IndexBatch, OfflineIndex


class Draw:
    """Draws offline negatives for every batch of an epoch."""

    def __init__(
        self,
        split: Split,
        candidates: Candidates,
        *,
        for_each: int,
        depth: int = 300,
        distribution: str = "uniform",
        seed: int = 0,
    ) -> None:
        """`for_each`: images, and captions, that are drawn for a pair. With 2 they form the pair
        that shares no anchor; with 1 nothing more is drawn or encoded than the mined ones."""
        candidates.check(split)
        self.split, self.candidates, self.for_each = split, candidates, for_each
        self.distribution, self.seed = distribution, seed
        self.captioned = np.flatnonzero(split.captions_per_image)
        if len(self.captioned) < 2:
            raise InputError(
                f"{split.dataset}: negatives are drawn from other images, but the train split has "
                "captions of one image only."
            )
        self.depth = min(depth, candidates.i2t.shape[1])
        # As published: five captions per image, so a fifth of the depth among images.
        self.ratio = max(1, round(split.num_captions / split.num_images))

    def epoch(self, batches: list[IndexBatch], epoch: int) -> list[OfflineIndex]:
        """Every batch with its draws; the same for the same (seed, epoch)."""
        random = np.random.default_rng([abs(self.seed), epoch, 7])
        return [self._extend(batch, random) for batch in batches]

    def _ranks(self, count: int, random: np.random.Generator) -> Rows:
        if self.distribution == "uniform":
            return random.integers(0, self.depth, count)
        # Centred in the list, so that the very top, where false negatives are, is drawn less.
        normal = random.normal(self.depth / 2, self.depth / 6, count)
        return np.clip(np.rint(normal), 0, self.depth - 1).astype(np.int64)

    def _extend(self, batch: IndexBatch, random: np.random.Generator) -> OfflineIndex:
        split, lists = self.split, self.candidates
        image = batch.images[batch.image_of_caption]  # I of every pair
        rank = self._ranks(len(batch.captions), random)
        mined_caption = _entry(lists.i2t, image, rank)
        mined_image = _entry(lists.t2i, batch.captions, rank // self.ratio)
        nothing = mined_caption < 0
        if nothing.any():
            mined_caption[nothing] = self._caption(self._elsewhere(image[nothing], random), random)
        nothing = (mined_image < 0) | (split.captions_per_image[mined_image] == 0)
        if nothing.any():
            mined_image[nothing] = self._elsewhere(image[nothing], random)
        partner_image, partner_caption = mined_image, mined_caption
        if self.for_each > 1:
            partner_image = split.image_of_caption[mined_caption]
            partner_caption = self._caption(mined_image, random)
        images, image_place = appended(batch.images, [mined_image, partner_image])
        captions, caption_place = appended(batch.captions, [mined_caption, partner_caption])
        return OfflineIndex(
            images,
            captions,
            np.concatenate(
                [
                    batch.image_of_caption,
                    np.zeros(len(captions) - len(batch.captions), dtype=np.int64),
                ]
            ),
            own_images=len(batch.images),
            own_captions=len(batch.captions),
            for_each=self.for_each,
            mined_caption=caption_place[0],
            mined_image=image_place[0],
            partner_image=image_place[1],
            partner_caption=caption_place[1],
        )

    def _caption(self, images: Rows, random: np.random.Generator) -> Rows:
        """One of the captions of each image."""
        chances = random.random(len(images))
        own = zip(map(self.split.captions_of, images), chances, strict=True)
        return np.array([rows[int(chance * len(rows))] for rows, chance in own], np.int64)

    def _elsewhere(self, images: Rows, random: np.random.Generator) -> Rows:
        """For each image another one that has captions, as these have."""
        place = np.searchsorted(self.captioned, images)
        step = random.integers(1, len(self.captioned), len(images))
        return np.take(self.captioned, (place + step) % len(self.captioned))


def _entry(lists: Lists, queries: Rows, rank: Rows) -> Rows:
    """Entry `rank` of each query's list, or its first, or -1 where it has none."""
    entries: Lists = lists[queries, np.minimum(rank, lists.shape[1] - 1)]
    return np.where(entries < 0, lists[queries, 0], entries).astype(np.int64)


def appended(own: Rows, drawn: list[Rows]) -> tuple[Rows, list[Rows]]:
    """Own rows, then each new drawn row once; and where every drawn row stands."""
    new = np.setdiff1d(np.concatenate(drawn), own)
    rows = np.concatenate([own, new])
    order = np.argsort(rows, kind="stable")
    places = [order[np.searchsorted(rows[order], wanted)] for wanted in drawn]
    return rows, places
