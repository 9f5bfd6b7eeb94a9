"""simgrad: train, compare and explain objectives for image-caption retrieval.

The public surface is small and loads on first use, so that `import simgrad` is quick.
"""

from functools import partial

from simgrad.core.drawers import register
from simgrad.core.lazy import lazy

__version__ = "0.2.0"

__getattr__, __dir__, __all__ = lazy(
    __name__,
    {
        "objective": "simgrad.objectives",
        "objectives": "simgrad.objectives",
        "distributed": "simgrad.objectives",
        "evaluate": "simgrad.evaluation",
        "evaluate_similarities": "simgrad.evaluation",
        "compare": "simgrad.evaluation",
        "cocos": "simgrad.analysis",
        "analysis": "simgrad.analysis",
        "mine": "simgrad.mining",
        "train": "simgrad.training",
        "Recipe": "simgrad.runs.recipe",
        "Run": "simgrad.runs.run",
        "Study": "simgrad.studies.study",
        "data": "simgrad.data",
        "models": "simgrad.models",
        "training": "simgrad.training",
        "evaluation": "simgrad.evaluation",
        "integrations": "simgrad.integrations",
        "plot": "simgrad.report.notebook",
        "show": "simgrad.serve.notebook",
    },
)

# A run and a study are drawn by rooms above theirs.
for _name in ("plot", "show"):
    register(_name, partial(__getattr__, _name))
