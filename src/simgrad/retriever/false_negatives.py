"""Pairs of a split that are probably right although nobody marked them, by several systems."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from simgrad.core.derived import write_checked
from simgrad.core.errors import InputError
from simgrad.core.text import counted, plain
from simgrad.data.base import Rows, Split
from simgrad.data.found import FOUND, INFO, Pair, caption_names, read_found, rows_of, write_found
from simgrad.data.languages import language_of
from simgrad.mining.evidence import (
    DEPTH,
    NAMES,
    Floats,
    Probable,
    View,
    candidates,
    evidence,
    shipped,
)
from simgrad.retriever.similarities import Similarities

if TYPE_CHECKING:
    from simgrad.retriever.retriever import Retriever


_SHOWN = 5  # pairs at a prompt


@dataclass(frozen=True)
class Finds:
    """Pairs, surest first."""

    split: Split
    pairs: Rows  # (k, 2) image and caption
    probability: Floats
    evidence: Floats  # (k, len(NAMES))
    probable: Probable
    knows: tuple[float, ...]  # by system: share of captions that lead to their own image
    borrowed: bool = False  # whether probabilities were learned on other data
    systems: tuple[str, ...] = ()  # by whom

    def __str__(self) -> str:
        """The surest, each with its picture, and how many more there are."""
        told = [f"{counted(len(self.pairs), 'pair')} probably right although nobody marked them:"]
        for pair in self.named(_SHOWN):
            told += [f"{pair.probability:6.2f}  {pair.image}", f"        {pair.text}"]
        if len(self.pairs) > _SHOWN:
            more = len(self.pairs) - _SHOWN
            told.append(f"{more:,} more: named() has all, save(folder) keeps them.")
        return plain("\n".join([*told, *filter(None, [self.caveat])]))

    __repr__ = __str__  # what a prompt shows

    def named(self, most: int | None = None) -> list[Pair]:
        """The pairs as they are kept, or the surest of them."""
        split, names = self.split, caption_names(self.split)
        return [
            Pair(split.image_names[image], names[caption], split.captions[caption], round(p, 4))
            for (image, caption), p in zip(
                self.pairs[:most].tolist(), self.probability[:most].tolist(), strict=True
            )
        ]

    @property
    def caveat(self) -> str:
        """Why the probabilities may be wrong here: they were learned on other data."""
        if not self.borrowed:
            return ""
        language = language_of(self.split.captions)
        other = f"; these captions are {language}" if language not in ("", "English") else ""
        return (
            f"These probabilities were learned on {self.probable.learned_from}, in English{other}. "
            "Take them as an order, not as shares: answer some (`simgrad serve RUN`), then give "
            "`calibrate`."
        )

    def save(self, folder: str | Path, systems: Sequence[str] = ()) -> None:
        """found.jsonl, and what it was made from; answers that are there stay.

        `systems`: what found.json calls those that found them, by default their names.
        """
        folder = Path(folder)
        write_found(folder / FOUND, self.named())
        told = {
            "data": self.split.dataset,
            "split": self.split.name,
            "systems": list(systems or self.systems),
            "pairs": len(self.pairs),
            "calibrated_on": self.probable.learned_from,
        }
        write_checked(folder / INFO, told)


def false_negatives(
    retrievers: "Sequence[Retriever]",
    split: str | Split = "train",
    *,
    depth: int = DEPTH,
    most: int = 10_000,
    calibrate: str | Path | None = None,
) -> Finds:
    """The `most` probable pairs among the first `depth` of any system in either direction.

    `calibrate`: found pairs with answers, from which probabilities are learned again.
    """
    if not isinstance(split, Split):
        split = split_of(retrievers, split)
    views = views_of([each.similarities(split) for each in retrievers], split, depth)
    probable = shipped()
    if calibrate is not None:
        probable = _learned(views, split, calibrate)
    pairs = candidates(views, split, depth)
    shown = evidence(views, split, pairs)
    probability = probable(shown)
    order = np.argsort(-probability, kind="stable")[:most]
    knows = tuple(view.knows for view in views)
    ranked = (split, pairs[order], probability[order], shown[order], probable, knows)
    return Finds(*ranked, calibrate is None, tuple(each.name for each in retrievers))


def split_of(retrievers: "Sequence[Retriever]", name: str) -> Split:
    """The split of the first that knows its data."""
    known = next((each for each in retrievers if each.has_data), None)
    if known is None:
        raise InputError("files of embeddings do not name their captions: give `data`.")
    return known.dataset.split(name)


def views_of(systems: Sequence[Similarities], split: Split, depth: int = DEPTH) -> list[View]:
    """Every system on the same split."""
    for system in systems:
        if not np.array_equal(system.split.image_of_caption, split.image_of_caption):
            raise InputError(
                f"{system.name}: its captions do not belong to images as in the {split.name} split "
                f"of {split.dataset}."
            )
    return [View.of(system.scores, split.image_of_caption, depth) for system in systems]


def _learned(views: Sequence[View], split: Split, place: str | Path) -> Probable:
    answered = [pair for pair in read_found(place) if pair.answer in ("yes", "no")]
    right = rows_of([p for p in answered if p.answer == "yes"], split, place=place).right
    # As if they had been right, so that their rows are found.
    asked = [Pair(p.image, p.caption, p.text, answer="yes") for p in answered if p.answer == "no"]
    wrong = rows_of(asked, split, place=place).right
    truth = np.repeat([True, False], [len(right), len(wrong)])
    shown = evidence(views, split, np.concatenate([right, wrong]))
    return Probable.learned(tuple(NAMES), shown, truth, str(place))
