"""Objectives: rules from similarities to weights. One family per file; `base.py` is the frame."""

from simgrad.objectives.base import Objective, Weights, objectives
from simgrad.objectives.batch import Batch, Sparse
from simgrad.objectives.goal import Goal
from simgrad.objectives.ntxent import NTXent
from simgrad.objectives.offline import AdapOffQuin, OffQuin, OffTri
from simgrad.objectives.outside import Offline
from simgrad.objectives.own import declare
from simgrad.objectives.positives import Positives
from simgrad.objectives.siglip import SigLIP
from simgrad.objectives.smoothap import SmoothAP
from simgrad.objectives.triplet import Triplet, TripletSH

__all__ = [
    "AdapOffQuin",
    "Batch",
    "Goal",
    "NTXent",
    "Objective",
    "OffQuin",
    "OffTri",
    "Offline",
    "Positives",
    "SigLIP",
    "SmoothAP",
    "Sparse",
    "Triplet",
    "TripletSH",
    "Weights",
    "declare",
    "objective",
    "objectives",
]


def objective(spec: "str | Objective") -> Objective:
    """The objective that a spec names, e.g. `goal(triplet=cir, pair=sig-ms)`."""
    return spec if isinstance(spec, Objective) else objectives.parse(spec)
