"""simgrad: train, compare and explain objectives for image-caption retrieval.

The public surface is small and loads on first use, so that `import simgrad` is quick.
"""

import importlib
from typing import Any

__version__ = "0.1.0"

_PUBLIC = {
    "objective": "simgrad.objectives",
    "objectives": "simgrad.objectives",
    "evaluate": "simgrad.evaluation",
    "evaluate_similarities": "simgrad.evaluation",
    "cocos": "simgrad.analysis",
    "analysis": "simgrad.analysis",
    "mine": "simgrad.training.mining",
    "data": "simgrad.data",
    "models": "simgrad.models",
    "training": "simgrad.training",
    "evaluation": "simgrad.evaluation",
    "integrations": "simgrad.integrations",
}

__all__ = ["__version__", *_PUBLIC]


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'simgrad' has no attribute '{name}'")
    module = importlib.import_module(_PUBLIC[name])
    return module if _PUBLIC[name] == f"simgrad.{name}" else getattr(module, name)
