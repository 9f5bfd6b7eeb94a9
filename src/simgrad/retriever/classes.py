"""Zero-shot classification: a picture is of the class whose name fits it best."""

import torch

from simgrad.core.errors import InputError
from simgrad.data.classes import METRIC, Classes
from simgrad.evaluation.rivals import is_rival
from simgrad.models import RetrievalModel
from simgrad.models.networks.layers import l2norm
from simgrad.retriever.retriever import Retriever

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
