"""Similarities of a split, by one system or several, and the one way from them to metrics."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from simgrad.core.errors import InputError
from simgrad.data.base import Split
from simgrad.evaluation.evaluator import embedding_scores, evaluate_scores
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
