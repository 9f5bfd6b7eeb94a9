"""Human judgments of Flickr8k: does the model agree with people on pairs that were judged?

Two questions. Do similarities order judged pairs as experts do (rank correlation)? And how good
is retrieval when every caption that the crowd approved of counts as correct, not the image's own
five alone? Hodosh, Young, Hockenmaier, JAIR 47, 2013. Data that knows its meaning exactly (the
embedded world) is asked the second question in full.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from simgrad.data.base import Split
from simgrad.data.judgments import Judgments, read_judgments
from simgrad.errors import InputError
from simgrad.evaluation.metrics import HEADLINE_RECALLS, Floats
from simgrad.evaluation.ranks import Integers
from simgrad.evaluation.scores import Scores
from simgrad.evaluation.truth import Truth, ndcg, truth_metrics

APPROVED = 0.5  # a pair is approved if at least this share of the crowd says yes


def evaluate_judgments(
    scores: Scores,
    split: Split,
    folder: str | Path,
    *,
    recalls: Iterable[int] = HEADLINE_RECALLS,
) -> dict[str, float]:
    """All that the judgments in a folder say about a model's similarities on a split."""
    found = read_judgments(folder)
    values: dict[str, float] = {}
    if "expert" in found:
        values |= _expert(scores, split, found["expert"])
    if "crowd" in found:
        values |= _crowd(scores, split, found["crowd"], recalls)
    return values


def _expert(scores: Scores, split: Split, judgments: Judgments) -> dict[str, float]:
    images, captions, judged = _rows(judgments, split)
    similarities = pair_similarities(scores, images, captions)
    ratings = judgments.scores[judged]
    values = {f"expert_{k}": v for k, v in agreement(similarities, ratings).items()}
    # A model was trained to know an image's own captions: the rest is the harder question.
    others = split.image_of_caption[captions] != images
    if others.sum() > 1:
        rest = agreement(similarities[others], ratings[others])
        values |= {f"expert_{k}_others": v for k, v in rest.items()}
    truth = Truth.of(images, captions, ratings.mean(axis=1) - 1)  # 1 is "unrelated"
    values["i2t_expert_ndcg10"] = ndcg(scores, truth, 10)
    values["t2i_expert_ndcg10"] = ndcg(scores.transposed(), truth.transposed(), 10)
    return values


def _crowd(
    scores: Scores, split: Split, judgments: Judgments, recalls: Iterable[int]
) -> dict[str, float]:
    images, captions, judged = _rows(judgments, split)
    approved = judgments.scores[judged, 0] >= APPROVED
    own = Truth.of(split.image_of_caption, np.arange(split.num_captions))
    truth = own.joined(Truth.of(images[approved], captions[approved]))
    values = {"crowd_approved": float(len(truth.query) - len(own.query))}
    return values | _both(scores, truth, "crowd", recalls)


def evaluate_truth(
    scores: Scores, split: Split, *, recalls: Iterable[int] = HEADLINE_RECALLS
) -> dict[str, float]:
    """Metrics where every caption that is true of an image counts, for data that knows (scenes)."""
    if split.truth is None:
        raise InputError(f"{split.dataset} does not know which other captions are true.")
    captions = np.arange(split.num_captions)
    pairs = []
    for start in range(0, split.num_images, 256):
        images = np.arange(start, min(start + 256, split.num_images))
        row, column = np.nonzero(split.truth(images, captions))
        pairs.append(np.stack([images[row], column], axis=1))
    found = np.concatenate(pairs)
    truth = Truth.of(found[:, 0], found[:, 1])
    return {"true_pairs": float(len(found))} | _both(scores, truth, "truth", recalls)


def _both(scores: Scores, truth: Truth, name: str, recalls: Iterable[int]) -> dict[str, float]:
    recalls = tuple(recalls)
    i2t = truth_metrics(scores, truth, recalls)
    t2i = truth_metrics(scores.transposed(), truth.transposed(), recalls)
    values = {f"i2t_{name}_{key}": value for key, value in i2t.items()}
    return values | {f"t2i_{name}_{key}": value for key, value in t2i.items()}


def _rows(judgments: Judgments, split: Split) -> tuple[Integers, Integers, Integers]:
    images, captions, judged = judgments.rows(split)
    if len(images) < 2:
        raise InputError(
            f"the {judgments.kind} judgments name no two pairs of the split '{split.name}': "
            "they are about Flickr8k's test images and name captions as 'file#number'."
        )
    return images, captions, judged


def pair_similarities(scores: Scores, images: Integers, captions: Integers) -> Floats:
    """Similarities of chosen pairs, from the same blocks that ranks come from."""
    values = np.empty(len(images))
    for start, stop, block in scores.blocks():
        here = np.flatnonzero((images >= start) & (images < stop))
        values[here] = block[images[here] - start, captions[here]].double().cpu().numpy()
    return values


def agreement(similarities: npt.NDArray[Any], ratings: npt.NDArray[Any]) -> dict[str, float]:
    """Rank correlations of similarities (pairs,) with ratings (pairs, raters).

    `kendall_b` and `spearman` are against the mean rating; `kendall_c` takes each rater's
    rating as an observation of its own, as the literature on caption metrics does.
    """
    from scipy import stats

    mean = ratings.mean(axis=1)
    single = np.repeat(similarities, ratings.shape[1])
    return {
        "kendall_b": float(stats.kendalltau(similarities, mean, variant="b").statistic),
        "kendall_c": float(stats.kendalltau(single, ratings.ravel(), variant="c").statistic),
        "spearman": float(stats.spearmanr(similarities, mean).statistic),
        "pairs": float(len(similarities)),
    }
