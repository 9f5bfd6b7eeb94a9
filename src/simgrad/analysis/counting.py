"""COCOS: counting what contributes to the gradient (Bleeker & de Rijke, ECIR 2022).

Two kinds of figures, per direction:

- The paper's own counts, where the objective is one of the paper's four (see `published.py`).
- General counts from the weights alone, so they exist for every objective, also a user's own, and
  may be compared between objectives whose weights have different scales:

    contributing      negatives pushed with more than epsilon times the query's largest push
    effective         effective number of negatives: (sum w)² / sum w², 1 = one, n = n equally
    hardest_share     share of a query's push that falls on the negative pushed hardest
    zero_share        share of queries without any gradient
    faint_share       share of queries with less than epsilon of the batch's mean gradient
    false_share       share of all push that falls on false negatives, where the truth is known

The first three are means over the queries that push at all, and nan where none does: 0/0.
Everything is vectorised: no loop over queries, and one transfer from the device.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from simgrad.analysis.published import PaperCounts, paper_counts_of
from simgrad.core.devices import widened
from simgrad.core.tables import TableFile, Tabular
from simgrad.objectives import Objective, Offline, Positives, Weights
from simgrad.objectives import objective as read
from simgrad.objectives.engine.tensors import at_least_float32
from simgrad.objectives.explaining import contributions
from simgrad.objectives.positives import Side

DIRECTIONS = ("i2t", "t2i")
GENERAL = ("contributing", "effective", "hardest_share", "zero_share", "faint_share", "false_share")


@dataclass(frozen=True)
class Counts:
    """What contributes in one direction.

    Examples:
        >>> S = torch.tensor([[0.9, 0.8, 0.1], [0.3, 0.7, 0.2], [0.1, 0.6, 0.5]])
        >>> counts = simgrad.cocos("nt-xent", S).i2t
        >>> round(counts.effective, 2), round(counts.hardest_share, 2)  # about one negative counts
        (1.22, 0.91)
    """

    queries: int
    candidates: int
    contributing: float
    effective: float
    hardest_share: float
    zero_share: float
    faint_share: float
    false_share: float | None  # None: the truth is not known
    paper: dict[str, float]  # the paper's counts, {} for an objective it does not treat

    def figures(self) -> dict[str, float]:
        """All figures by name, the paper's first."""
        general = {name: getattr(self, name) for name in GENERAL}
        return {**self.paper, **{k: v for k, v in general.items() if v is not None}}


# What a table calls the general counts.
HEADINGS = ("contributing", "effective", "on hardest", "no gradient", "faint", "on false neg.")
Summary = Mapping[str, Mapping[str, tuple[float, float]]]


def general_cells(summary: Summary, direction: str) -> list[str]:
    """The general counts of one direction, in words: their means."""
    cells = []
    for figure in GENERAL:
        mean, _ = summary.get(direction, {}).get(figure, (math.nan, math.nan))
        share = figure.endswith("_share")
        cells.append("–" if math.isnan(mean) else f"{100 * mean:.1f}%" if share else f"{mean:.2f}")
    return cells


def general_table(summary: Summary, title: str) -> TableFile:
    """The general counts of both directions."""
    rows = tuple((direction, *general_cells(summary, direction)) for direction in DIRECTIONS)
    return TableFile(("negatives per query", *HEADINGS), rows, title)


@dataclass(frozen=True, repr=False)
class Cocos(Tabular):
    """What contributes to the gradient of a batch, by direction.

    Examples:
        >>> counts = simgrad.cocos("triplet-sh", torch.tensor([[0.9, 0.8], [0.1, 0.7]]))
        >>> counts.i2t.zero_share
        0.5
    """

    objective: str
    epsilon: float
    released: bool  # counted as the published tables were, artefacts included
    i2t: Counts
    t2i: Counts

    def as_table(self) -> TableFile:
        summary = {
            d: {name: (value, 0.0) for name, value in getattr(self, d).figures().items()}
            for d in DIRECTIONS
        }
        return general_table(summary, f"{self.objective}, epsilon {self.epsilon:g}")

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "objective": self.objective,
            "epsilon": self.epsilon,
            "released": self.released,
            **{d: _sizes(getattr(self, d)) | getattr(self, d).figures() for d in DIRECTIONS},
        }


