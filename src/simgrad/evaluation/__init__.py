"""Evaluation: ranks, metrics and protocols of the field, exact, with uncertainty.

`evaluate`, `evaluate_similarities` and `rank_blocks` are for models of any origin; the modules
beside them hold one idea each.
"""

from simgrad.evaluation.crossrank import compare_cross_ranks, cross_ranks, histogram
from simgrad.evaluation.ensembles import evaluate_ensemble
from simgrad.evaluation.evaluator import evaluate, evaluate_similarities, rank_blocks
from simgrad.evaluation.metrics import DESCRIPTIONS, Metrics, metrics_of
from simgrad.evaluation.protocols import PROTOCOLS
from simgrad.evaluation.ranks import Ranks
from simgrad.evaluation.rerank import evaluate_reranked
from simgrad.evaluation.truth import Truth, ndcg, truth_metrics
from simgrad.evaluation.uncertainty import (
    Difference,
    compare,
    compare_many,
    compare_seeds,
    holm,
    intervals,
)

__all__ = [
    "DESCRIPTIONS",
    "PROTOCOLS",
    "Difference",
    "Metrics",
    "Ranks",
    "Truth",
    "compare",
    "compare_cross_ranks",
    "compare_many",
    "compare_seeds",
    "cross_ranks",
    "evaluate",
    "evaluate_ensemble",
    "evaluate_reranked",
    "evaluate_similarities",
    "histogram",
    "holm",
    "intervals",
    "metrics_of",
    "ndcg",
    "rank_blocks",
    "truth_metrics",
]
