"""The counts of Bleeker & de Rijke (ECIR 2022, section 4), as defined and as published.

As defined, for queries q of one direction:

    triplet      C_q  triplets within the margin; C_B their sum over queries; C_0 queries with none
    triplet-sh   C_B  queries whose hardest negative is within the margin; C_q and C_0 likewise
    nt-xent      C_qv_neg negatives with softmax probability > epsilon, W_qv_neg the sum of those,
                 W_qv_pos 1 - the probability of the positives
    smooth-ap    C_q  triplets with sim(D) / R² > epsilon, per positive (eq. 13); C_0 queries with
                 none

C_q is the mean over the queries that have any, as in the published tables: C_q = C_B / (B - C_0).

As published (`released`), the counting differs from the definitions in four ways:

1. triplet, caption queries: C_q and C_0 are summed along images instead of captions.
2. smooth-ap leaves out the factor 1/tau of sim(D): epsilon = 0.01 stands for 1 at tau = 0.01.
3. smooth-ap, caption queries: the candidates 5i ... 5i+4 are taken for caption i's positives. There
   are no such images for most captions, so these count as queries without gradient, whatever the
   model does: at least 614 of 640.
4. C_q is 0/0 where no query of a batch has any.
"""

import csv
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from simgrad.core.devices import widened
from simgrad.core.errors import InputError
from simgrad.objectives import NTXent, Objective, Positives, SmoothAP, Triplet, TripletSH
from simgrad.objectives.engine.rules import affine_of, apply_rule
from simgrad.objectives.positives import Side

Figures = dict[str, Tensor]


@dataclass(frozen=True)
class PaperCounts:
    """How the paper counts one of its losses."""

    name: str  # as the published tables call it
    figures: tuple[str, ...]
    count: Callable[[Any, Tensor, Side, float], Figures]  # rows are queries
    released: Callable[[Any, Tensor, Positives, float], dict[str, Figures]]


def paper_counts_of(objective: Objective) -> PaperCounts | None:
    """How the paper counts this objective, if it does."""
    # By its very class: a subclass, such as debiased NT-Xent, has other weights than the paper's.
    return _COUNTED.get(type(objective))


def _own(S: Tensor, side: Side) -> Tensor:
    return S[side.query, side.candidate]  # (pairs,)


def _per_query(pairs: Tensor, side: Side) -> Tensor:
    return pairs.new_zeros(side.queries).index_add_(0, side.query, pairs)


def _per_counted_query(counts: Tensor) -> Tensor:
    """The mean over queries with a count; 0 where there is none."""
    return counts.sum() / (counts > 0).sum().clamp(min=1)


# --- triplet losses: C_q, C_B, C_0


def _violations(objective: Any, S: Tensor, side: Side) -> Tensor:
    """(pairs, candidates): which triplets are within the margin."""
    bound: Tensor = _own(S, side)[:, None] - objective.margin
    negative = ~side.mask()[side.query]
    violated: Tensor = (S[side.query] > bound) & negative
    return violated


def _triplet(objective: Any, S: Tensor, side: Side, epsilon: float) -> Figures:
    violated = _violations(objective, S, side)
    return _three(_per_query(widened(violated.sum(1)), side))


def _triplet_sh(objective: Any, S: Tensor, side: Side, epsilon: float) -> Figures:
    # One negative contributes, the hardest, if it violates the margin of any positive.
    violated = _per_query(widened(_violations(objective, S, side).any(1)), side)
    return _three(widened(violated > 0))


def _three(counts: Tensor) -> Figures:
    return {
        "C_q": _per_counted_query(counts),
        "C_B": counts.sum(),
        "C_0": (counts == 0).sum(),
    }


def _released_three(counts: Tensor) -> Figures:
    counted = (counts > 0).sum()
    return {**_three(counts), "C_q": counts.sum() / counted}  # 0/0 where no query has any


def _released_triplet(
    objective: Any, S: Tensor, pairs: Positives, epsilon: float
) -> dict[str, Figures]:
    S = _square(S, pairs)
    diagonal = Positives.diagonal(len(S), S.device)
    i2t = _violations(objective, S, diagonal.i2t)
    t2i = _violations(objective, S.t(), diagonal.t2i)  # (captions, images)
    # Artefact 1: summed over captions, so that what is counted belongs to images.
    return {
        "i2t": _released_three(widened(i2t.sum(1))),
        "t2i": _released_three(widened(t2i.sum(0))),
    }


def _released_triplet_sh(
    objective: Any, S: Tensor, pairs: Positives, epsilon: float
) -> dict[str, Figures]:
    S = _square(S, pairs)
    diagonal = Positives.diagonal(len(S), S.device)
    return {
        direction: _released_three(widened(_violations(objective, M, diagonal.i2t).any(1)))
        for direction, M in (("i2t", S), ("t2i", S.t()))
    }


# --- NT-Xent: C, W-, W+


def _nt_xent(objective: Any, S: Tensor, side: Side, epsilon: float) -> Figures:
    seen = affine_of(objective, S).clone(memory_format=torch.contiguous_format)
    own = _own(seen, side)
    _, weights, _ = apply_rule(objective, seen, side, own, own, None)
    pushes = weights.masked_fill(side.mask(), 0)  # what it pushes by is the softmax probability
    counted = pushes > epsilon
    return {
        "C_qv_neg": widened(counted.sum(1)).mean(),
        "W_qv_neg": (pushes * counted).sum(1).mean(),
        "W_qv_pos": pushes.sum(1).mean(),  # what positives lack of 1, negatives have
    }


