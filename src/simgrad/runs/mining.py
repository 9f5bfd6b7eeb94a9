"""Mine with a model: encode a split, compare everything with everything, keep the lists."""

from pathlib import Path
from typing import Any

import torch

from simgrad.core.errors import InputError
from simgrad.core.files import lock, sweep
from simgrad.data.base import Dataset, Split
from simgrad.data.candidates import Candidates
from simgrad.mining.mine import mine, mine_similarities, which_are_true, without
from simgrad.models.base import Encoded, RetrievalModel, vectors_of
from simgrad.models.checkpoint import weights_hash
from simgrad.runs.run import Run
from simgrad.runs.trained import Trained, open_trained


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
    skip: int = 0,
    relative_margin: float | None = None,
    use_truth: bool = False,
) -> Path:
    """Mine the train split with a trained model; lists of the same weights and data are kept."""
    data = dataset or trained.dataset
    wanted: dict[str, Any] = {
        "weights": weights_hash(trained.model),
        "data_fingerprint": data.fingerprint(),
        "depth": depth,
        "skip": skip,
        "relative_margin": relative_margin,
        "truth": use_truth,
    }
    with lock(folder / ".lock", what=f"the candidates {folder}"):
        sweep(folder)
        if _made(folder, wanted):
            return folder
        split = trained.fitting(data.split("train"))
        with torch.no_grad():
            images, captions = trained.encode(split)
            found = mine_encoded(
                trained.model,
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
    *,
    skip: int = 0,
    relative_margin: float | None = None,
    use_truth: bool = False,
) -> Candidates:
    """Mine with any model, and say how many candidates are true after all, where that is known."""
    truth = split.truth
    if use_truth and truth is None:
        raise InputError(f"{split.dataset} does not know which captions are true of a picture.")
    if model.embeds:
        found = mine(
            vectors_of(images),
            vectors_of(captions),
            split.image_of_caption,
            depth,
            skip=skip,
            relative_margin=relative_margin,
        )
    else:
        blocks = (slice(start, start + 64) for start in range(0, len(images), 64))
        parts = (model.similarities(images.select(rows), captions) for rows in blocks)
        found = mine_similarities(
            torch.cat([part.float().cpu() for part in parts]),
            split.image_of_caption,
            depth,
            skip=skip,
            relative_margin=relative_margin,
        )
    if truth is None:
        return found
    i2t_true = which_are_true(found.i2t, lambda query, rows: truth(query, rows)[0])
    listed = max(1, int((found.i2t >= 0).sum()))
    info = {**found.info, "false_negatives": float(i2t_true.sum() / listed)}
    if not use_truth:
        return Candidates(found.i2t, found.t2i, info)
    t2i_true = which_are_true(found.t2i, lambda query, rows: truth(rows, query)[:, 0])
    return Candidates(without(found.i2t, i2t_true), without(found.t2i, t2i_true), info)
