"""What an objective wants from outside the batch: draws for a recipe, and their similarities."""

from pathlib import Path

import torch
from torch import Tensor

from simgrad.core.errors import InputError
from simgrad.data.base import Dataset, Split
from simgrad.data.candidates import Candidates, open_candidates
from simgrad.mining.drawing import Draw
from simgrad.models.base import Encoded, RetrievalModel
from simgrad.objectives import Offline, objective
from simgrad.runs.data import same_data
from simgrad.runs.found_pairs import without_known
from simgrad.runs.recipe import Recipe


def draw_of(
    recipe: Recipe,
    split: Split,
    candidates: Candidates | None = None,
    dataset: Dataset | None = None,
) -> Draw | None:
    """What the recipe's objectives draw for every batch; None where they draw nothing.

    `candidates` are by default read from the recipe's folder, and refused where they were mined
    on other data than `dataset`.
    """
    specs = filter(None, (recipe.objective, recipe.first_objective))
    for_each = max(objective(spec).drawn_for_each for spec in specs)
    if not for_each:
        return None
    if candidates is None:
        if recipe.candidates is None:
            raise InputError(f"{recipe.objective} weighs mined negatives: give `candidates`.")
        candidates = open_candidates(recipe.candidates)
        if dataset is not None:
            same_data(candidates.info, dataset, Path(recipe.candidates), "mine again")
    return Draw(
        split,
        without_known(candidates, recipe, split),
        for_each=for_each,
        depth=recipe.depth,
        distribution=recipe.draw,
        seed=recipe.seed,
    )


def offline_similarities(
    model: RetrievalModel, images: Encoded, captions: Encoded, owner: Tensor, places: Tensor
) -> Offline:
    """The four similarities of each pair with what was drawn from outside the batch."""
    caption, image, partner_image, partner_caption = places
    own = torch.arange(len(owner), device=owner.device)

    def compare(image: Tensor, caption: Tensor) -> Tensor:
        return model.pairwise(images.select(image), captions.select(caption))

    return Offline(
        caption=compare(owner, caption),
        image=compare(image, own),
        pair=compare(image, caption),
        partner=compare(partner_image, partner_caption),
    )
