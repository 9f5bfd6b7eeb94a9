"""COCOS over a run: its training set at its best checkpoint, in batches as in training."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from simgrad.analysis.counting import CocosAccumulator, cocos, general_table
from simgrad.analysis.published import PaperCounts, paper_counts_of
from simgrad.core.console import track
from simgrad.core.errors import InputError
from simgrad.core.tables import TableFile, Tabular
from simgrad.data.base import Split
from simgrad.data.benchmarks import benchmark_of
from simgrad.data.judgments import CROWD, EXPERT, read_judgments
from simgrad.data.sampling import Drawn, IndexBatch, OfflineIndex, Sampler
from simgrad.objectives import Objective, Offline
from simgrad.objectives import objective as read
from simgrad.retriever.encoding import encode_source
from simgrad.retriever.exporting import learned_objective
from simgrad.runs.offline_draws import draw_of, offline_similarities
from simgrad.runs.recipe import Recipe

if TYPE_CHECKING:
    from simgrad.retriever.retriever import Retriever

# A judged caption describes an image if experts found at most minor errors, or a crowd's majority.
_DESCRIBES = {"expert": 2 / 3, "crowd": 0.5}


@dataclass(frozen=True)
class RunBatch:
    """Similarities of one batch, and what the objective is told about it."""

    index: "IndexBatch"
    similarities: Tensor  # (images, captions)
    image_of_caption: Tensor  # (captions,)
    offline: Offline | None

    @property
    def square(self) -> Tensor:
        """Pair k in row and column k, as in published batches."""
        return self.similarities[self.image_of_caption]


class RunBatches:
    """Batches of a run's data through its best checkpoint, in evaluation mode."""

    def __init__(
        self,
        retriever: "Retriever",
        *,
        split: str = "train",
        batches: int | None = None,
        objective: str | None = None,
        batch: int | None = None,
    ) -> None:
        if retriever.run is None and objective is None:
            raise InputError(
                f"{retriever.name} is a checkpoint without a recipe: name an objective to count, "
                "with `objective`."
            )
        self.name, self.device, self.model = retriever.name, retriever.device, retriever.model
        self.where = str(retriever.path or retriever.name)
        own = retriever.recipe
        self.counted = own.replace(objective=objective or own.objective, batch=batch or own.batch)
        recipe = self.recipe = self.counted.replace(augment=None)
        self.objective = (
            learned_objective(recipe, retriever.checkpoint, self.where)
            if objective is None
            else read(recipe.objective)
        ).to(self.device)
        self.dataset = retriever.dataset
        self.split = retriever.split(split)
        self.source = retriever.source(self.split)
        sampler = Sampler(recipe.sampler, recipe.batch, recipe.captions_per_image, recipe.seed)
        self.indices: list[IndexBatch] = sampler.epoch(self.split, 0)[:batches]
        if self.objective.needs_offline:
            self.indices = self._draw(self.indices)

    def _draw(self, indices: list[Any]) -> list[Any]:
        if self.recipe.candidates is None or self.split.name != "train":
            raise InputError(
                f"{self.where}: {self.objective} weighs mined negatives, which exist for the "
                "train split of a run with `candidates`."
            )
        draw = draw_of(self.recipe, self.split, None, self.dataset)
        assert draw is not None
        return list(draw.epoch(indices, 0))

    def __len__(self) -> int:
        return len(self.indices)

    @torch.no_grad()
    def __iter__(self) -> Iterator[RunBatch]:
        # A few batches are encoded sooner than a whole training set; and of sets of vectors a
        # whole training set need not fit in memory.
        few = 2 * sum(len(index.captions) for index in self.indices) < self.split.num_captions
        if few or not self.model.embeds:
            for batch in self.source.batches(self.indices):
                images = self.model.encode_images(batch.images)
                captions = self.model.encode_captions(batch.tokens, batch.lengths)
                yield self._batch(batch.index, images, captions)
            return

        images, captions = encode_source(self.model, self.source)
        for index in self.indices:
            rows, columns = (torch.from_numpy(x) for x in (index.images, index.captions))
            chosen = images.select(rows), captions.select(columns)
            yield self._batch(index, *(part.to(self.device) for part in chosen))

    def _batch(self, index: Any, images: Any, captions: Any) -> RunBatch:
        offline = None
        position = torch.from_numpy(index.image_of_caption).to(self.device)
        if isinstance(index, OfflineIndex):
            drawn = Drawn.of(index, self.device)
            position = position[: drawn.own_captions]
            offline = offline_similarities(self.model, images, captions, position, drawn.places)
            images = images.select(slice(0, drawn.own_images))
            captions = captions.select(slice(0, drawn.own_captions))
        S = self.model.similarities(images, captions).float()
        return RunBatch(index, S, position, offline)

    def truth(self, batch: RunBatch) -> tuple[Tensor | None, Tensor | None]:
        """(images, captions): which pairs belong together, and for which this is known."""
        n, m = batch.similarities.shape
        rows, columns = batch.index.images[:n], batch.index.captions[:m]
        if self.split.truth is not None:
            return torch.from_numpy(self.split.truth(rows, columns)), None
        if self._judged is None:
            return None, None
        relevant, known = (table[rows][:, columns].toarray() for table in self._judged)
        return torch.from_numpy(relevant), torch.from_numpy(known)

    @property
    def _judged(self) -> Any:
        """Sparse tables (images, captions) of human judgments, where the data has them."""
        if not hasattr(self, "_tables"):
            self._tables = judged_tables(self.split, Path(self.recipe.data))
        return self._tables


