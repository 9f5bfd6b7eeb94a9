"""Analysis: see what an objective does. Names load on first use; drawing is imported when used."""

import importlib
from typing import Any

_PUBLIC = {
    "Cocos": "counting",
    "CocosAccumulator": "counting",
    "Counts": "counting",
    "attention": "counting",
    "cocos": "counting",
    "published_rows": "published",
    "PairCurves": "diagrams",
    "TripletField": "diagrams",
    "pair_curves": "diagrams",
    "triplet_field": "diagrams",
    "pair_weight_diagram": "pair_drawing",
    "save_figure": "drawing",
    "triplet_diagram": "drawing",
    "Integrability": "closedness",
    "goal_cells": "closedness",
    "integrability": "closedness",
    "potential": "closedness",
    "verdicts": "closedness",
    "Comparison": "comparison",
    "compare": "comparison",
    "Check": "gradient_check",
    "check": "gradient_check",
    "RunCounts": "runs",
    "count_run": "runs",
}

__all__ = sorted(_PUBLIC)


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'simgrad.analysis' has no attribute '{name}'")
    return getattr(importlib.import_module(f"simgrad.analysis.{_PUBLIC[name]}"), name)
