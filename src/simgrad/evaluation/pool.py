"""Several truths about the same images and captions, answered by one pass over the similarities.

COCO's pairing, CxC and ECCV Caption each name true pairs, many of them the same ones. The pool
holds every pair that any of them names. The members' scores, and how many outsiders score at
least as high, are counted once; where a true pair stands under one of the truths follows by
sorting the few members of each query.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from simgrad.evaluation.ranks import Booleans, Integers, Positions, places
from simgrad.evaluation.rivals import Rivals, count_rivals
from simgrad.evaluation.scores import Scores
from simgrad.evaluation.truth import NEVER, Truth


@dataclass(frozen=True)
class Pool:
    """Pairs that the pairing or another truth names, ordered by key."""

    counts: Rivals  # of the pairing
    width: int  # captions
    keys: Integers  # (pairs,) image * width + caption
    scores: npt.NDArray[Any]  # (pairs,)
    outsiders: dict[str, Integers]  # by direction, (pairs,) that score at least as high

    @staticmethod
    def of(
        scores: Scores, image_of_caption: Integers, truths: Iterable[tuple[str, Truth]]
    ) -> "Pool":
        """Count for the pairing and for truths, each with its direction."""
        width = scores.num_captions
        own = image_of_caption * width + np.arange(width)
        named = [_keys(truth, direction, width) for direction, truth in truths]
        others = np.setdiff1d(np.concatenate([own[:0], *named]), own)
        images, captions = (torch.from_numpy(x) for x in np.divmod(others, width))
        counts = count_rivals(scores, torch.from_numpy(image_of_caption), others=(images, captions))
        assert counts.others is not None
        keys = np.concatenate([own, others])
        order = np.argsort(keys)

        def joined(first: Tensor, second: Tensor) -> npt.NDArray[Any]:
            return torch.cat([first, second]).cpu().numpy()[order]  # type: ignore[no-any-return]

        values = joined(counts.own, counts.others.scores)
        # What was counted leaves the own pairs out, but not the other members.
        counted = {
            "i2t": joined(counts.i2t, counts.others.i2t),
            "t2i": joined(counts.t2i, counts.others.t2i),
        }
        keys, is_other = keys[order], order >= width
        outsiders = {
            direction: rivals - _at_least(_queries(keys, direction, width), values, is_other)
            for direction, rivals in counted.items()
        }
        return Pool(counts, width, keys, values, outsiders)

    def positions(self, truth: Truth, direction: str) -> Positions:
        """Where the true items stand under one of the truths."""
        members = np.searchsorted(self.keys, _keys(truth, direction, self.width))
        true = np.zeros(len(self.keys), dtype=bool)
        true[members] = True
        query = _queries(self.keys, direction, self.width)
        # Of members with equal scores those that are not true stand first, as any rival does.
        found = places(query, self.scores, self.outsiders[direction], true)
        place = np.full(len(truth.query), NEVER)
        place[truth.candidate >= 0] = found[members]
        return Positions.of(np.unique(truth.query, return_inverse=True)[1], place)


def _keys(truth: Truth, direction: str, width: int) -> Integers:
    """One number for each pair that is there."""
    there = truth.candidate >= 0
    query, candidate = truth.query[there], truth.candidate[there]
    return query * width + candidate if direction == "i2t" else candidate * width + query


def _queries(keys: Integers, direction: str, width: int) -> Integers:
    return keys // width if direction == "i2t" else keys % width


def _at_least(query: Integers, values: npt.NDArray[Any], counted: Booleans) -> Integers:
    """For each pair, how many of the counted ones of its query score at least as high."""
    order = np.lexsort((-values, query))
    query, values = query[order], values[order]
    # Pairs of one query and one score end at the same place, where the running count is read.
    last = np.append((query[1:] != query[:-1]) | (values[1:] != values[:-1]), True)
    ends = np.flatnonzero(last)
    running = np.concatenate([[0], np.cumsum(counted[order])])
    end = ends[np.searchsorted(ends, np.arange(len(query)))] + 1
    result = np.empty(len(query), dtype=np.int64)
    result[order] = running[end] - running[np.searchsorted(query, query)]
    return result
