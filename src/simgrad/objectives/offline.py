"""AOQ: online hardest negatives, plus a few mined from the whole training set.

Chen, Deng, Luo: Adaptive offline quintuplet loss for image-text matching, ECCV 2020.
For pair (I, T): s = S(I, T), `on` the hardest negative of the batch, T̂ and Î a caption and an image
drawn from the mined lists, Ĩ the image of T̂ and T̃ a caption of Î. Image query (the caption's is its
mirror image, with S(Î, T) and S(Ĩ, T̃)):

    w [online - s + on]+  +  [offline - s + S(I, T̂)]+  +  [offline - s + S(Î, T̂)]+
    w = beta - (S(I, T̂) - on) / alpha

off-tri has w = 1 and the first two terms, off-quin w = 1 and all three, adap-off-quin all of it.
The gradient flows through w: where the online negative is close, the offline one is pulled back.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from simgrad.core.spec import Range, setting
from simgrad.objectives.base import objectives
from simgrad.objectives.family import Family, Vectors, Verdict
from simgrad.objectives.pairs import Pairs

_PAPER = "Chen, Deng & Luo, ECCV 2020"
# The terms: the hardest of the batch, a mined negative, a mined pair that shares no anchor.
_ONLINE = r"\max(0,\ \text{online} + \max_{n} s_n - s^{+})"
_MINED = r"\max(0,\ \text{offline} + \hat{s} - s^{+})"
_UNANCHORED = r"\max(0,\ \text{offline} + \tilde{s} - s^{+})"


@dataclass(eq=False, repr=False)
class _Offline(Family):
    """What the three have in common."""

    totals = ("max",)
    sparse = True

    drawn_for_each = 2  # a mined negative, and a partner for it that shares no anchor

    online: float = setting(
        0.2,
        "margin against the hardest negative of the batch",
        search=Range(0.05, 0.5),
        at_least=0,
    )
    offline: float = setting(0.0, "margin against mined negatives", at_least=0)

    def online_weight(self, mined: Tensor, hardest: Tensor) -> tuple[Tensor, float]:
        """w, and its slope in `hardest` (the slope in `mined` is the opposite)."""
        return torch.ones_like(mined), 0.0

    def terms(self, s: Tensor) -> Vectors:  # type: ignore[override]
        return (s,)

    def judge(self, totals: Vectors, pairs: Pairs) -> Verdict:
        assert pairs.outside is not None  # the frame has checked
        mined, unanchored = pairs.outside.unbind(1)
        own, hardest = pairs.similarity, pairs.per_pair(totals[0])
        lone = hardest == -torch.inf  # no negative in the batch: only the mined ones count
        hardest = hardest.masked_fill(lone, 0)

        hinge = torch.relu(self.online - own + hardest).masked_fill(lone, 0)
        weight, slope = self.online_weight(mined, hardest)
        triplet = torch.relu(self.offline - own + mined)
        quintuplet = torch.relu(self.offline - own + unanchored) * float(self.drawn_for_each > 1)

        on_online = weight * (hinge > 0)
        on_triplet, on_unanchored = torch.sign(triplet), torch.sign(quintuplet)
        # The hinge also reaches both negatives through w.
        on_hardest = on_online + slope * hinge
        on_mined = on_triplet - slope * hinge
        on_own = -(on_online + on_triplet + on_unanchored)
        return Verdict(
            pairs.per_query(weight * hinge + triplet + quintuplet),
            on_own,
            on_hardest=on_hardest,
            outside=torch.stack([on_mined, on_unanchored], 1),
        )


@objectives.declare(
    "off-tri",
    paper=_PAPER,
    description="adds one negative mined from the training set to the hardest of the batch",
    formula=_ONLINE + r" + " + _MINED,
)
@dataclass(eq=False, repr=False)
class OffTri(_Offline):
    """Online hardest negative plus a mined one.

    Examples:
        >>> S = torch.tensor([[0.9, 0.8, 0.1], [0.3, 0.7, 0.2], [0.1, 0.6, 0.5]])
        >>> mined = torch.tensor([0.7, 0.2, 0.3]), torch.tensor([0.6, 0.1, 0.4])  # caption, image
        >>> pairs = torch.tensor([0.2, 0.2, 0.6]), torch.tensor([0.1, 0.1, 0.1])
        >>> offline = simgrad.objectives.Offline(*mined, *pairs)
        >>> simgrad.objectives.OffTri(offline=0.3).weigh(S, offline=offline).offline.caption
        tensor([1., 0., 1.])
    """

    drawn_for_each = 1


@objectives.declare(
    "off-quin",
    paper=_PAPER,
    description="off-tri, and a mined image beside a mined caption",
    formula=_ONLINE + r" + " + _MINED + r" + " + _UNANCHORED,
)
@dataclass(eq=False, repr=False)
class OffQuin(_Offline):
    """Online hardest negative, a mined one, and a mined pair.

    Examples:
        >>> S = torch.tensor([[0.9, 0.8, 0.1], [0.3, 0.7, 0.2], [0.1, 0.6, 0.5]])
        >>> mined = torch.tensor([0.7, 0.2, 0.3]), torch.tensor([0.6, 0.1, 0.4])  # caption, image
        >>> pairs = torch.tensor([0.2, 0.2, 0.6]), torch.tensor([0.1, 0.1, 0.1])
        >>> offline = simgrad.objectives.Offline(*mined, *pairs)
        >>> simgrad.objectives.OffQuin(offline=0.3).weigh(S, offline=offline).offline.pair
        tensor([0., 0., 1.])
    """


@objectives.declare(
    "adap-off-quin",
    paper=_PAPER,
    description="off-quin that leans on the batch where its negative is harder than the mined one",
    formula=r"w\," + _ONLINE + r" + " + _MINED + r" + " + _UNANCHORED + r",\quad "
    r"w = \beta - \frac{\hat{s} - \max_{n} s_n}{\alpha}",
)
@dataclass(eq=False, repr=False)
class AdapOffQuin(_Offline):
    """Off-quin with more weight on the batch where its negative is harder than the mined one.

    Examples:
        >>> S = torch.tensor([[0.9, 0.8, 0.1], [0.3, 0.7, 0.2], [0.1, 0.6, 0.5]])
        >>> mined = torch.tensor([0.7, 0.2, 0.3]), torch.tensor([0.6, 0.1, 0.4])  # caption, image
        >>> pairs = torch.tensor([0.2, 0.2, 0.6]), torch.tensor([0.1, 0.1, 0.1])
        >>> offline = simgrad.objectives.Offline(*mined, *pairs)
        >>> simgrad.objectives.AdapOffQuin().weigh(S, offline=offline).i2t[2]  # off-quin: 0, 1, -2
        tensor([ 0.0000,  3.5000, -3.5000])
    """

    alpha: float = setting(
        0.3,
        "how fast the online weight falls with the gap mined - online",
        search=Range(0.1, 1),
        above=0,
    )
    beta: float = setting(1.5, "the online weight at a gap of 0", at_least=0)

    def online_weight(self, mined: Tensor, hardest: Tensor) -> tuple[Tensor, float]:
        return self.beta - (mined - hardest) / self.alpha, 1 / self.alpha