def judged_tables(split: "Split", data: Path) -> Any:
    """(describes, judged) as sparse boolean tables; None where nothing in the split is judged."""
    from scipy.sparse import csr_matrix

    folder = data if data.is_dir() else data.parent
    if split.caption_ids is None or not any((folder / name).is_file() for name in (EXPERT, CROWD)):
        return None
    shape = (split.num_images, split.num_captions)
    relevant, known = (csr_matrix(shape, dtype=np.int8) for _ in range(2))
    for kind, judgments in read_judgments(folder).items():
        images, captions, pairs = judgments.rows(split)
        describes = judgments.relevance()[pairs] >= _DESCRIBES[kind]
        known += csr_matrix((np.ones(len(pairs), np.int8), (images, captions)), shape)
        relevant += csr_matrix((describes.astype(np.int8), (images, captions)), shape)
    return (relevant.astype(bool), known.astype(bool)) if known.nnz else None


@dataclass(frozen=True, repr=False)
class RunCounts(Tabular):
    """COCOS of one run: as defined, and as the published tables were counted."""

    name: str
    objective: Objective
    corrected: CocosAccumulator
    released: CocosAccumulator  # empty where the published counting does not apply
    recipe: Recipe  # of the run, with the objective and the batch that were counted
    dataset: str | None  # a known data set, e.g. f30k; None: another one
    whole: bool  # all batches of the training set
    epsilon: float = 0.01  # weights above this count

    def as_table(self) -> TableFile:
        told = (f"{self.name}: {self.objective}", f"epsilon {self.epsilon:g}")
        title = ", ".join((*told, f"batches: {len(self.corrected):,}"))
        return general_table(self.corrected.summary(), title)

    @property
    def family(self) -> PaperCounts | None:
        """How the paper counts this objective, if it does."""
        return paper_counts_of(self.objective)

    def rows(self) -> list[dict[str, Any]]:
        """One row per counting, direction and figure."""
        named = {"run": self.name, "objective": str(self.objective), "epsilon": self.epsilon}
        return [
            {**named, "counting": counting, **row}
            for counting in ("corrected", "released")
            for row in getattr(self, counting).rows()
        ]


def count_run(retriever: "Retriever", *, epsilon: float = 0.01, **where: Any) -> RunCounts:
    """COCOS over a training set, in batches as in training.

    Further options are those of `RunBatches`.
    """
    return count_run_by_epsilon(retriever, (epsilon,), **where)[0]


@torch.no_grad()
def count_run_by_epsilon(
    retriever: "Retriever", epsilons: Sequence[float], **where: Any
) -> list[RunCounts]:
    """The same for several epsilon; each batch is encoded once."""
    data = RunBatches(retriever, **where)
    known = benchmark_of(data.dataset)
    whole = data.split.name == "train" and where.get("batches") is None
    counts = [
        RunCounts(
            data.name, data.objective, CocosAccumulator(), CocosAccumulator(), data.counted,
            None if known is None else known.name, whole, epsilon,
        )
        for epsilon in epsilons
    ]  # fmt: skip
    for batch in track(data, f"counting {data.name}", len(data)):
        for one in counts:
            _add(one, data, batch)
    return counts


def _add(counts: RunCounts, data: RunBatches, batch: RunBatch) -> None:
    """One batch, as defined and as published."""
    as_pairs, epsilon, offline = (
        data.recipe.other_captions_are_negatives,
        counts.epsilon,
        batch.offline,
    )
    S: Tensor = batch.square if as_pairs else batch.similarities
    positives = None if as_pairs else batch.image_of_caption
    truth, known = data.truth(batch)
    if as_pairs:
        truth, known = (_rows(mask, batch.image_of_caption) for mask in (truth, known))
    counts.corrected.add(
        cocos(data.objective, S, positives, epsilon, offline=offline, truth=truth, known=known)
    )
    if counts.family is not None and _as_published(data, batch):
        # Published batches are of pairs, or of images with as many captions each.
        square = data.recipe.sampler != "images"
        S, positives = (batch.square, None) if square else (S, positives)
        counts.released.add(
            cocos(data.objective, S, positives, epsilon, released=True, offline=offline)
        )


def _rows(mask: Tensor | None, rows: Tensor) -> Tensor | None:
    return None if mask is None else mask[rows.cpu()]


def _as_published(data: RunBatches, batch: RunBatch) -> bool:
    """Published batches of images have the same number of captions for each."""
    if data.recipe.sampler != "images" or data.recipe.other_captions_are_negatives:
        return True
    each = torch.bincount(batch.image_of_caption)
    return bool((each == each[0]).all())
