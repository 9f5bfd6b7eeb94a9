"""COCO's test captions with the positives that its pairing misses: CxC and ECCV Caption.

Many captions of COCO fit other images too. Two collections say which: CxC (Parekh and others,
EACL 2021) and ECCV Caption (Chun and others, ECCV 2022). The `eccv_caption` package ships both
(`pip install 'simgrad[eccv]'`); ranking and counting are ours.

Each collection names true pairs, many of them the same ones. A `Pool` answers for all of them with
one pass over the similarities. It holds every pair that any of them names; the members' scores, and
how many outsiders score at least as high, are counted once. Where a true pair stands under one of
the truths follows by sorting the few members of each query.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from simgrad.core.errors import InputError
from simgrad.evaluation.declared import DIRECTIONS
from simgrad.evaluation.evaluator import evaluate_scores
from simgrad.evaluation.metrics import metrics_of, summary
from simgrad.evaluation.ranks import Booleans, Integers, Positions, places, ranks_from_rivals
from simgrad.evaluation.retrieval import HEADLINE_RECALLS
from simgrad.evaluation.rivals import Rivals, count_rivals
from simgrad.evaluation.scores import Scores
from simgrad.evaluation.truth import NEVER, Truth


def evaluate_coco(
    scores: Scores,
    image_ids: Sequence[int],
    caption_ids: Sequence[int],
    *,
    recalls: Iterable[int] = HEADLINE_RECALLS,
) -> dict[str, float]:
    """COCO 1K and 5K, CxC and ECCV Caption metrics of the 5,000 test images.

    `image_ids` and `caption_ids` are COCO's own numbers of the rows and columns. Names are
    `coco_5k_i2t_r1`, `cxc_t2i_r5`, `eccv_i2t_map_at_r`, ...: the names of `Metrics` behind the
    collection's. `eccv_i2t_errors_right`: of the images that ECCV Caption judged and whose first
    caption is not their own, the share, in %, for which it is right by ECCV Caption.
    """
    gold = _gold()
    ordered_captions = [int(i) for i in gold.coco_ids]
    image_of = {c: images[0] for c, images in gold.coco_gts["t2i"].items()}
    ordered_images = list(dict.fromkeys(image_of[c] for c in ordered_captions))
    rows = _places(image_ids, ordered_images, "image")
    columns = _places(caption_ids, ordered_captions, "caption")
    # In the order of the published test list, so that the folds of coco-1k are the published ones.
    scores = scores.select(
        torch.tensor([rows[i] for i in ordered_images]),
        torch.tensor([columns[c] for c in ordered_captions]),
    )
    image_row = {image: row for row, image in enumerate(ordered_images)}
    caption_row = {caption: row for row, caption in enumerate(ordered_captions)}
    pairing = np.array([image_row[image_of[c]] for c in ordered_captions])
    recalls = tuple(recalls)
    found = evaluate_scores(scores, pairing, protocol="coco-1k", recalls=recalls).to_dict()
    values = {f"coco_1k_{key}": value for key, value in found.items()}
    rows_of = {"i2t": (image_row, caption_row), "t2i": (caption_row, image_row)}
    truths = {
        (name, direction): Truth.of_lists(lists[direction], *rows_of[direction])
        for name, lists in (("cxc", gold.cxc_gts), ("eccv", gold.eccv_gts))
        for direction in DIRECTIONS
    }
    pool = Pool.of(scores, pairing, [(way, truth) for (_, way), truth in truths.items()])
    ids = ([str(i) for i in ordered_images], [str(c) for c in ordered_captions])
    found = metrics_of(ranks_from_rivals(pool.counts, pairing, *ids), recalls).to_dict()
    values |= {f"coco_5k_{key}": value for key, value in found.items()}
    for (name, direction), truth in truths.items():
        found = summary(pool.positions(truth, direction), recalls)
        values |= {f"{name}_{direction}_{key}": value for key, value in found.items()}
    own = Truth.of(pairing, np.arange(len(pairing)))
    owns = {"i2t": own, "t2i": own.transposed()}
    for (name, direction), truth in truths.items():
        # From the places that are known by now: no further pass over the similarities.
        judged = np.unique(truth.query)
        wrong = pool.positions(owns[direction], direction).best[judged] > 1
        right = wrong & (pool.positions(truth, direction).best == 1)
        values[f"{name}_{direction}_errors_right"] = float(100 * right.sum() / max(1, wrong.sum()))
    return values


def _gold() -> Any:
    try:
        import warnings

        with warnings.catch_warnings():  # it warns about an optional faster JSON reader
            warnings.simplefilter("ignore")
            import eccv_caption
    except ImportError:
        raise InputError(
            "CxC and ECCV Caption positives come with a package: pip install 'simgrad[eccv]'."
        ) from None
    return eccv_caption.Metrics()


def _places(given: Sequence[int], wanted: Sequence[int], kind: str) -> dict[int, int]:
    try:
        places = {int(number): place for place, number in enumerate(given)}
    except ValueError as error:
        raise InputError(f"COCO's {kind} ids are whole numbers ({error}).") from None
    missing = [number for number in wanted if number not in places]
    if missing:
        raise InputError(
            f"{len(missing):,} of the {len(wanted):,} {kind} ids of COCO's test split are not "
            f"among those given, {kind} {missing[0]} for one; evaluate the full split 'testall'."
        )
    return places


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