def _sizes(counts: Counts) -> dict[str, Any]:
    return {"queries": counts.queries, "candidates": counts.candidates}


@torch.no_grad()
def cocos(
    objective: "str | Objective",
    similarities: Tensor,
    positives: "Tensor | Positives | None" = None,
    epsilon: float = 0.01,
    released: bool = False,
    *,
    offline: Offline | None = None,
    truth: Tensor | None = None,
    known: Tensor | None = None,
) -> Cocos:
    """Count what contributes to the gradient of one batch, (images, captions).

    `released` counts as the published tables were counted, indexing artefacts included.
    `offline`: for the objectives that weigh mined negatives; their in-batch part is counted.
    `truth` (images, captions) marks pairs that belong together whatever `positives` says; where
    only some pairs have been judged, `known` marks those.

    Examples:
        >>> S = torch.tensor([[0.9, 0.8, 0.1], [0.3, 0.7, 0.2], [0.1, 0.6, 0.5]])
        >>> counts = simgrad.cocos("triplet-sh", S)
        >>> counts.i2t.paper  # per query with any, in the batch, queries with none
        {'C_q': 1.0, 'C_B': 2.0, 'C_0': 1.0}
    """

    rule = read(objective)
    weights = rule.weigh(similarities, positives, offline)
    S = at_least_float32(similarities.detach())
    pairs = Positives.read(positives, S.shape[0], S.shape[1], S.device)
    family = paper_counts_of(rule)
    paper = _paper(family, rule, S, pairs, epsilon, released)
    per_direction = {}
    for direction, W, side in _sides(weights, pairs):
        turn = direction == "t2i"
        general = _general(W, side, epsilon, _turned(truth, turn, S), _turned(known, turn, S))
        per_direction[direction] = {**general, **paper[direction]}
    values = iter(
        torch.stack([widened(v) for figures in per_direction.values() for v in figures.values()])
        .cpu()
        .tolist()
    )
    read_back = {d: {k: next(values) for k in figures} for d, figures in per_direction.items()}
    sides = (pairs.i2t, pairs.t2i)
    counts = [_counts(read_back[d], s) for d, s in zip(DIRECTIONS, sides, strict=True)]
    return Cocos(str(rule), epsilon, released, *counts)


def _turned(mask: Tensor | None, turn: bool, like: Tensor) -> Tensor | None:
    if mask is None:
        return None
    mask = mask.to(like.device, torch.bool)
    return mask.t() if turn else mask


def _counts(figures: dict[str, float], side: Side) -> Counts:
    paper = {k: v for k, v in figures.items() if k not in GENERAL}
    return Counts(
        queries=side.queries,
        candidates=side.candidates,
        paper=paper,
        **{name: figures.get(name) for name in GENERAL},  # type: ignore[arg-type]  # only false_share may be absent
    )


def _paper(
    family: PaperCounts | None,
    objective: Objective,
    S: Tensor,
    pairs: Positives,
    epsilon: float,
    released: bool,
) -> dict[str, dict[str, Tensor]]:
    if family is None:
        return {direction: {} for direction in DIRECTIONS}
    if released:
        return family.released(objective, S, pairs, epsilon)
    return {
        "i2t": family.count(objective, S, pairs.i2t, epsilon),
        "t2i": family.count(objective, S.t(), pairs.t2i, epsilon),
    }


def _sides(weights: Weights, pairs: Positives) -> Iterable[tuple[str, Tensor, Side]]:
    return (("i2t", weights.i2t, pairs.i2t), ("t2i", weights.t2i.t(), pairs.t2i))


