"""Objectives: rules from similarities to weights. One family per file; `base.py` is the frame.

Examples:
    >>> objective = simgrad.objectives.Goal(triplet="con", pair="sig")
    >>> objective
    goal(triplet=con, pair=sig)
    >>> [entry.name for entry in simgrad.objectives.objectives if entry.paper.startswith("Zhai")]
    ['siglip']
"""

from simgrad.core.spec import Range, setting
from simgrad.objectives.across_processes import distributed
from simgrad.objectives.base import Objective, Weights, objectives
from simgrad.objectives.debiased import DebiasedNTXent
from simgrad.objectives.declaring import declare
from simgrad.objectives.family import Family, Verdict
from simgrad.objectives.focused import FocusedDeviance
from simgrad.objectives.goal import Goal
from simgrad.objectives.ntxent import NTXent
from simgrad.objectives.offline import AdapOffQuin, OffQuin, OffTri
from simgrad.objectives.offline_similarities import Offline
from simgrad.objectives.pairs import Pairs
from simgrad.objectives.positives import Positives
from simgrad.objectives.siglip import SigLIP
from simgrad.objectives.smoothap import SmoothAP
from simgrad.objectives.triplet import Triplet, TripletSH

__all__ = [
    "AdapOffQuin",
    "DebiasedNTXent",
    "Family",
    "FocusedDeviance",
    "Goal",
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
    "Verdict",
    "Weights",
    "declare",
    "distributed",
    "objective",
    "objectives",
    "setting",
]


def objective(spec: "str | Objective") -> Objective:
    """The objective that a spec names, e.g. `goal(triplet=cir, pair=sig-ms)`.

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
    return spec if isinstance(spec, Objective) else objectives.parse(spec)
