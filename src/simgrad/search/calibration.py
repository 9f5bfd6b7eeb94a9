"""How sure is a hit? Probabilities that are learned on the validation split.

A similarity says little by itself: models differ, and 0.4 may be a perfect match or noise. So the
validation split is asked first, where right and wrong are known. Half of its queries are asked as
they are, half with their right answers taken away, because a person may ask for something that is
not there. A logistic regression then learns how often a hit is right from three numbers:

    score     its similarity to the query
    margin    how far it stands before the best of the others (behind, if it is not the first)
    size      among how many it was found, on a logarithmic scale; so that what is learned among a
              thousand pictures also holds among a few thousand

Nothing fits where the best hit is less sure than that of 19 in 20 queries that have an answer.
The share of queries without an answer that this turns away is reported too.

Right is what belongs together in the data. Where other pictures fit as well and nobody has said so,
they count as wrong, and probabilities are lower than a person would say.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from simgrad.core.errors import InputError

Floats = npt.NDArray[np.float64]
Truths = npt.NDArray[np.bool_]
Groups = npt.NDArray[np.int64]

_HITS = 10  # of a query that are learned from
_SHARES = (1, 2, 4, 8)  # the whole gallery, half of it, ...
_LEAST = 16  # candidates, and queries
_KEPT = 0.95  # of the queries with an answer, by the cut-off
_RIDGE = 1.0  # against extreme weights where data is scarce


@dataclass(frozen=True)
class Calibration:
    """P(right) = 1 / (1 + exp(-(bias + weights · (score, margin, size))))"""

    weights: tuple[float, float, float]
    bias: float
    cut: float  # the exponent, without the size, below which a best hit counts as nothing
    refused: float  # share of the queries without an answer that this turns away
    queries: int  # that were learned from
    candidates: int  # among which they were asked

    def probabilities(self, scores: Sequence[float], candidates: int) -> list[float]:
        """How sure the first hits of a query are, best first; `candidates` were searched.

        Give one more score than is shown, so that the first hit's margin is known.
        """
        if not len(scores):
            return []
        values = np.asarray(scores, dtype=np.float64)[None]
        z = _features(values, candidates)[0] @ np.array(self.weights) + self.bias
        return [float(p) for p in _sigmoid(z)]

    def cut_off(self, candidates: int) -> float:
        """The probability below which a best hit counts as nothing."""
        return float(_sigmoid(self.cut + self.weights[2] * math.log(max(1, candidates))))

    def far_from(self, candidates: int) -> bool:
        """Whether so many more or fewer are searched that the probabilities are a guess."""
        return not 1 / 8 <= candidates / self.candidates <= 4

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_dict(value: dict[str, Any]) -> "Calibration":
        """What `to_dict` gave; ValueError for anything else."""
        weights = tuple(float(w) for w in value["weights"])
        bias, cut, refused = (float(value[name]) for name in ("bias", "cut", "refused"))
        numbers = (*weights, bias, cut, refused)
        if len(weights) != 3 or not all(map(math.isfinite, numbers)) or value["candidates"] < 1:
            raise ValueError("not a calibration")
        three = (weights[0], weights[1], weights[2])
        return Calibration(
            three, bias, cut, refused, int(value["queries"]), int(value["candidates"])
        )


def _sigmoid(z: Any) -> Any:
    return 1 / (1 + np.exp(-np.clip(z, -700, 700)))


def _features(scores: Floats, candidates: int) -> Floats:
    """(queries, hits) sorted scores -> (queries, hits, 3)."""
    first = scores[:, :1]
    second = scores[:, 1:2] if scores.shape[1] > 1 else first
    rival = np.concatenate([second, np.broadcast_to(first, scores[:, 1:].shape)], axis=1)
    size = np.full_like(scores, math.log(max(1, candidates)))
    return np.stack([scores, scores - rival, size], axis=-1)


def calibrate(
    scores: Floats, right: Truths, own: Groups, groups: Groups, seed: int = 0
) -> Calibration:
    """Learn from queries (rows) whose right candidates (columns) are known.

    `groups` says which candidates come and go together, such as the captions of an image, and
    `own` which group belongs to a query. Smaller galleries are made of whole groups, and asked by
    the queries they belong to.
    """
    queries, candidates = scores.shape
    everyone = np.unique(groups)
    random = np.random.default_rng(seed)
    features, labels, weights = [], [], []
    for share in _SHARES:
        chosen = random.permutation(everyone)[: len(everyone) // share]
        asked, kept = np.isin(own, chosen), np.isin(groups, chosen)
        if asked.sum() < _LEAST or kept.sum() < _LEAST:
            break
        x, y = _examples(scores[asked][:, kept], right[asked][:, kept])
        features.append(x)
        labels.append(y)
        weights.append(np.full(len(y), 1 / len(y)))  # every size counts the same
    if not features:
        raise InputError(
            f"{queries} validation queries among {candidates} candidates are too few to learn "
            "how often a hit is right."
        )
    x, y, w = np.concatenate(features), np.concatenate(labels), np.concatenate(weights)
    slopes, bias = _logistic(x, y.astype(np.float64), w * len(w) / w.sum())
    best = [_first(values) @ slopes[:2] + bias for values in (scores, _taken_away(scores, right))]
    cut = float(np.quantile(best[0], 1 - _KEPT))
    refused = float(np.mean(best[1] < cut))
    three = (float(slopes[0]), float(slopes[1]), float(slopes[2]))
    return Calibration(three, bias, cut, refused, queries, candidates)


def _taken_away(scores: Floats, right: Truths) -> Floats:
    return np.where(right, -np.inf, scores)


def _first(scores: Floats) -> Floats:
    """Score and margin of every query's best hit, (queries, 2)."""
    best = np.sort(scores, axis=1)[:, :-3:-1]
    best = best[np.isfinite(best).all(axis=1)]
    return _features(best, 1)[:, 0, :2]


