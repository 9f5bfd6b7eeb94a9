"""Analysis: what an objective does to a batch, from arrays. Drawing loads matplotlib when used.

Examples:
    >>> S = torch.tensor([[0.9, 0.8, 0.1], [0.3, 0.7, 0.2], [0.1, 0.6, 0.5]])
    >>> both = simgrad.analysis.compare("triplet-sh", "nt-xent", S)
    >>> 0 < both.overlap["i2t"] < 1  # share of the gradient that both put on the same pairs
    True
"""

from typing import TYPE_CHECKING

from simgrad.core.lazy import lazy

# For type checkers and editors, which cannot follow names that are loaded on first use.
if TYPE_CHECKING:
    from simgrad.analysis.closedness import Integrability as Integrability
    from simgrad.analysis.closedness import goal_cells as goal_cells
    from simgrad.analysis.closedness import integrability as integrability
    from simgrad.analysis.closedness import potential as potential
    from simgrad.analysis.closedness import verdicts as verdicts
    from simgrad.analysis.comparison import WeightComparison as WeightComparison
    from simgrad.analysis.comparison import compare as compare
    from simgrad.analysis.counting import Cocos as Cocos
    from simgrad.analysis.counting import CocosAccumulator as CocosAccumulator
    from simgrad.analysis.counting import Counts as Counts
    from simgrad.analysis.counting import attention as attention
    from simgrad.analysis.counting import cocos as cocos
    from simgrad.analysis.diagrams import PairCurves as PairCurves
    from simgrad.analysis.diagrams import TripletField as TripletField
    from simgrad.analysis.diagrams import pair_curves as pair_curves
    from simgrad.analysis.diagrams import triplet_field as triplet_field
    from simgrad.analysis.drawing import save_figure as save_figure
    from simgrad.analysis.drawing import triplet_diagram as triplet_diagram
    from simgrad.analysis.gradient_check import Check as Check
    from simgrad.analysis.gradient_check import check as check
    from simgrad.analysis.pair_drawing import pair_weight_diagram as pair_weight_diagram
    from simgrad.analysis.published import published_rows as published_rows
else:
    __getattr__, __dir__, __all__ = lazy(
        __name__,
        {
            "Cocos": "simgrad.analysis.counting",
            "CocosAccumulator": "simgrad.analysis.counting",
            "Counts": "simgrad.analysis.counting",
            "attention": "simgrad.analysis.counting",
            "cocos": "simgrad.analysis.counting",
            "published_rows": "simgrad.analysis.published",
            "PairCurves": "simgrad.analysis.diagrams",
            "TripletField": "simgrad.analysis.diagrams",
            "pair_curves": "simgrad.analysis.diagrams",
            "triplet_field": "simgrad.analysis.diagrams",
            "pair_weight_diagram": "simgrad.analysis.pair_drawing",
            "save_figure": "simgrad.analysis.drawing",
            "triplet_diagram": "simgrad.analysis.drawing",
            "Integrability": "simgrad.analysis.closedness",
            "goal_cells": "simgrad.analysis.closedness",
            "integrability": "simgrad.analysis.closedness",
            "potential": "simgrad.analysis.closedness",
            "verdicts": "simgrad.analysis.closedness",
            "WeightComparison": "simgrad.analysis.comparison",
            "compare": "simgrad.analysis.comparison",
            "Check": "simgrad.analysis.gradient_check",
            "check": "simgrad.analysis.gradient_check",
        },
    )
