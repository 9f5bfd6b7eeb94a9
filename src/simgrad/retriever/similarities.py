"""Similarities of a split, by one system or several, and the ways from them to metrics.

Metrics are by the pairing; or by other truths: people's judgments, found pairs, known scenes.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from simgrad.core.errors import InputError
from simgrad.data.base import Rows, Split
from simgrad.data.found import FoundRows
from simgrad.data.judgments import Judgments, read_judgments
from simgrad.evaluation.evaluator import embedding_scores, evaluate_scores
from simgrad.evaluation.judgments import (
    agreement_with_experts,
    retrieval_by_crowd,
    retrieval_by_found,
    retrieval_by_meaning,
)
from simgrad.evaluation.metrics import Metrics
from simgrad.evaluation.protocols import Protocol
from simgrad.evaluation.rerank import evaluate_reranked
from simgrad.evaluation.retrieval import HEADLINE_RECALLS
from simgrad.evaluation.scores import Average, Scores
from simgrad.models import RetrievalModel
from simgrad.models.base import Encoded, Reranker
from simgrad.retriever.encoding import model_scores


@dataclass(frozen=True)
class Similarities:
    """How similar every image of a split is to every caption.

    Examples:
        >>> found = simgrad.open("runs/first", device="cpu").similarities("test")
        >>> found.scores.num_images, found.scores.num_captions
        (10, 50)
        >>> found.measure(protocol="all").rsum == found.measure().rsum
        True
    """

    name: str
    scores: Scores
    split: Split  # of arrays without data: rows, called by their ids or numbers
    reranker: Reranker | None = None  # a second scorer, where the model has one

    @staticmethod
    def of(
        name: str, model: RetrievalModel, split: Split, images: Encoded, captions: Encoded
    ) -> "Similarities":
        """What a model makes of a split that it has encoded."""
        scores = model_scores(model, images, captions)
        return Similarities(name, scores, split, model.reranker(images, captions))

    @staticmethod
    def given(name: str, split: Split) -> "Similarities":
        """Of vectors that the data bring for both sides: their cosines."""
        if split.features is None or split.caption_vectors is None:
            raise InputError(f"{name}: these data have no vectors of both sides; give a model.")
        images = split.features.rows(np.arange(split.num_images))
        texts = split.caption_vectors.rows(np.arange(split.num_captions))
        with naming(name):
            return Similarities(name, embedding_scores(images, texts, normalise=True), split)

    def measure(
        self,
        protocol: str | Protocol | None = None,
        recalls: Iterable[int] = HEADLINE_RECALLS,
        rerank: int | None = None,
    ) -> Metrics:
        """Metrics by a protocol; `rerank`: score that many again, 0 for the model's own number."""
        split = self.split
        named: dict[str, Any] = {
            "protocol": protocol or "all",
            "recalls": recalls,
            "image_ids": split.image_names,
            "caption_ids": split.caption_ids,
        }
        with naming(self.name):
            if rerank is None:
                return evaluate_scores(self.scores, split.image_of_caption, **named)
            if self.reranker is None:
                raise InputError("this model has no second scorer to re-rank with.")
            again, candidates = self.reranker.scores, rerank or self.reranker.candidates
            return evaluate_reranked(
                self.scores, split.image_of_caption, again, candidates, **named
            )


def average(several: Sequence[Similarities], name: str = "ensemble") -> Similarities:
    """Several systems as one: the mean of their similarities."""
    first = several[0].split
    for other in several[1:]:
        if _ids(other.split) != _ids(first):
            raise InputError("an ensemble needs systems on the same images and captions.")
    return Similarities(name, Average([each.scores for each in several]), first)


def _ids(split: Split) -> tuple[list[str], list[str] | None]:
    captions = split.caption_ids
    return list(split.image_names), None if captions is None else list(captions)


@contextmanager
def naming(where: str | Path) -> Iterator[None]:
    """An error names the system or file that it is about: of several, one is wrong."""
    try:
        yield
    except InputError as error:
        if str(error).startswith(str(where)):
            raise
        raise type(error)(f"{where}: {error}") from None


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
        images, captions, judged = _judged_rows(found["expert"], split)
        ratings = found["expert"].scores[judged]
        values |= agreement_with_experts(scores, split.image_of_caption, images, captions, ratings)
    if "crowd" in found:
        images, captions, judged = _judged_rows(found["crowd"], split)
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


def _judged_rows(judgments: Judgments, split: Split) -> tuple[Rows, Rows, Rows]:
    images, captions, judged = judgments.rows(split)
    if len(images) < 2:
        raise InputError(
            f"the {judgments.kind} judgments name no two pairs of the split '{split.name}': "
            "they are about Flickr8k's test images and name captions as 'file#number'."
        )
    return images, captions, judged
