"""A Retriever of somebody else's encoder: it encodes, evaluates, mines and searches as ours do."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar
from uuid import uuid4

import torch

from simgrad.core.errors import InputError
from simgrad.core.files import sha256
from simgrad.data.base import Dataset, Split
from simgrad.models import Encoded, Inputs, ModelConfig, RetrievalModel
from simgrad.models.embedders import Embedder
from simgrad.models.networks.layers import l2norm
from simgrad.retriever.encoding import Report
from simgrad.retriever.retriever import LONGEST, Retriever
from simgrad.runs.recipe import Recipe

_BATCH = 64  # sentences or pictures at a time


@dataclass(frozen=True)
class _Outside(ModelConfig):
    name: ClassVar[str] = "outside"


class _Cosines(RetrievalModel):
    """Stands for a model where similarities of vectors are all that is asked."""

    def formats(self) -> tuple[str, ...]:
        return ()


class OutsideRetriever(Retriever):
    """An `Embedder` with a device and data.

    Examples:
        >>> words = simgrad.open(lambda items: torch.tensor([[len(x), 1.0] for x in items]))
        >>> words.encode(["a dog", "a red heart"]).vectors.shape
        torch.Size([2, 2])
    """

    def __init__(
        self,
        embedder: Embedder,
        device: torch.device,
        recipe: Recipe,
        dataset: Callable[[], Dataset] | None,
    ) -> None:
        super().__init__(str(embedder), device, recipe=recipe, dataset=dataset)
        self.embedder = embedder
        self._content = embedder.content()
        self._place = None if self._content else TemporaryDirectory(prefix="simgrad-")

    @cached_property
    def _model(self) -> RetrievalModel:
        return _Cosines(_Outside(), Inputs("pixels", (3,), 1))

    @property
    def model(self) -> RetrievalModel:
        return self._model

    @property
    def has_model(self) -> bool:
        return True

    @property
    def weights(self) -> str:
        return self.key

    @cached_property
    def key(self) -> str:
        """Equal keys, equal vectors; an encoder whose content is not known gets a new one."""
        return sha256(str(self.embedder), self._content or uuid4().hex)[:24]

    @property
    def own_place(self) -> Path | None:
        """Where vectors are kept while this object lives, if the encoder's content is not known."""
        return None if self._place is None else Path(self._place.name)

    def unknown_words(self, text: str) -> list[str]:
        return []

    def reader(self) -> Any:
        return None  # whether it reads pictures shows when it is given some

    def fitting(self, split: Split) -> Split:
        if split.pictures is None:
            raise InputError(f"{self.name}: reads pictures, but {split.dataset} has none.")
        return split

    def encode_sentences(self, texts: Sequence[str]) -> Encoded:
        for row, text in enumerate(texts):
            if not text.strip():
                raise InputError(f"sentence {row} is empty." if row else "the sentence is empty.")
            if len(text) > LONGEST:
                raise InputError(f"the sentence has {len(text):,} characters; {LONGEST:,} at most.")
        return self._encoded(self.embedder.texts, texts)

    def encode_pictures(self, pictures: Sequence[Any]) -> Encoded:
        return self._encoded(self.embedder.images, pictures)

    def _encoded(self, encode: Callable[..., Any], items: Sequence[Any]) -> Encoded:
        made = [
            encode(items[start : start + _BATCH], self.device)
            for start in range(0, len(items), _BATCH)
        ]
        return Encoded(l2norm(torch.cat(made)))

    def encode_split(self, split: Split) -> tuple[Encoded, Encoded]:
        def report(done: int, total: int) -> None:
            """Shows nothing."""

        images, captions = (
            self.encode_side(split, kind, report) for kind in ("images", "captions")
        )
        return images, captions

    def encode_side(self, split: Split, kind: str, report: Report) -> Encoded:
        if kind != "images":
            return self._encoded(self.embedder.texts, split.captions)
        pictures = self.fitting(split).pictures
        assert pictures is not None
        made = []
        for start in range(0, len(pictures), _BATCH):
            rows = range(start, min(start + _BATCH, len(pictures)))
            made.append(self.encode_pictures([pictures.picture(row) for row in rows]))
            report(rows[-1] + 1, len(pictures))
        return Encoded.cat(made)

    def source(self, split: Split) -> Any:
        raise InputError(f"{self.name}: is not trained or counted here; give a run.")
