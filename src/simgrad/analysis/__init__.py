"""Analysis: what an objective does to a batch, from arrays. Drawing loads matplotlib when used.

Examples:
    >>> S = torch.tensor([[0.9, 0.8, 0.1], [0.3, 0.7, 0.2], [0.1, 0.6, 0.5]])
    >>> both = simgrad.analysis.compare("triplet-sh", "nt-xent", S)
    >>> 0 < both.overlap["i2t"] < 1  # share of the gradient that both put on the same pairs
    True
"""

from simgrad.core.lazy import lazy

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
        "Comparison": "simgrad.analysis.comparison",
        "compare": "simgrad.analysis.comparison",
        "Check": "simgrad.analysis.gradient_check",
        "check": "simgrad.analysis.gradient_check",
    },
)
