"""The test of a run, as its recipe says; and of several runs together, as an ensemble."""

from collections.abc import Sequence
from typing import Any

from simgrad.core.errors import InputError
from simgrad.data.vocabulary import Tokenizer
from simgrad.evaluation.evaluator import evaluate_scores
from simgrad.evaluation.metrics import Metrics
from simgrad.evaluation.rerank import evaluate_reranked
from simgrad.evaluation.scores import Average, Scores
from simgrad.models.base import RetrievalModel
from simgrad.retriever.encoding import encode_source, model_scores
from simgrad.retriever.prepare import source_of
from simgrad.runs.recipe import Recipe
from simgrad.runs.tested import Tested


def measure(
    recipe: Recipe, asked: Tested, model: RetrievalModel, tokenizer: Tokenizer, device: Any
) -> Metrics:
    """Metrics of a model by its recipe's protocol."""
    split = asked.split
    source = source_of(split, tokenizer, model, device, recipe)
    images, captions = encode_source(model, source)
    scores = model_scores(model, images, captions)
    named: dict[str, Any] = {"protocol": asked.protocol, "image_ids": split.image_names}
    named["caption_ids"] = split.caption_ids
    if recipe.rerank is None:
        return evaluate_scores(scores, split.image_of_caption, **named)
    second = model.reranker(images, captions)
    if second is None:
        raise InputError(f"recipe: rerank: {recipe.model[:80]} has no second scorer to rank with.")
    return evaluate_reranked(
        scores,
        split.image_of_caption,
        lambda pairs: second.scores(pairs.to(device)),
        recipe.rerank or second.candidates,
        **named,
    )


def measure_together(scores: Sequence[Scores], asked: Tested) -> Metrics:
    """Metrics of several models as one: the mean of their similarities."""
    split = asked.split
    return evaluate_scores(
        Average(list(scores)),
        split.image_of_caption,
        protocol=asked.protocol,
        image_ids=split.image_names,
        caption_ids=split.caption_ids,
    )
