"""simgrad: train, compare and explain objectives for image-caption retrieval.

simgrad.choose("photos/", minutes=30)                   which loss for these photos, and how sure
simgrad.open("choose/photos").search("a dog on grass")  a model with its data: encode, evaluate ...
simgrad.objective("nt-xent")(images, texts)             a loss for a loop of your own
simgrad.train(objective="nt-xent", data="photos/")      a run; compare(run, run), plot([run, run])
simgrad.Study.create({...}, "studies/mine").train()     many runs; .table(), .to_frame(), .plot()
simgrad.evaluate(images, texts, image_of_caption)       metrics with intervals, of any model

Names are loaded on first use, so that `import simgrad` is quick.
"""

from typing import TYPE_CHECKING

__version__ = "0.3.0"

# For type checkers and editors, which cannot follow names that are loaded on first use.
if TYPE_CHECKING:
    from simgrad import analysis as analysis
    from simgrad import data as data
    from simgrad import evaluation as evaluation
    from simgrad import integrations as integrations
    from simgrad import models as models
    from simgrad import objectives as objectives
    from simgrad import training as training
    from simgrad.analysis import cocos as cocos
    from simgrad.choosing import Answer as Answer
    from simgrad.choosing import choose as choose
    from simgrad.evaluation import evaluate as evaluate
    from simgrad.evaluation import evaluate_rankings as evaluate_rankings
    from simgrad.evaluation import evaluate_similarities as evaluate_similarities
    from simgrad.lab.notebook import show as show
    from simgrad.mining import mine as mine
    from simgrad.objectives import distributed as distributed
    from simgrad.objectives import objective as objective
    from simgrad.report.notebook import plot as plot
    from simgrad.retriever.opening import open as open
    from simgrad.retriever.retriever import Retriever as Retriever
    from simgrad.runs.comparing import compare as compare
    from simgrad.runs.recipe import Recipe as Recipe
    from simgrad.runs.run import Run as Run
    from simgrad.studies.study import Study as Study
    from simgrad.training import train as train
else:  # imported here: editors offer what is above, and nothing else
    from functools import partial

    from simgrad.core.lazy import lazy, register

    __getattr__, __dir__, __all__ = lazy(
        __name__,
        {
            "objective": "simgrad.objectives",
            "objectives": "simgrad.objectives",
            "distributed": "simgrad.objectives",
            "evaluate": "simgrad.evaluation",
            "evaluate_similarities": "simgrad.evaluation",
            "evaluate_rankings": "simgrad.evaluation",
            "compare": "simgrad.runs.comparing",
            "cocos": "simgrad.analysis",
            "choose": "simgrad.choosing",
            "Answer": "simgrad.choosing",
            "analysis": "simgrad.analysis",
            "mine": "simgrad.mining",
            "train": "simgrad.training",
            "open": "simgrad.retriever.opening",
            "Retriever": "simgrad.retriever.retriever",
            "Recipe": "simgrad.runs.recipe",
            "Run": "simgrad.runs.run",
            "Study": "simgrad.studies.study",
            "data": "simgrad.data",
            "models": "simgrad.models",
            "training": "simgrad.training",
            "evaluation": "simgrad.evaluation",
            "integrations": "simgrad.integrations",
            "plot": "simgrad.report.notebook",
            "show": "simgrad.lab.notebook",
        },
    )

    # A run and a study are drawn by rooms above theirs, and a study is trained by files above its.
    for _name in ("plot", "show"):
        register(_name, partial(__getattr__, _name))
    _above = {"build_table": "simgrad.studies.table", "train_study": "simgrad.studies.engine"}
    for _name in _above:
        register(_name, partial(lazy(__name__, _above)[0], _name))
