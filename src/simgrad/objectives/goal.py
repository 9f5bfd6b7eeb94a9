"""GOAL: gradients written down directly, as triplet weight x pair weight.

Xuan & Chen: Dissecting deep metric learning losses for image-text retrieval, WACV 2023.
For query x, positive y and the hardest negative y' of the batch, with s+ = x.y (the paper's S_x,y)
and s- = x.y' (its S_x,y'):

    weight on s+:  -T(s+, s-) * P+        weight on s-:  +T(s+, s-) * P-

T says how much a triplet matters (eq. 5-8), P how hard to pull the positive and to push the
negative (eq. 9-13). Whether the product is the gradient of anything does not matter for training.
Known losses are cells of the table: (con, con) triplet, (nca, con) NT-Xent over the hardest
negative, (cir, lin) Circle, (con, sig) binomial deviance, (con, sig-ms) multi-similarity.

The "ms" pair weights also look at R, the similarities of other pairs of the batch, by way of

    m+ = mean over the set P of   s+ - R   (lin-ms)   or   exp(alpha (s+ - R))   (sig-ms)
    m- = mean over the set N of   s- - R   (lin-ms)   or   exp(-beta (s- - R))   (sig-ms)

    P = the batch's other positive pairs below s- + epsilon
    N = the query's other negatives above the batch's smallest positive - epsilon

An empty set is neutral: with m = 1 sig-ms is sig, with m = 0 lin-ms is lin. `released=True` follows
the authors' public code: con has no margin, cir is shifted by 0.5, sets include their bounds, and
an empty set has m = 0.

The scalar returned is for logging: a true potential in the cells (con, con), (nca, con) and
(cir, lin), and the sum of s- - s+ in the other twelve, which have none.

First come the paper's formulas, one triplet to an element; below them, how a batch gets there.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad, softplus

from simgrad.core.devices import widened
from simgrad.core.spec import Range, setting
from simgrad.objectives.base import Factors, objectives
from simgrad.objectives.engine.tensors import rows_at
from simgrad.objectives.family import Family, Vectors, Verdict
from simgrad.objectives.pairs import Pairs

TRIPLET_WEIGHTS = ("con", "nca", "cir")
PAIR_WEIGHTS = ("con", "lin", "sig", "lin-ms", "sig-ms")
TripletWeight = Callable[[Tensor, Tensor], Tensor]
PairWeight = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]


# For the documents: what is weighed, then T and P by their names.
_FORMULA = r"""
\frac{\partial L}{\partial s^{+}} = -T\,P^{+},\quad \frac{\partial L}{\partial s^{-}} = T\,P^{-}
T_{\text{con}} = 1\ \text{where}\ \text{margin} + s^{-} > s^{+},\ \text{else}\ 0
T_{\text{nca}} = \sigma(\tau (s^{-} - s^{+}))
T_{\text{cir}} = \sigma(\tau ((s^{-})^2 - s^{+}(2 - s^{+})))
P_{\text{con}}^{+} = 1,\quad P_{\text{con}}^{-} = 1
P_{\text{lin}}^{+} = 1 - s^{+},\quad P_{\text{lin}}^{-} = s^{-}
P_{\text{sig}}^{+} = \sigma(-\alpha (s^{+} - \lambda)),\quad P_{\text{sig}}^{-} = \sigma(\beta (s^{-} - \lambda))
P_{\text{lin-ms}}^{+} = (1 - m^{+})(1 - s^{+}),\quad P_{\text{lin-ms}}^{-} = (1 + m^{-})\,s^{-}
P_{\text{sig-ms}}^{+} = \frac{1}{m^{+} + e^{\alpha (s^{+} - \lambda)}},\quad P_{\text{sig-ms}}^{-} = \frac{1}{m^{-} + e^{-\beta (s^{-} - \lambda)}}
"""  # noqa: E501


class Relative(NamedTuple):
    """How a triplet stands among the batch's others (section 3.3)."""

    positive: "Tensor | float"  # m+
    negative: "Tensor | float"  # m-