def _general(
    W: Tensor,  # (queries, candidates)
    side: Side,
    epsilon: float,
    truth: Tensor | None = None,
    known: Tensor | None = None,
) -> dict[str, Tensor]:
    """The figures that need nothing but the weights."""
    each = contributions(W, side, epsilon)
    number = each.pushing.sum()  # 0: the means over these queries are 0/0

    def mean(values: Tensor) -> Tensor:
        return torch.where(each.pushing, values, 0.0).sum() / number

    asking, strength = each.asking, each.strength  # what is nobody's is no query
    queries = asking.sum()
    figures = {
        "contributing": mean(each.contributing),
        "effective": mean(each.effective),
        "hardest_share": mean(each.hardest),
        "zero_share": ((strength == 0) & asking).sum() / queries,
        "faint_share": ((strength <= epsilon * strength.sum() / queries) & asking).sum() / queries,
    }
    if truth is not None:
        push = W.masked_fill(side.mask(), 0).abs_()
        judged = push if known is None else push * known
        # 0/0 where nothing is judged: such a batch says nothing.
        figures["false_share"] = (judged * truth).sum() / judged.sum()
    return figures


@torch.no_grad()
def attention(
    weights: Weights, positives: "Tensor | Positives | None" = None, epsilon: float = 0.01
) -> dict[str, dict[str, float]]:
    """What an objective attends to in a batch, cheaply: for a training loop.

    A few tensor operations per direction and one transfer from the device. What is 0/0 is left out.

    Examples:
        >>> S = torch.tensor([[0.9, 0.8, 0.8], [0.1, 0.7, 0.1], [0.2, 0.3, 0.6]])
        >>> found = simgrad.analysis.attention(simgrad.objective("triplet").weigh(S))
        >>> round(found["i2t"]["hardest_share"], 2)
        0.5
    """
    images, captions = weights.i2t.shape
    pairs = Positives.read(positives, images, captions, weights.i2t.device, check=False)
    per_direction = {d: _general(W, side, epsilon) for d, W, side in _sides(weights, pairs)}
    values = iter(
        torch.stack([v for figures in per_direction.values() for v in figures.values()]).tolist()
    )
    return {
        d: {k: value for k in figures if not math.isnan(value := next(values))}
        for d, figures in per_direction.items()
    }


@dataclass(repr=False)
class CocosAccumulator(Tabular):
    """Mean and population standard deviation of every figure over batches, as the paper reports.

    Examples:
        >>> total = simgrad.analysis.CocosAccumulator()
        >>> for _ in range(2):
        ...     total.add(simgrad.cocos("triplet", torch.rand(4, 4)))
        ...
        >>> round(total.summary()["t2i"]["zero_share"][0], 2)
        0.12
    """

    batches: list[Cocos] = field(default_factory=list)

    def add(self, batch: Cocos) -> None:
        self.batches.append(batch)

    def __len__(self) -> int:
        return len(self.batches)

    def as_table(self) -> TableFile:
        return general_table(self.summary(), f"batches: {len(self):,}")

    def summary(self) -> dict[str, dict[str, tuple[float, float]]]:
        """direction -> figure -> (mean, std); batches where a figure is 0/0 are left out of it."""
        result: dict[str, dict[str, tuple[float, float]]] = {}
        for direction in DIRECTIONS:
            seen: dict[str, list[float]] = {}
            for batch in self.batches:
                for name, value in getattr(batch, direction).figures().items():
                    seen.setdefault(name, []).append(value)
            result[direction] = {name: _mean_std(values) for name, values in seen.items()}
        return result

    def rows(self) -> list[dict[str, Any]]:
        """One row per direction and figure, for JSON, CSV or Parquet."""
        return [
            {"direction": direction, "figure": name, "mean": mean, "std": std}
            for direction, figures in self.summary().items()
            for name, (mean, std) in figures.items()
        ]


def _mean_std(values: list[float]) -> tuple[float, float]:
    finite = [v for v in values if not math.isnan(v)]
    if not finite:
        return math.nan, math.nan
    mean = math.fsum(finite) / len(finite)
    return mean, math.sqrt(math.fsum((v - mean) ** 2 for v in finite) / len(finite))