def _examples(scores: Floats, right: Truths) -> tuple[Floats, Truths]:
    """Hits of every query as it is, and with its right answers taken away."""
    features, labels = [], []
    for present in (True, False):
        values = scores if present else _taken_away(scores, right)
        order = np.argsort(-values, axis=1, kind="stable")[:, : _HITS + 1]
        best = np.take_along_axis(values, order, axis=1)
        true = np.take_along_axis(right, order, axis=1) & present
        usable = np.isfinite(best)
        x = _features(np.where(usable, best, best[:, :1]), scores.shape[1])
        kept = usable[:, :_HITS] & usable[:, 1:2]  # at least two, so that there is a margin
        features.append(x[:, :_HITS][kept])
        labels.append(true[:, :_HITS][kept])
    return np.concatenate(features), np.concatenate(labels)


def _logistic(x: Floats, y: Floats, w: Floats) -> tuple[Floats, float]:
    """Weights and bias of a ridge logistic regression on standardised features."""
    from scipy.optimize import minimize

    middle, spread = x.mean(axis=0), x.std(axis=0)
    spread[spread < 1e-6] = np.inf  # the same for all: nothing can be learned from it
    z = np.concatenate([(x - middle) / spread, np.ones((len(x), 1))], axis=1)

    def loss(beta: Floats) -> tuple[float, Floats]:
        logits = z @ beta
        slack = w * (_sigmoid(logits) - y)
        penalty = _RIDGE * np.append(beta[:-1], 0.0)
        value = float(w @ (np.logaddexp(0, logits) - y * logits) + penalty @ beta / 2)
        return value, z.T @ slack + penalty

    beta = minimize(loss, np.zeros(z.shape[1]), jac=True, method="L-BFGS-B").x
    slopes = beta[:-1] / spread
    return slopes, float(beta[-1] - slopes @ middle)
