"""Human judgments of Flickr8k: does the model agree with people on pairs that were judged?

Two questions. Do similarities order judged pairs as experts do (rank correlation)? And how good
is retrieval when every caption that the crowd approved of counts as correct, not the image's own
five alone? Hodosh, Young, Hockenmaier, JAIR 47, 2013. Data that knows its meaning exactly (the
embedded world) is asked the second question in full.
"""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from simgrad.evaluation.declared import Floats
from simgrad.evaluation.ranks import Integers
from simgrad.evaluation.retrieval import HEADLINE_RECALLS
from simgrad.evaluation.scores import Scores, Without
from simgrad.evaluation.truth import Truth, ndcg, truth_metrics

APPROVED = 0.5  # a pair is approved if at least this share of the crowd says yes


def agreement_with_experts(
    scores: Scores,
    image_of_caption: Integers,
    images: Integers,
    captions: Integers,
    ratings: Floats,
) -> dict[str, float]:
    """Pair k is images[k] with captions[k]; ratings (pairs, raters), 1 to 4."""
    similarities = pair_similarities(scores, images, captions)
    values = {f"expert_{k}": v for k, v in agreement(similarities, ratings).items()}
    # A model was trained to know an image's own captions: the rest is the harder question.
    others = image_of_caption[captions] != images
    if others.sum() > 1:
        rest = agreement(similarities[others], ratings[others])
        values |= {f"expert_others_{k}": v for k, v in rest.items()}
    truth = Truth.of(images, captions, ratings.mean(axis=1) - 1)  # 1 is "unrelated"
    values["i2t_expert_ndcg10"] = ndcg(scores, truth, 10)
    values["t2i_expert_ndcg10"] = ndcg(scores.transposed(), truth.transposed(), 10)
    return values


def retrieval_by_crowd(
    scores: Scores,
    image_of_caption: Integers,
    images: Integers,
    captions: Integers,
    share: Floats,
    recalls: Iterable[int] = HEADLINE_RECALLS,
) -> dict[str, float]:
    """Metrics where pairs count as right that a share of the crowd approved of."""
    approved = share >= APPROVED
    own = Truth.of(image_of_caption, np.arange(len(image_of_caption)))
    truth = own.joined(Truth.of(images[approved], captions[approved]))
    values = {"crowd_approved": float(len(truth.query) - len(own.query))}
    return values | _both(scores, truth, "crowd", recalls)


def retrieval_by_found(
    scores: Scores,
    image_of_caption: Integers,
    found: Integers,
    unsure: Integers,
    recalls: Iterable[int] = HEADLINE_RECALLS,
) -> dict[str, float]:
    """Metrics where found pairs (k, 2) count as right, and unsure ones are left out.

    `i2t_errors_right`: of the images whose first caption is not their own, the share, in %, for
    which it is right after all.
    """
    own = Truth.of(image_of_caption, np.arange(len(image_of_caption)))
    truth = own.joined(Truth.of(found[:, 0], found[:, 1]))
    values = {"found_pairs": float(len(truth.query) - len(own.query))}
    values["i2t_errors_right"] = errors_that_are_right(scores, own, truth)
    values["t2i_errors_right"] = errors_that_are_right(
        scores.transposed(), own.transposed(), truth.transposed()
    )
    if len(unsure):
        scores = Without(scores, torch.from_numpy(unsure))
    return values | _both(scores, truth, "found", recalls)


def errors_that_are_right(scores: Scores, own: Truth, truth: Truth) -> float:
    """Among judged queries whose first candidate is not their own: the share, in %, for which that
    candidate is true by the judgments."""
    first = np.concatenate([block.argmax(1).cpu().numpy() for _, _, block in scores.blocks()])
    key = np.arange(len(first)) * scores.num_captions + first
    wrong = ~np.isin(key, own.query * scores.num_captions + own.candidate)
    wrong &= np.isin(np.arange(len(first)), truth.query)
    there = truth.candidate >= 0
    true = truth.query[there] * scores.num_captions + truth.candidate[there]
    right = np.isin(key, true) & wrong
    return float(100 * right.sum() / max(1, wrong.sum()))


def retrieval_by_meaning(
    scores: Scores,
    describes: Callable[[Integers, Integers], npt.NDArray[np.bool_]],
    recalls: Iterable[int] = HEADLINE_RECALLS,
) -> dict[str, float]:
    """Metrics where every caption that is true of an image counts: (images, captions) -> mask."""
    captions = np.arange(scores.num_captions)
    pairs = []
    for start in range(0, scores.num_images, 256):
        images = np.arange(start, min(start + 256, scores.num_images))
        row, column = np.nonzero(describes(images, captions))
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


def pair_similarities(scores: Scores, images: Integers, captions: Integers) -> Floats:
    """Similarities of chosen pairs, from the same blocks that ranks come from."""
    values = np.empty(len(images))
    for start, stop, block in scores.blocks():
        here = np.flatnonzero((images >= start) & (images < stop))
        values[here] = block[images[here] - start, captions[here]].cpu().double().numpy()
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
