"""Mine with a model: encode a split, compare everything with everything, keep the lists."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from simgrad.core.errors import InputError
from simgrad.core.files import lock, sweep
from simgrad.data.base import Dataset, Rows, Split
from simgrad.data.candidates import Candidates
from simgrad.evaluation.scores import Average
from simgrad.mining.filters import Filters
from simgrad.mining.mine import mine_scores, which_are_true, without
from simgrad.models.base import Encoded, RetrievalModel
from simgrad.models.checkpoint import weights_hash
from simgrad.retriever.encoding import model_scores
from simgrad.retriever.systems import System
from simgrad.retriever.trained import Trained, open_trained
from simgrad.runs.found_pairs import FoundPairs, without_pairs
from simgrad.runs.run import Run


def mine_run(source: Run, folder: Path, depth: int, **options: Any) -> Path:
    """`mine_trained` with a run's best model."""
    trained = open_trained(source, device=source.recipe.device)
    return mine_trained(trained, folder, depth, **options)


def mine_trained(
    trained: Trained,
    folder: Path,
    depth: int,
    *,
    dataset: Dataset | None = None,
    split: str = "train",
    filters: Filters | None = None,
    use_truth: bool = False,
    leave_out: FoundPairs | None = None,
) -> Path:
    """Mine a split with a trained model; lists of the same weights and data are kept."""
    data, filters = dataset or trained.dataset, filters or Filters()
    wanted: dict[str, Any] = {
        "weights": weights_hash(trained.model),
        "data_fingerprint": data.fingerprint(),
        "depth": depth,
        "split": split,
        "filters": filters.told(),
        "truth": use_truth,
        "without": None if leave_out is None else leave_out.hash(),
    }
    with lock(folder / ".lock", what=f"the candidates {folder}"):
        sweep(folder)
        if _made(folder, wanted):
            return folder
        chosen = trained.fitting(data.split(split))
        with torch.no_grad():
            images, captions = trained.encode(chosen)
            found = mine_encoded(
                trained.model, images, captions, chosen, depth, filters, use_truth=use_truth
            )
        if leave_out is not None:
            found = without_found(found, leave_out)
        dataclasses.replace(found, info={**found.info, **wanted}).save(folder)
    return folder


def _made(folder: Path, wanted: dict[str, Any]) -> bool:
    """Whether these lists are there and whole; damaged ones are made again."""
    try:
        there = Candidates.load(folder).info
    except InputError:
        return False
    return all(there.get(key) == value for key, value in wanted.items())


def mine_encoded(
    model: RetrievalModel,
    images: Encoded,
    captions: Encoded,
    split: Split,
    depth: int,
    filters: Filters | None = None,
    *,
    use_truth: bool = False,
) -> Candidates:
    """Mine with any model, and say how many candidates are true after all, where that is known."""
    _require_truth(split, use_truth)
    scores = model_scores(model, images, captions)
    found = mine_scores(scores, split.image_of_caption, depth, filters)
    return _told_of_truth(found, split, use_truth)


def mine_systems(
    system: System,
    depth: int,
    filters: Filters | None = None,
    *,
    rescore: Sequence[System] = (),
    split: Split | None = None,
    use_truth: bool = False,
) -> Candidates:
    """Mine with whatever was opened; `rescore`: others, whose mean says what is kept."""
    split = split or system.split
    _require_truth(split, use_truth)
    pairing = pairing_of(system)
    others = [other.similarities for other in rescore]
    again = None if not others else others[0] if len(others) == 1 else Average(others)
    found = mine_scores(system.similarities, pairing, depth, filters, rescore=again)
    return found if split is None else _told_of_truth(found, split, use_truth)


def without_found(found: Candidates, leave_out: FoundPairs) -> Candidates:
    """Lists without pairs that were found to be right, and how many that were."""
    kept = without_pairs(found, leave_out)
    gone = {
        way: int((getattr(found, way) >= 0).sum() - (getattr(kept, way) >= 0).sum())
        for way in ("i2t", "t2i")
    }
    return dataclasses.replace(kept, info={**kept.info, "left_out": gone})


def pairing_of(system: System) -> Rows:
    """Each caption's image."""
    assert system.pairing is not None  # it comes with the scores
    return system.pairing


def _require_truth(split: Split | None, use_truth: bool) -> None:
    if use_truth and (split is None or split.truth is None):
        name = "the file" if split is None else split.dataset
        raise InputError(f"{name} does not know which captions are true of a picture.")


def _told_of_truth(found: Candidates, split: Split, use_truth: bool) -> Candidates:
    truth = split.truth
    if truth is None:
        return found
    i2t_true = which_are_true(found.i2t, lambda query, rows: truth(query, rows)[0])
    listed = max(1, int((found.i2t >= 0).sum()))
    info = {**found.info, "false_negatives": float(i2t_true.sum() / listed)}
    if not use_truth:
        return dataclasses.replace(found, info=info)
    t2i_true = which_are_true(found.t2i, lambda query, rows: truth(rows, query)[:, 0])
    return dataclasses.replace(without(found, i2t_true, t2i_true), info=info)
