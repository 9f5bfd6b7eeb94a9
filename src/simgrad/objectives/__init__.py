"""Objectives: rules from similarities to weights. One family per file; `base.py` is the frame.

`objective("nt-xent(tau=0.05)")` makes one, `print(simgrad.objectives.objectives)` lists them, and
`help(simgrad.objectives.NTXent)` explains one. Each is called with embeddings (n, d) and (m, d) or,
`.on`, with similarities (n, m); `.within` takes one batch with labels, `.weigh` gives the weights,
`.explain` says in a line what it attends to. `declare` makes one of a function of yours.

Examples:
    >>> objective = simgrad.objectives.Goal(triplet="con", pair="sig")
    >>> objective
    goal(triplet=con, pair=sig)
    >>> [entry.name for entry in simgrad.objectives.objectives if entry.paper.startswith("Zhai")]
    ['siglip']
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, overload

from torch import Tensor, nn

from simgrad.core.errors import InputError
from simgrad.core.spec import Range, setting
from simgrad.objectives.across_processes import Distributed, distributed
from simgrad.objectives.base import Direction, Objective, Values, Weights, objectives
from simgrad.objectives.debiased import DebiasedNTXent
from simgrad.objectives.declaring import declare
from simgrad.objectives.family import Family, Verdict
from simgrad.objectives.focused import FocusedDeviance
from simgrad.objectives.goal import Goal
from simgrad.objectives.multisimilarity import MultiSimilarity
from simgrad.objectives.nca import NCA
from simgrad.objectives.ntxent import NTXent
from simgrad.objectives.offline import AdapOffQuin, OffQuin, OffTri
from simgrad.objectives.pairs import Offline, Pairs
from simgrad.objectives.positives import Positives
from simgrad.objectives.siglip import SigLIP
from simgrad.objectives.smoothap import SmoothAP
from simgrad.objectives.triplet import Triplet, TripletSH

__all__ = [
    "NCA",
    "AdapOffQuin",
    "DebiasedNTXent",
    "EachOf",
    "EachQuery",
    "Family",
    "FocusedDeviance",
    "Goal",
    "MultiSimilarity",
    "NTXent",
    "Objective",
    "OffQuin",
    "OffTri",
    "Offline",
    "Pairs",
    "Positives",
    "Range",
    "SigLIP",
    "SmoothAP",
    "Triplet",
    "TripletSH",
    "Values",
    "Verdict",
    "Weights",
    "declare",
    "distributed",
    "objective",
    "objectives",
    "setting",
]
# What others call our objectives: an unknown name is answered with the spec that was meant. It is
# never taken for ours in silence: others' defaults differ (temperatures, directions, sums).
# docs/losses.md has the classes of other libraries with their arguments.
_ELSEWHERE = {
    "nt-xent(learned=true)": ("clip", "openclip", "align", "lit", "image-text contrastive", "itc"),
    "nt-xent": (
        "infonce", "info-nce", "simclr", "supcon", "supervised-contrastive", "softmax", "n-pair",
        "npairs", "contrastive", "cross-entropy", "moco", "simcse", "dpr", "cpc", "ntxent",
    ),
    "nt-xent(tau=0.05, direction=i2t)": (
        "mnrl", "MultipleNegativesRanking", "MultipleNegativesRankingLoss", "in-batch-negatives",
        "CachedMultipleNegativesRanking",
    ),
    "nt-xent(tau=0.05)": ("MultipleNegativesSymmetricRanking",),
    "triplet-sh": (
        "vse++", "vsepp", "max-violation", "max-of-hinges", "mh", "batch-hard", "hardest-triplet",
        "triplet-hard", "BatchHardTriplet", "semi-hard", "hardest",
    ),
    "triplet": ("vse0", "sum-of-hinges", "sh", "hinge", "TripletMargin", "ranking", "margin"),
    "siglip": ("SigLipLoss", "sigmoid", "sigmoid-contrastive", "bce"),
    "smooth-ap": ("smoothap", "ap"),
    "multi-similarity-loss": ("ms", "multisimilarity-full"),
    "nca-loss": ("NCALoss", "mil-nce", "neighbourhood-components-analysis"),
    "adap-off-quin": ("aoq", "adaptive-offline-quintuplet", "quintuplet"),
    "debiased-nt-xent": ("dcl", "debiased-contrastive", "debiased-infonce"),
}  # fmt: skip
for _spec, _names in _ELSEWHERE.items():
    objectives.known_as(_spec, *_names)
Parameter = float | bool | str | Callable[..., Any] | None


class EachQuery(nn.Module):
    """An objective that returns the value of each query: `Objective.each`, called.

    Examples:
        >>> spread = simgrad.distributed("nt-xent")  # each process has the values of its queries
        >>> each = simgrad.objectives.EachQuery(spread)
        >>> each(torch.randn(4, 8), torch.randn(4, 8)).t2i.shape
        torch.Size([4])
    """

    def __init__(self, objective: "Objective | Distributed") -> None:
        super().__init__()
        self.objective = objective

    def forward(
        self,
        images: Tensor,
        texts: Tensor,
        positives: "Tensor | Positives | None" = None,
        offline: Offline | None = None,
        *,
        ignore: Tensor | None = None,
        weights: Tensor | None = None,
    ) -> Values:
        return self.objective.each(
            images, texts, positives, offline, ignore=ignore, weights=weights
        )

    if TYPE_CHECKING:  # nn.Module says nothing of what it is called with
        __call__ = forward


class EachOf(nn.Module):
    """The value of each query of one direction; called as an objective is.

    Examples:
        >>> each = simgrad.objective("nt-xent", reduction="none", direction="i2t")
        >>> each(torch.randn(4, 8), torch.randn(4, 8)).shape
        torch.Size([4])
    """

    def __init__(self, each: EachQuery, direction: Literal["i2t", "t2i"]) -> None:
        super().__init__()
        self.each, self.direction = each, direction

    def forward(self, images: Tensor, texts: Tensor, *given: Any, **named: Any) -> Tensor:
        found: Tensor = getattr(self.each(images, texts, *given, **named), self.direction)
        return found

    if TYPE_CHECKING:  # nn.Module says nothing of what it is called with
        __call__ = forward


@overload
def objective(
    spec: "str | Objective",
    *,
    reduction: Literal["mean", "sum"] | None = None,
    direction: Direction | None = None,
    **parameters: Parameter,
) -> Objective: ...


@overload
def objective(
    spec: "str | Objective",
    *,
    reduction: Literal["none"],
    direction: Literal["both"] | None = None,
    **parameters: Parameter,
) -> EachQuery: ...


@overload
def objective(
    spec: "str | Objective",
    *,
    reduction: Literal["none"],
    direction: Literal["i2t", "t2i"],
    **parameters: Parameter,
) -> EachOf: ...


def objective(
    spec: "str | Objective",
    *,
    reduction: Literal["mean", "sum", "none"] | None = None,
    direction: Direction | None = None,
    **parameters: Parameter,
) -> "Objective | EachQuery | EachOf":
    """The objective that a spec names, e.g. `goal(triplet=cir, pair=sig-ms)`.

    `parameters`: those of the spec, as keywords: `objective("nt-xent", tau=0.05)`. `direction`:
    "both", or one alone: "i2t" (images ask) or "t2i". `reduction`: "sum" over queries and both
    directions, "mean" (half the sum of the two directions' means; of one direction, its mean), or
    "none", the value of each query by itself (`Values`; of one direction a tensor); if not given,
    as published.

    Examples:
        >>> objective = simgrad.objective("triplet-sh(margin=0.3)")
        >>> S = torch.tensor([[0.9, 0.8, 0.1], [0.3, 0.7, 0.2], [0.1, 0.6, 0.5]])
        >>> objective.weigh(S).i2t  # minus: pulled together; plus: pushed apart
        tensor([[-1.,  1.,  0.],
                [ 0.,  0.,  0.],
                [ 0.,  1., -1.]])
        >>> objective.on(S)  # the loss, both directions
        tensor(1.0000)
    """
    if reduction not in (None, "mean", "sum", "none"):
        raise InputError(f"reduction is mean, sum or none, not {reduction!r:.40}.")
    if direction is not None:
        parameters["direction"] = direction
    if reduction in ("mean", "sum"):
        parameters["reduction"] = reduction
    if isinstance(spec, Objective):
        if parameters:
            raise InputError(
                f"{spec} is made already: give a spec with keywords, or change its attributes."
            )
        made = spec
    else:
        made = objectives.parse(spec, parameters)
    if reduction != "none":
        return made
    each = EachQuery(made)
    return each if direction is None or direction == "both" else EachOf(each, direction)