@objectives.declare(
    "goal",
    paper="Xuan & Chen, WACV 2023",
    description="weighs the hardest triplet by two factors of your choice, T and P",
    formula=_FORMULA,
)
@dataclass(eq=False, repr=False)
class Goal(Family):
    """One cell of the table of triplet weights x pair weights.

    Examples:
        >>> S = torch.tensor([[0.9, 0.8, 0.1], [0.3, 0.7, 0.2], [0.1, 0.6, 0.5]])
        >>> simgrad.objectives.Goal(triplet="con", pair="sig").weigh(S).i2t[2]
        tensor([ 0.0000,  0.7311, -0.5000])
        >>> def mine(own, other):  # a triplet weight of your own
        ...     return (other - own).sigmoid()
        ...
        >>> simgrad.objectives.Goal(triplet=mine, pair="lin").weigh(S).i2t[2]
        tensor([ 0.0000,  0.3150, -0.2625])
    """

    sparse = graded = True

    triplet: "str | TripletWeight" = setting(
        "cir", "triplet weight; or a function (s+, s-) -> T", choices=TRIPLET_WEIGHTS, shown=True
    )
    pair: "str | PairWeight" = setting(
        "sig-ms",
        "pair weights; or a function (s+, s-) -> (P+, P-)",
        choices=PAIR_WEIGHTS,
        shown=True,
    )
    margin: float = setting(
        0.2, "con: triplets beyond this margin get no weight", search=Range(0.05, 0.5), at_least=0
    )
    tau: float = setting(
        1.0, "nca, cir: steepness of the triplet weight", search=Range(0.5, 20), above=0
    )
    alpha: float = setting(2.0, "sig, sig-ms: steepness of the positive weight", at_least=0)
    beta: float = setting(10.0, "sig, sig-ms: steepness of the negative weight", at_least=0)
    lambda_: float = setting(
        0.5,
        "sig, sig-ms: similarity at the middle of the sigmoid",
        search=Range(0.2, 0.8, log=False),
    )
    epsilon: float = setting(0.1, "ms: margin of the relative sets around the rivals", at_least=0)
    released: bool = setting(
        False, "follow the authors' public code where it differs from the paper"
    )

    @classmethod
    def known_cases(cls) -> dict[str, str]:
        """Table 1 of the paper: the cells that are known losses, each of its hardest negative."""
        named = {
            ("con", "con"): "triplet loss (triplet-sh)",
            ("nca", "con"): "NT-Xent with one negative, the hardest",
            ("cir", "lin"): "circle loss",
            ("con", "sig"): "binomial deviance",
            ("con", "sig-ms"): "multi-similarity loss",
        }
        return {
            f"goal(triplet={t}, pair={p})": named.get((t, p), "new")
            for p in PAIR_WEIGHTS
            for t in TRIPLET_WEIGHTS
        }

    def searched(self) -> dict[str, Range]:
        """Those that its cell reads."""
        read = {
            "margin": self.triplet == "con" and not self.released,
            "tau": self.triplet in ("nca", "cir"),
            "lambda": self.pair in ("sig", "sig-ms"),
        }
        return {name: where for name, where in super().searched().items() if read.get(name, True)}

    def triplet_weight(self, s_pos: Tensor, s_neg: Tensor) -> Tensor:
        """T: how much a triplet matters."""
        if callable(self.triplet):
            return self.triplet(s_pos, s_neg)
        if self.triplet == "con":  # eq. 5, a step at the margin; the public code has none
            if self.released:
                return torch.ones_like(s_pos)
            return (self.margin + s_neg - s_pos > 0).to(s_pos.dtype)
        if self.triplet == "nca":  # eq. 7
            return torch.sigmoid(self.tau * (s_neg - s_pos))
        return torch.sigmoid(-self.tau * self.circle(s_pos, s_neg))  # eq. 8

    def circle(self, s_pos: Tensor, s_neg: Tensor) -> Tensor:
        """s+ (2 - s+) - s-²: the argument of the circle weight. Its level lines are circles about
        (1, 0)."""
        argument = torch.addcmul(s_pos * (2 - s_pos), s_neg, s_neg, value=-1)
        return argument - 0.5 if self.released else argument

    def pair_weights(
        self, s_pos: Tensor, s_neg: Tensor, relative: Relative | None = None
    ) -> tuple[Tensor, Tensor]:
        """P+ and P-: how hard to pull the positive and to push the negative."""
        if callable(self.pair):
            return self.pair(s_pos, s_neg)
        if self.pair == "con":  # eq. 9
            return torch.ones_like(s_pos), torch.ones_like(s_neg)
        if self.pair == "lin":  # eq. 10
            return 1 - s_pos, s_neg
        if self.pair == "sig":  # eq. 11
            pull = torch.sigmoid(-self.alpha * (s_pos - self.lambda_))
            return pull, torch.sigmoid(self.beta * (s_neg - self.lambda_))
        relative = relative or Relative(self._empty, self._empty)
        if self.pair == "lin-ms":  # eq. 13
            return (1 - relative.positive) * (1 - s_pos), (1 + relative.negative) * s_neg
        # eq. 12
        pull = torch.reciprocal(relative.positive + torch.exp(self.alpha * (s_pos - self.lambda_)))
        push = torch.reciprocal(relative.negative + torch.exp(-self.beta * (s_neg - self.lambda_)))
        return pull, push

    def factors(
        self, s_pos: Tensor, s_neg: Tensor, relative: float | None = None
    ) -> Factors | None:
        among = None if relative is None else Relative(relative, relative)
        pair = self.pair_weights(s_pos, s_neg, among)
        names = [kind if isinstance(kind, str) else "" for kind in (self.triplet, self.pair)]
        return Factors(self.triplet_weight(s_pos, s_neg), *pair, *names)

    def value(self, s_pos: Tensor, s_neg: Tensor) -> Tensor:
        """The potential where there is one; otherwise s- - s+, which falls with progress.

        softplus(-tau u) / tau falls by T as u grows, where u is s+ - s- or the circle's argument.
        The latter has the slopes 2 (1 - s+) and -2 s-, twice the pair weights lin: hence the half.
        """
        if self.has_potential and not self.released:
            if self.triplet == "con":
                return (self.margin + s_neg - s_pos).clamp(min=0)
            if self.triplet == "nca":
                return softplus(self.tau * (s_neg - s_pos)) / self.tau
            return softplus(-self.tau * self.circle(s_pos, s_neg)) / (2 * self.tau)
        return s_neg - s_pos

    @property
    def has_potential(self) -> bool:
        """Whether the weights are the gradient of the value returned."""
        if self.released:
            return (self.triplet, self.pair) == ("con", "con")
        return (self.triplet, self.pair) in {("con", "con"), ("nca", "con"), ("cir", "lin")}

    # -- from a batch to its triplets

    @property
    def is_relative(self) -> bool:
        """Whether the pair weights look at the batch's other pairs (section 3.3)."""
        return self.pair in ("lin-ms", "sig-ms")

    @property
    def totals(self) -> tuple[str, ...]:  # type: ignore[override]  # of the set N: its size, its sum
        of_set = {"lin-ms": ("count", "sum"), "sig-ms": ("count", "logsumexp")}
        return ("max", *of_set.get(str(self.pair), ()))

    def known(self, pairs: Pairs) -> Vectors:
        """The bound of the set N."""
        if not self.is_relative:
            return ()
        return ((pairs.of_batch.min() - self.epsilon).expand(pairs.queries),)

    def terms(self, s: Tensor, *bound: Tensor) -> Vectors:
        """The hardest negative; and of N, the hardest included, how many, and the sum of R or the
        log of the sum of exp(beta R)."""
        if not self.is_relative:
            return (s,)
        inside = s >= bound[0] if self.released else s > bound[0]
        if self.pair == "lin-ms":
            return s, inside, torch.where(inside, s, 0.0)
        return s, inside, torch.where(inside, self.beta * s, -torch.inf)

    def judge(self, totals: Vectors, pairs: Pairs) -> Verdict:
        """The formulas, applied to the triplets of a batch."""
        s_pos, s_neg = pairs.similarity, pairs.per_pair(totals[0])  # one triplet per pair
        T = self.triplet_weight(s_pos, s_neg)
        relative = None
        if self.is_relative:
            m_pos = self._among_positives(pairs, s_neg)
            m_neg = pairs.per_pair(self._among_negatives(totals, pairs))
            relative = Relative(m_pos, m_neg)
        P_pos, P_neg = self.pair_weights(s_pos, s_neg, relative)
        T = pairs.graded(T)
        value = pairs.per_query(pairs.graded(self.value(s_pos, s_neg)))
        return Verdict(value, -T * P_pos, on_hardest=T * P_neg)

    def _among_positives(self, pairs: Pairs, s_neg: Tensor) -> Tensor:
        """m+. What is below a bound is a prefix of the sorted positives, so that its sum is looked
        up: no pairs x pairs matrix. The pair itself is taken out."""
        ordered, own, bound = pairs.sorted_of_batch, pairs.similarity, s_neg + self.epsilon
        # The public code includes the bound itself.
        size = torch.searchsorted(ordered, bound, right=self.released)
        inside = own <= bound if self.released else own < bound
        count = torch.add(size, inside, alpha=-1)  # less 1 where it is inside
        # Sums over thousands, then differences: in float64 where there is one.
        if self.pair == "lin-ms":
            others = rows_at(_prefix_sums(widened(ordered)), size).sub_(own * inside)
            mean = own - others.div_(count.clamp(min=1))
        else:
            # exp(alpha (s+ - R)) as a factor of s+ and one of R, so that R can be summed up before
            # s+ is known; both relative to the smallest, so that neither overflows. The pair's own
            # is 1.
            sums = _prefix_sums(widened(ordered[0] - ordered).mul_(self.alpha).exp_())
            decay = rows_at(sums, size)
            growth = widened(own - ordered[0]).mul_(self.alpha).exp_()
            others = growth.mul_(decay).add_(inside, alpha=-1).clamp(min=0)
            mean = others.div_(count.clamp(min=1))
        return mean.masked_fill_(count <= 0, self._empty).to(s_neg.dtype)

    def _among_negatives(self, totals: Vectors, pairs: Pairs) -> Tensor:
        """m-, for each query. The hardest itself is in the totals, and taken out here."""
        hardest, count, total = totals
        bound = pairs.of_batch.min() - self.epsilon
        inside = hardest >= bound if self.released else hardest > bound
        if self.pair == "lin-ms":
            total = count * hardest - total  # sum of s- - R, where the hardest's own is 0
        else:
            # Sum of exp(-beta (s- - R)) less the hardest's own, which is 1. Where it is rounded
            # below 0, a steep beta would make a pull of the push.
            total = torch.sub(total, hardest, alpha=self.beta).expm1_().clamp(min=0)
        others = torch.add(count, inside, alpha=-1)
        return total.div_(others.clamp(min=1)).masked_fill_(others <= 0, self._empty)

    @property
    def _empty(self) -> float:
        """m of an empty set: neutral, 1 for sig-ms; the public code leaves 0."""
        return 1.0 if self.pair == "sig-ms" and not self.released else 0.0


def _prefix_sums(values: Tensor) -> Tensor:
    """Sums of the first 0, 1, ..., all values."""
    return pad(values.cumsum(0), (1, 0))


for _name, _triplet, _pair, _paper, _line in (
    (
        "circle",
        "cir",
        "lin",
        "Sun et al., CVPR 2020",
        "weighs the hardest triplet by how far its pairs are from 1 and 0: goal (cir, lin)",
    ),
    (
        "binomial-deviance",
        "con",
        "sig",
        "Yi et al., ICPR 2014",
        "weighs each pair of the hardest triplet by a sigmoid of its similarity: goal (con, sig)",
    ),
    (
        "multi-similarity",
        "con",
        "sig-ms",
        "Wang et al., CVPR 2019",
        "GOAL's cell (con, sig-ms), of the hardest negative; the paper's is multi-similarity-loss",
    ),
    (
        "nca",
        "nca",
        "con",
        "Goldberger et al., NIPS 2004",
        "GOAL's cell (nca, con), of the hardest negative; the paper's is nca-loss",
    ),
):
    objectives.alias(_name, "goal", paper=_paper, description=_line, triplet=_triplet, pair=_pair)
