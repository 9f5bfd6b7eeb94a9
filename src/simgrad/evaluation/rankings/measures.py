"""Measures of one ranked list with graded judgments, as trec_eval defines them.

The names are those of ir_measures: nDCG@10, AP, AP@100, RR@10, R@100, P@5, Success@1, and with a
smallest grade that counts, AP(rel=2). MTEB's names (ndcg_at_10) are read as well. Values are in
points: 100 is the best.

- nDCG: the gain of a document is its grade, its discount log2(1 + place); over the best order that
  the judgments allow.
- AP: precision at each relevant document found, over all relevant documents, found or not.
- Documents without a judgment, or with a negative one, have grade 0.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from simgrad.core.errors import InputError
from simgrad.core.text import did_you_mean
from simgrad.evaluation.ranks import Integers

# MTEB's names; a number behind "_at_" is the cut-off.
_MTEB = {"ndcg": "nDCG", "map": "AP", "mrr": "RR", "recall": "R", "precision": "P",
         "hit_rate": "Success"}  # fmt: skip
_SPEC = re.compile(r"([A-Za-z]+)(?:\(rel=([1-9]\d{0,3})\))?(?:@([1-9]\d{0,5}))?")


@dataclass(frozen=True)
class Measure:
    """One number of a ranked list.

    Examples:
        >>> import numpy as np
        >>> measure = simgrad.evaluation.rankings.Measure.parse("P@2")
        >>> measure.of(np.array([1, 0, 2]), np.array([2, 1]))
        50.0
    """

    kind: str
    cutoff: int | None = None
    least: int = 1  # the smallest grade that counts as relevant; nDCG takes grades as they are

    @staticmethod
    def parse(text: str) -> "Measure":
        """nDCG@10, AP(rel=2)@100 or ndcg_at_10."""
        head, at, number = text.partition("_at_")
        spec = f"{_MTEB[head]}@{number}" if at and head in _MTEB else text
        found = _SPEC.fullmatch(spec)
        if found is None or found[1] not in _KINDS:
            near = did_you_mean(text.split("@")[0].split("(")[0], [*_KINDS, *_MTEB])
            hint = f" Did you mean {_MTEB.get(near, near)}?" if near else ""
            raise InputError(
                f"there is no measure '{text:.80}'.{hint} There are: {', '.join(_KINDS)}, each "
                "with a cut-off, as in nDCG@10 or R@100; AP(rel=2) counts grades from 2."
            )
        kind, least = found[1], int(found[2] or 1)
        cutoff = int(found[3]) if found[3] else None
        if cutoff is None and kind in _CUT:
            raise InputError(f"the measure '{text}' needs a cut-off: {kind}@10.")
        if kind == "nDCG" and least > 1:
            raise InputError(f"'{text}': nDCG takes grades as they are; leave out (rel={least}).")
        return Measure(kind, cutoff, least)

    def __str__(self) -> str:
        least = f"(rel={self.least})" if self.least > 1 else ""
        return f"{self.kind}{least}" + (f"@{self.cutoff}" if self.cutoff else "")

    def of(self, grades: Integers, judged: Integers) -> float:
        """In points, of a query: grades of what was ranked, first to last, and all that exist."""
        if self.kind == "nDCG":
            ideal = _gain(-np.sort(-judged)[: self.cutoff])
            return 100 * _gain(grades[: self.cutoff]) / ideal if ideal else 0.0
        total = int((judged >= self.least).sum())
        places = np.flatnonzero(grades[: self.cutoff] >= self.least) + 1
        return 100 * _BINARY[self.kind](places, total, self.cutoff or 0) if total else 0.0


def _gain(grades: Integers) -> float:
    positive = np.maximum(grades, 0)
    return float((positive / np.log2(np.arange(len(positive)) + 2.0)).sum())


def _average_precision(places: Integers, total: int, _: int) -> float:
    return float((np.arange(1, len(places) + 1) / places).sum()) / total


# Of binary relevance: places of what was found, how many there are, the cut-off.
_BINARY: dict[str, Callable[[Integers, int, int], float]] = {
    "AP": _average_precision,
    "RR": lambda places, total, cutoff: 1 / int(places[0]) if len(places) else 0.0,
    "R": lambda places, total, cutoff: len(places) / total,
    "P": lambda places, total, cutoff: len(places) / cutoff,
    "Success": lambda places, total, cutoff: float(len(places) > 0),
}
_KINDS = ("nDCG", *_BINARY)
_CUT = ("R", "P", "Success")
