"""Evaluation: ranks, metrics and protocols of the field, exact, with uncertainty.

`evaluate`, `evaluate_similarities` and `rank_blocks` are for models of any origin, `compare` for
what they return. All of it works on arrays; no model or run folder is needed.

Examples:
    >>> metrics = simgrad.evaluate(torch.eye(3), torch.eye(3), [0, 1, 2])
    >>> low, high = simgrad.evaluation.intervals(metrics)["rsum"]
    >>> print(simgrad.evaluation.PROTOCOLS["flickr30k-1k"].images)
    1000
"""

from simgrad.evaluation.comparison import (
    compare,
    compare_many,
    compare_with,
    holm,
)
from simgrad.evaluation.declared import METRICS, Metric, check_metric, headlines, metric, metric_of
from simgrad.evaluation.differences import Comparison, Difference
from simgrad.evaluation.ensembles import evaluate_ensemble
from simgrad.evaluation.evaluator import evaluate, evaluate_similarities, rank_blocks
from simgrad.evaluation.metric_check import MetricCheck, check
from simgrad.evaluation.metrics import Metrics, metrics_of
from simgrad.evaluation.protocols import PROTOCOLS
from simgrad.evaluation.rankings import Rankings, evaluate_rankings
from simgrad.evaluation.ranks import Positions, Ranks
from simgrad.evaluation.rerank import evaluate_reranked
from simgrad.evaluation.retrieval import compare_cross_ranks, cross_ranks, histogram
from simgrad.evaluation.standing import Standing, against, stand
from simgrad.evaluation.truth import Truth, ndcg, truth_metrics
from simgrad.evaluation.uncertainty import Estimate, estimates, intervals

__all__ = [
    "METRICS",
    "PROTOCOLS",
    "Comparison",
    "Difference",
    "Estimate",
    "Metric",
    "MetricCheck",
    "Metrics",
    "Positions",
    "Rankings",
    "Ranks",
    "Standing",
    "Truth",
    "against",
    "check",
    "check_metric",
    "compare",
    "compare_cross_ranks",
    "compare_many",
    "compare_with",
    "cross_ranks",
    "estimates",
    "evaluate",
    "evaluate_ensemble",
    "evaluate_rankings",
    "evaluate_reranked",
    "evaluate_similarities",
    "headlines",
    "histogram",
    "holm",
    "intervals",
    "metric",
    "metric_of",
    "metrics_of",
    "ndcg",
    "rank_blocks",
    "stand",
    "truth_metrics",
]
