"""Two rounds in one recipe (AOQ): train, mine with the best model, train again with its lists."""

from pathlib import Path
from typing import Any

import torch

from simgrad.data import Dataset
from simgrad.evaluation.encoded import encode_source
from simgrad.files import lock, sweep
from simgrad.models import weights_hash
from simgrad.training.loop import train
from simgrad.training.mining import Candidates, mine_encoded
from simgrad.training.prepare import building, opened, pick_device, source_of
from simgrad.training.recipe import Recipe
from simgrad.training.run import BEST, RECIPE, Run


def train_two_rounds(
    recipe: Recipe,
    folder: Path,
    round_one: Path,
    *,
    dataset: Dataset | None = None,
    quiet: bool = False,
    shared: dict[Any, Any] | None = None,
) -> Run:
    """Round one and what is mined with it in `round_one`, round two in `folder`."""
    changes = dict(recipe.second_round or {})
    go_on = bool(changes.pop("from_round_one", False))
    recipe.replace(**{**changes, "second_round": None})  # a mistake is told before the first round
    alone = recipe.replace(second_round=None)
    round_one = _begun_with(folder, alone) or round_one
    first = train(alone, round_one, dataset=dataset, quiet=quiet, shared=shared)
    if not first.finished:
        return first
    depth = int(changes.get("depth", recipe.depth))
    with building:
        dataset = opened(recipe, {} if shared is None else shared, dataset)
    candidates = mine_run(first, round_one / f"candidates-{depth}", depth, dataset=dataset)
    changes |= {"second_round": None, "candidates": str(candidates)}
    if go_on:
        changes["start_from"] = str(first.path / BEST)
    return train(recipe.replace(**changes), folder, dataset=dataset, quiet=quiet, shared=shared)


def _begun_with(folder: Path, first: Recipe) -> Path | None:
    """The first round of a second one that has begun: a study's rows may have changed since."""
    if not (folder / RECIPE).is_file():
        return None
    place = Path(Run(folder).recipe.candidates or "").parent
    return place if (place / RECIPE).is_file() and Run(place).recipe == first else None


def mine_run(
    source: Run,
    folder: Path,
    depth: int,
    *,
    dataset: Dataset | None = None,
    skip: int = 0,
    relative_margin: float | None = None,
    use_truth: bool = False,
) -> Path:
    """Mine the train split with a run's best model; lists of the same weights are kept."""
    device = pick_device(source.recipe.device)
    with building:  # its weights are drawn before they are read
        loaded = source.load(str(device))
    wanted: dict[str, Any] = {
        "weights": weights_hash(loaded.model),
        "depth": depth,
        "skip": skip,
        "relative_margin": relative_margin,
        "truth": use_truth,
    }
    with lock(folder / ".lock", what=f"the candidates {folder}"):
        sweep(folder)
        if (folder / "candidates.json").is_file():
            there = Candidates.load(folder).info
            if all(there.get(key) == value for key, value in wanted.items()):
                return folder
        split = (dataset or source.dataset()).split("train")
        with torch.no_grad():
            batches = source_of(split, loaded.tokenizer, loaded.model, device, source.recipe)
            images, captions = encode_source(loaded.model, batches)
            found = mine_encoded(
                loaded.model,
                images,
                captions,
                split,
                depth,
                skip=skip,
                relative_margin=relative_margin,
                use_truth=use_truth,
            )
        Candidates(found.i2t, found.t2i, {**found.info, **wanted}).save(folder)
    return folder
