"""What a model's similarities are worth on its data: learned once on validation, and kept."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from simgrad.core.derived import read_kept, write_kept
from simgrad.core.errors import InputError
from simgrad.core.files import lock
from simgrad.data.base import Dataset, Split
from simgrad.data.subset import take
from simgrad.retriever.embeddings import UNUSABLE, place_of
from simgrad.search.calibration import Calibration, Truths, calibrate

if TYPE_CHECKING:
    from simgrad.retriever.retriever import Retriever

VALIDATION = "val"
_MOST_IMAGES = 1000  # drawn at random where there are more
_MOST_COMPARED = 250  # for models that compare every pair again
_FORMAT = "2"


@dataclass(frozen=True)
class Calibrations:
    """How sure hits are, for each kind of query; or why that is not known."""

    sentence: Calibration | None = None
    picture: Calibration | None = None
    why_not: str = ""

    def of(self, kind: str) -> Calibration | None:
        """For queries of a kind."""
        return self.sentence if kind == "sentence" else self.picture


def sureness_of(retriever: "Retriever", dataset: Dataset | None, fingerprint: str) -> Calibrations:
    """Learned from the validation split, or read where it was learned before."""
    if dataset is None or VALIDATION not in dataset.splits:
        return Calibrations(why_not="there is no validation split to learn from")
    path = place_of(retriever) / f"sureness-{fingerprint[:16]}.json"
    made_from = {"weights": retriever.key, "data": fingerprint, "format": _FORMAT}
    ready = _ready(path, made_from)
    if ready is not None:
        return ready
    try:
        with lock(path.with_suffix(".lock"), what=f"the calibration of {dataset.name}"):
            ready = _ready(path, made_from)
            if ready is None:
                ready = _learn(retriever, dataset.split(VALIDATION))
                kept = {"sentence": ready.sentence, "picture": ready.picture}
                values = {k: c and c.to_dict() for k, c in kept.items()}
                write_kept(path, {**values, "why_not": ready.why_not}, made_from)
            return ready
    except OSError:  # no place to keep it: learn it each time
        return _learn(retriever, dataset.split(VALIDATION))


def _ready(path: Path, made_from: dict[str, str]) -> Calibrations | None:
    try:
        value = read_kept(path, made_from)
        sentence, picture = (
            None if value[kind] is None else Calibration.from_dict(value[kind])
            for kind in ("sentence", "picture")
        )
        return Calibrations(sentence, picture, str(value["why_not"]))
    except UNUSABLE:
        return None  # none yet, or damaged


@torch.no_grad()
def _learn(retriever: "Retriever", split: Split) -> Calibrations:
    most = _MOST_IMAGES if retriever.model.embeds else _MOST_COMPARED
    some = np.zeros(split.num_images, dtype=bool)
    some[np.random.default_rng(0).permutation(split.num_images)[:most]] = True
    split = take(split, some, np.ones(split.num_captions, dtype=bool))
    try:
        scores = retriever.similarities(split).scores
        blocks = [block.cpu().double().numpy() for _, _, block in scores.blocks()]
        S, right = np.concatenate(blocks), right_pairs(split)  # (images, captions)
        images, owner = np.arange(split.num_images), split.image_of_caption
        return Calibrations(
            calibrate(S.T, right.T, owner, images), calibrate(S, right, images, owner)
        )
    except InputError as error:
        return Calibrations(why_not=str(error).rstrip("."))


def right_pairs(split: Split) -> Truths:
    """(images, captions): what belongs together, and what is true where the data knows."""
    rows = np.arange(split.num_images)
    right = rows[:, None] == split.image_of_caption[None]
    if split.truth is not None:
        right = right | split.truth(rows, np.arange(split.num_captions))
    return np.asarray(right, dtype=bool)
