"""Ensembles: the mean of the similarities of several systems, as VSRN and SCAN are published."""

from collections.abc import Iterable, Sequence
from typing import Any

from simgrad.core.errors import InputError
from simgrad.evaluation.evaluator import embedding_scores, evaluate_scores
from simgrad.evaluation.metrics import Metrics
from simgrad.evaluation.protocols import Protocol
from simgrad.evaluation.retrieval import HEADLINE_RECALLS
from simgrad.evaluation.scores import Average, Matrix, Scores, as_floats


def evaluate_ensemble(
    systems: Sequence[Any],
    image_of_caption: Any,
    *,
    protocol: str | Protocol = "all",
    recalls: Iterable[int] = HEADLINE_RECALLS,
    image_ids: Sequence[str] | None = None,
    caption_ids: Sequence[str] | None = None,
) -> Metrics:
    """Metrics of several systems together.

    Each system is a pair (image embeddings, caption embeddings), a similarity matrix, or `Scores`.

    Examples:
        >>> systems = [torch.rand(8, 8), torch.rand(8, 8), 2 * torch.eye(8)]
        >>> metrics = simgrad.evaluation.evaluate_ensemble(systems, torch.arange(8))
        >>> metrics.i2t_r1
        100.0
    """
    if not systems:
        raise InputError("an ensemble needs at least one system.")
    return evaluate_scores(
        Average([_scores(system) for system in systems]),
        image_of_caption,
        protocol=protocol,
        recalls=recalls,
        image_ids=image_ids,
        caption_ids=caption_ids,
    )


def _scores(system: Any) -> Scores:
    if isinstance(system, Scores):
        return system
    if isinstance(system, tuple | list) and len(system) == 2:
        return embedding_scores(*system)
    matrix = as_floats(system, "similarities")
    if matrix.ndim != 2:
        raise InputError(
            f"similarities have the shape {tuple(matrix.shape)}; (images, captions) is needed."
        )
    return Matrix(matrix)
