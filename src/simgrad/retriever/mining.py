"""Mine with a Retriever: compare everything with everything, keep the lists of the hardest."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from simgrad.core.errors import InputError
from simgrad.core.files import lock, sweep
from simgrad.data.base import Dataset, Split
from simgrad.data.candidates import Candidates
from simgrad.evaluation.scores import Average
from simgrad.mining.filters import Filters
from simgrad.mining.mine import mine_scores, which_are_true, without
from simgrad.retriever.similarities import Similarities
from simgrad.runs.found_pairs import FoundPairs, without_pairs

if TYPE_CHECKING:
    from simgrad.retriever.retriever import Retriever


def mine_with(
    retriever: "Retriever",
    folder: Path | None,
    depth: int,
    *,
    split: str = "train",
    filters: Filters | None = None,
    rescore: "Sequence[Retriever]" = (),
    use_truth: bool = False,
    leave_out: FoundPairs | None = None,
    dataset: Dataset | None = None,
) -> Candidates:
    """Mine a split; `rescore`: others, whose mean says what is kept.

    In `folder`, lists of the same weights and data are kept; others are replaced.
    """
    filters = filters or Filters()

    def make() -> Candidates:
        chosen = split if dataset is None else dataset.split(split)
        with torch.no_grad():
            asked = retriever.similarities(chosen)
            others = [other.similarities(split) for other in rescore]
            known = asked.split if retriever.has_data else None
            found = mine_similarities(
                asked, depth, filters, rescore=others, known=known, use_truth=use_truth
            )
        return found if leave_out is None else without_found(found, leave_out)

    if folder is None:
        return make()
    if not retriever.has_model or rescore:
        found = make()
        found.save(folder)
        return found
    wanted: dict[str, Any] = {
        "weights": retriever.weights,
        "data_fingerprint": (dataset or retriever.dataset).fingerprint(),
        "depth": depth,
        "split": split,
        "filters": filters.told(),
        "truth": use_truth,
        "without": None if leave_out is None else leave_out.hash(),
    }
    with lock(folder / ".lock", what=f"the candidates {folder}"):
        sweep(folder)
        if not _made(folder, wanted):
            found = make()
            dataclasses.replace(found, info={**found.info, **wanted}).save(folder)
    return Candidates.load(folder)


def _made(folder: Path, wanted: dict[str, Any]) -> bool:
    """Whether these lists are there and whole; damaged ones are made again."""
    try:
        there = Candidates.load(folder).info
    except InputError:
        return False
    return all(there.get(key) == value for key, value in wanted.items())


def mine_similarities(
    asked: Similarities,
    depth: int,
    filters: Filters | None = None,
    *,
    rescore: Sequence[Similarities] = (),
    known: Split | None = None,
    use_truth: bool = False,
) -> Candidates:
    """Mine similarities; where `known` data say what is true, so does the result."""
    if use_truth and (known is None or known.truth is None):
        name = "the file" if known is None else known.dataset
        raise InputError(f"{name} does not know which captions are true of a picture.")
    others = [other.scores for other in rescore]
    again = None if not others else others[0] if len(others) == 1 else Average(others)
    pairing = asked.split.image_of_caption
    found = mine_scores(asked.scores, pairing, depth, filters, rescore=again)
    return found if known is None else _told_of_truth(found, known, use_truth)


def without_found(found: Candidates, leave_out: FoundPairs) -> Candidates:
    """Lists without pairs that were found to be right, and how many that were."""
    kept = without_pairs(found, leave_out)
    gone = {
        way: int((getattr(found, way) >= 0).sum() - (getattr(kept, way) >= 0).sum())
        for way in ("i2t", "t2i")
    }
    return dataclasses.replace(kept, info={**kept.info, "left_out": gone})


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
