"""Metrics by other truths than the pairing: by people's judgments, found pairs, or known scenes."""

from collections.abc import Iterable
from pathlib import Path

from simgrad.core.errors import InputError
from simgrad.data.base import Rows, Split
from simgrad.data.found import FoundRows
from simgrad.data.judgments import Judgments, read_judgments
from simgrad.evaluation.judgments import (
    agreement_with_experts,
    retrieval_by_crowd,
    retrieval_by_found,
    retrieval_by_meaning,
)
from simgrad.evaluation.retrieval import HEADLINE_RECALLS
from simgrad.evaluation.scores import Scores


def evaluate_judgments(
    scores: Scores,
    split: Split,
    folder: str | Path,
    *,
    recalls: Iterable[int] = HEADLINE_RECALLS,
) -> dict[str, float]:
    """All that the judgments in a folder say."""
    found = read_judgments(folder)
    values: dict[str, float] = {}
    if "expert" in found:
        images, captions, judged = _rows(found["expert"], split)
        ratings = found["expert"].scores[judged]
        values |= agreement_with_experts(scores, split.image_of_caption, images, captions, ratings)
    if "crowd" in found:
        images, captions, judged = _rows(found["crowd"], split)
        share = found["crowd"].scores[judged, 0]
        values |= retrieval_by_crowd(
            scores, split.image_of_caption, images, captions, share, recalls
        )
    return values


def evaluate_truth(
    scores: Scores,
    split: Split,
    *,
    recalls: Iterable[int] = HEADLINE_RECALLS,
    found: FoundRows | None = None,
) -> dict[str, float]:
    """Metrics where every caption that is true of an image counts.

    What is true is known to the data (scenes), or was `found` beside the own pairs.
    """
    if found is not None:
        return retrieval_by_found(
            scores, split.image_of_caption, found.right, found.unsure, recalls
        )
    if split.truth is None:
        raise InputError(f"{split.dataset} does not know which other captions are true.")
    return retrieval_by_meaning(scores, split.truth, recalls)


def _rows(judgments: Judgments, split: Split) -> tuple[Rows, Rows, Rows]:
    images, captions, judged = judgments.rows(split)
    if len(images) < 2:
        raise InputError(
            f"the {judgments.kind} judgments name no two pairs of the split '{split.name}': "
            "they are about Flickr8k's test images and name captions as 'file#number'."
        )
    return images, captions, judged