def _released_nt_xent(
    objective: Any, S: Tensor, pairs: Positives, epsilon: float
) -> dict[str, Figures]:
    S = _square(S, pairs)
    diagonal = Positives.diagonal(len(S), S.device)
    return {
        "i2t": _nt_xent(objective, S, diagonal.i2t, epsilon),
        "t2i": _nt_xent(objective, S.t(), diagonal.t2i, epsilon),
    }


# --- SmoothAP: C_q, C_0


def _close_triplets(
    objective: Any, S: Tensor, query: Tensor, candidate: Tensor, factor: float, epsilon: float
) -> Tensor:
    """(pairs,): for candidate i of a query, how many j have factor G(1 - G) / R_i² > epsilon."""
    seen = affine_of(objective, S)
    above, slope = objective.terms(seen[query], seen[query, candidate][:, None])  # G, G(1 - G)
    for part in (above, slope):
        part.scatter_(1, candidate[:, None], 0)  # j != i
    rank = 1 + above.sum(1)
    counted: Tensor = widened((factor * slope > epsilon * rank.square()[:, None]).sum(1))
    return counted


def _smooth_ap(objective: Any, S: Tensor, side: Side, epsilon: float) -> Figures:
    close = _close_triplets(objective, S, side.query, side.candidate, 1 / objective.tau, epsilon)
    counts = _per_query(close, side) / _per_query(torch.ones_like(close), side)
    return {"C_q": _per_counted_query(counts), "C_0": (counts == 0).sum()}


def _released_smooth_ap(
    objective: Any, S: Tensor, pairs: Positives, epsilon: float
) -> dict[str, Figures]:
    S, k = _image_major(S, pairs)
    figures = {}
    for direction, M, share in (("i2t", S, k), ("t2i", S.t(), 1)):
        queries, candidates = M.shape
        # Artefact 3: candidates k i ... k i + k - 1, in both directions.
        place = torch.arange(queries * k, device=S.device)
        query, candidate = place // k, place
        there = candidate < candidates
        query, candidate = query[there], candidate[there]
        # Artefact 2: no factor 1/tau.
        close = _close_triplets(objective, M, query, candidate, 1.0, epsilon)
        counts = close.new_zeros(queries).index_add_(0, query, close) / share
        three = _released_three(counts)
        figures[direction] = {"C_q": three["C_q"], "C_0": three["C_0"]}
    return figures


# --- batches as the published code saw them


def _image_of_caption(pairs: Positives) -> Tensor:
    if pairs.t2i.one_each:
        return pairs.t2i.candidate
    images = torch.bincount(pairs.t2i.query, minlength=pairs.t2i.queries)
    if not bool((images == 1).all()):
        raise InputError(
            "the published counting gives each caption one image; a mask with several cannot be "
            "counted with released=True."
        )
    return pairs.t2i.candidate


def _square(S: Tensor, pairs: Positives) -> Tensor:
    """Pair k in row and column k; the captions of one image are negatives of each other."""
    return S[_image_of_caption(pairs)]


def _image_major(S: Tensor, pairs: Positives) -> tuple[Tensor, int]:
    """Captions in the order of their images, k of each."""
    image = _image_of_caption(pairs)
    each = torch.bincount(image, minlength=len(S))
    if not bool((each == each[0]).all()):
        raise InputError(
            "the published counting needs the same number of captions for every image of a batch; "
            f"here they have {int(each.min())} to {int(each.max())}."
        )
    return S[:, torch.argsort(image, stable=True)], int(each[0])


_TRIPLET = ("C_q", "C_B", "C_0")
_COUNTED: dict[type[Objective], PaperCounts] = {
    Triplet: PaperCounts("Triplet", _TRIPLET, _triplet, _released_triplet),
    TripletSH: PaperCounts("TripletSH", _TRIPLET, _triplet_sh, _released_triplet_sh),
    NTXent: PaperCounts(
        "NT-Xent", ("C_qv_neg", "W_qv_neg", "W_qv_pos"), _nt_xent, _released_nt_xent
    ),
    SmoothAP: PaperCounts("SmoothAP", ("C_q", "C_0"), _smooth_ap, _released_smooth_ap),
}

_TABLES = (
    "bleeker_table2_cocos_triplet.csv",
    "bleeker_table3_cocos_ntxent.csv",
    "bleeker_table4_cocos_smoothap.csv",
)


@dataclass(frozen=True)
class PublishedRow:
    """One row of the paper's tables 2 to 4."""

    number: str  # 1.1, ...
    dataset: str
    method: str
    loss: str
    figures: dict[str, dict[str, tuple[float, float]]]  # direction -> figure -> (mean, std)


def published_rows(loss: str) -> list[PublishedRow]:
    """The published rows of one loss.

    Examples:
        >>> row = simgrad.analysis.published_rows("Triplet")[0]
        >>> row.number, row.dataset, row.method
        ('1.1', 'f30k', 'VSE++')
    """
    from importlib.resources import files

    rows: dict[str, PublishedRow] = {}
    folder = files("simgrad") / "studies" / "published"
    for name in _TABLES:
        for line in csv.DictReader((folder / name).read_text(encoding="utf-8").splitlines()):
            if line["loss"] != loss:
                continue
            number = line["exp_id"]
            new = PublishedRow(
                number, line["dataset"], line["method"], loss, {"i2t": {}, "t2i": {}}
            )
            row = rows.setdefault(number, new)
            row.figures[line["direction"]][line["metric"]] = (
                float(line["mean"]),
                float(line["std"]),
            )
    return list(rows.values())
