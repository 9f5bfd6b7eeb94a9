"""Forgetting: what a pretrained model knew of other data, before training and after it.

`also: DATA` is another data set's retrieval; `also: classes(path=FOLDER)` is zero-shot
classification, where a picture is of the class whose name fits it best.
"""

from pathlib import Path
from typing import Any

import torch

from simgrad.core.errors import InputError
from simgrad.core.files import write_json
from simgrad.data.classes import METRIC, Classes, read_classes
from simgrad.data.opening import open_dataset
from simgrad.evaluation.rivals import is_rival
from simgrad.models import RetrievalModel
from simgrad.models.networks.layers import l2norm
from simgrad.retriever.fitting import require_fitting
from simgrad.retriever.pictures import picture_reader
from simgrad.retriever.prepare import begin_model
from simgrad.retriever.retriever import Retriever
from simgrad.runs.data import Tested, what_is_tested
from simgrad.runs.recipe import Recipe
from simgrad.runs.run import ALSO


def other_data(recipe: Recipe, model: RetrievalModel) -> Tested | Classes | None:
    """What of the other data is scored, all of it at once; None where none is named."""
    if recipe.also is None:
        return None
    if recipe.start_from is None and not model.config.ready:
        raise InputError(
            f"also: is about what training forgets, and '{model.config}' knows nothing before it. "
            "Other data are scored after training by `simgrad evaluate RUN --data DATA`."
        )
    classes = read_classes(recipe.also)
    if classes is not None:
        require_vectors(model)
        picture_reader(model, recipe.features, torch.device("cpu"))
        return classes
    dataset = open_dataset(recipe.also)
    asked = what_is_tested(recipe.replace(protocol="all", test_split=None), dataset)
    if asked is None:
        raise InputError(f"also: {recipe.also} has no test split.")
    require_fitting(asked.split, model, f"also: {recipe.also}")
    return asked


@torch.no_grad()
def score_other(
    recipe: Recipe,
    asked: Tested | Classes | None,
    folder: Path,
    trained: Retriever,
    best: RetrievalModel,
) -> None:
    """Keep the metrics on the other data, of the weights at the start and of the best ones."""
    if asked is None:
        return
    before = begin_model(recipe, trained.dataset).to(trained.device)

    def score(model: RetrievalModel) -> dict[str, Any]:
        model.eval()
        opened = trained.with_model(model)
        if isinstance(asked, Classes):
            return accuracy(opened, asked)
        found = opened.similarities(asked.split)
        return found.measure(asked.protocol).to_dict()

    scored = {"before": score(before), "after": score(best)}
    write_json(folder / ALSO, {**asked.to_dict(), **scored})


_BATCH = 64  # pictures at a time


def require_vectors(model: RetrievalModel) -> None:
    """Refuse a model that compares sets."""
    if not model.embeds:
        raise InputError("zero-shot classification needs a model with one vector for each item.")


@torch.no_grad()
def accuracy(retriever: Retriever, classes: Classes) -> dict[str, float]:
    """Percent of the pictures whose own class is first; a tie counts against the model."""
    require_vectors(retriever.model)
    sides = []
    for prompt in classes.prompts:
        made = retriever.encode_sentences([prompt.replace("{}", name) for name in classes.names])
        sides.append(made.vectors)
    names = l2norm(torch.stack([side for side in sides if side is not None]).mean(0))
    right = 0
    for start in range(0, len(classes.pictures), _BATCH):
        vectors = retriever.encode(list(classes.pictures[start : start + _BATCH])).vectors
        assert vectors is not None
        own = torch.tensor(classes.class_of[start : start + _BATCH], device=vectors.device)
        scores = vectors @ names.T  # (pictures, classes)
        reached = is_rival(scores, scores.gather(1, own[:, None]))  # its own is one of them
        right += int((reached.sum(1) == 1).sum())
    return {METRIC: 100 * right / len(classes.pictures)}
