"""A model with its tokenizer, device and data; everything that is done with one begins here.

`simgrad.open` makes a Retriever. Its model and data are loaded when they are first needed, so that
opening is quick, and reading the stored ranks of a run needs neither.
"""

from collections.abc import Callable, Iterable, Sequence
from copy import copy
from functools import cached_property
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from simgrad.core.errors import InputError
from simgrad.core.files import sha256
from simgrad.data.base import Dataset, Split
from simgrad.data.batches import Source
from simgrad.data.candidates import Candidates
from simgrad.data.cutting import open_picture
from simgrad.data.vocabulary import Tokenizer
from simgrad.evaluation.metrics import Metrics, metrics_of
from simgrad.evaluation.protocols import Protocol
from simgrad.evaluation.ranks import Ranks
from simgrad.evaluation.retrieval import HEADLINE_RECALLS
from simgrad.mining.evidence import DEPTH
from simgrad.mining.filters import Filters
from simgrad.models import Checkpoint, Encoded, RetrievalModel, weights_hash
from simgrad.retriever import counting, exporting, false_negatives, mining
from simgrad.retriever.encoding import Report, encode_one_side, encode_source, source_of
from simgrad.retriever.fitting import require_fitting
from simgrad.retriever.pictures import PictureReader, picture_reader
from simgrad.retriever.search import ALL, Searcher, ask
from simgrad.retriever.similarities import Similarities
from simgrad.runs.found_pairs import pairs_of
from simgrad.runs.recipe import Recipe
from simgrad.runs.run import Run
from simgrad.search.results import Results

if TYPE_CHECKING:
    from PIL.Image import Image

LONGEST = 1000  # characters of a sentence
_TOKENS = 200
_BATCH = 128  # sentences or pictures that are encoded at a time


class Retriever:
    """A model with its tokenizer, device and data.

    Of arrays there is no model: they can be evaluated and mined, not searched.

    Examples:
        >>> model = simgrad.open("runs/first", device="cpu")
        >>> model.encode(["a red heart", "a blue star"]).vectors.shape
        torch.Size([2, 16])
        >>> model.search("a red heart", top=3).images[0].rank
        1
    """

    def __init__(
        self,
        name: str,
        device: torch.device,
        *,
        path: Path | None = None,
        load: Callable[[], Checkpoint] | None = None,
        recipe: Recipe | None = None,
        run: Run | None = None,
        dataset: Callable[[], Dataset] | None = None,
        given: Similarities | None = None,
        ranks: Callable[[], Ranks] | None = None,
    ) -> None:
        self.name, self.device, self.path = name, device, path
        self.recipe = recipe or Recipe()  # how data are read
        self.run = run  # None: no run, but a checkpoint, a pretrained model or arrays
        self.sources: dict[str, Source] = {}  # of a run that is being trained
        self._load, self._open_data, self._given, self._ranks = load, dataset, given, ranks
        self._reader: PictureReader | InputError | None = None
        self._searchers: dict[Any, Searcher] = {}

    @staticmethod
    def of(
        model: RetrievalModel,
        tokenizer: Tokenizer,
        device: torch.device,
        recipe: Recipe,
        dataset: Dataset,
    ) -> "Retriever":
        """Of what is in memory already."""
        held = Checkpoint(model, tokenizer, {})
        made = Retriever(
            str(model.config), device, load=lambda: held, recipe=recipe, dataset=lambda: dataset
        )
        made.checkpoint = held
        return made

    def with_model(self, model: RetrievalModel) -> "Retriever":
        """The same data with another model, read by the same tokenizer."""
        other = copy(self)
        other.checkpoint = Checkpoint(model, self.tokenizer, {})
        return other

    def __repr__(self) -> str:
        return f"<Retriever {self.name} on {self.device}>"

    # -- what it is made of

    @cached_property
    def checkpoint(self) -> Checkpoint:
        """The model as it was stored, in evaluation mode."""
        if self._load is None:
            raise InputError(
                f"{self.name}: arrays or ranks have no model; give a run, a checkpoint or a "
                "pretrained model."
            )
        return self._load()

    @property
    def model(self) -> RetrievalModel:
        return self.checkpoint.model

    @property
    def tokenizer(self) -> Tokenizer:
        return self.checkpoint.require_tokenizer(self.path or self.name)

    @property
    def has_model(self) -> bool:
        """Whether it is more than arrays."""
        return self._load is not None

    @property
    def has_data(self) -> bool:
        """Whether it knows images and captions, and not their numbers alone."""
        return self._open_data is not None

    @cached_property
    def dataset(self) -> Dataset:
        """What it was trained on, refused where that has changed; or what was named instead."""
        if self._open_data is None:
            raise InputError(
                f"{self.path or self.name} has no data of its own: name a data set with `data`."
            )
        return self._open_data()

    @cached_property
    def ranks(self) -> Ranks | None:
        """Ranks that were kept: of a run's test, or in a file."""
        return None if self._ranks is None else self._ranks()

    @cached_property
    def key(self) -> str:
        """A hash of weights, settings and vocabulary: equal keys give equal embeddings."""
        words = dumps(self.tokenizer.to_json())
        return sha256(weights_hash(self.model), str(self.model.config), words)[:24]

    @property
    def weights(self) -> str:
        """A hash of the weights."""
        return weights_hash(self.model)

    @property
    def own_place(self) -> Path | None:
        """Where its embeddings are kept, if not beside its run or in the cache."""
        return None

    def split(self, name: str | None = None) -> Split:
        """A split that the model can read; by default the one that its recipe tests."""
        return self.fitting(self.dataset.split(name or self.recipe.tested_split(self.dataset)))

    def fitting(self, split: Split) -> Split:
        """A split of any data, or an error where the model cannot read it."""
        require_fitting(split, self.model, str(self.path or self.name))
        return split

    def source(self, split: Split) -> Source:
        """The batches of a split, as the model reads them."""
        return source_of(split, self.tokenizer, self.model, self.device, self.recipe)

    # -- encode

    def encode(self, items: "str | Path | Image | Sequence[str | Path | Image]") -> Encoded:
        """Sentences (str), or pictures (PIL images, or `Path`s of files); never both at once.

        `.vectors` are (items, dimension), of length 1 where similarity is the cosine.
        """
        several = list(items) if isinstance(items, list | tuple) else [items]
        texts = [item for item in several if isinstance(item, str)]
        if texts and len(texts) < len(several):
            raise InputError("encode: give sentences (str) or pictures (images, Paths), not both.")
        if texts:
            return self.encode_sentences(texts)
        opened = [
            open_picture(item, str(item), least=512) if isinstance(item, Path) else item
            for item in several
        ]
        return self.encode_pictures(opened)

    @torch.no_grad()
    def encode_sentences(self, texts: Sequence[str]) -> Encoded:
        """One row for each sentence."""
        rows = [torch.tensor(self._tokens(text)) for text in texts]
        made = []
        for start in range(0, len(rows), _BATCH):
            some = rows[start : start + _BATCH]
            lengths = torch.tensor([len(row) for row in some]).to(self.device)
            tokens = torch.nn.utils.rnn.pad_sequence(some, batch_first=True).to(self.device)
            made.append(self.model.encode_captions(tokens, lengths))
        return Encoded.cat(made)

    def _tokens(self, text: str) -> list[int]:
        if not text.strip():
            raise InputError("the sentence is empty.")
        if len(text) > LONGEST:
            raise InputError(f"the sentence has {len(text):,} characters; {LONGEST:,} at most.")
        ids: list[int] = self.tokenizer.encode(text)
        return ids if len(ids) <= _TOKENS else [*ids[: _TOKENS - 1], ids[-1]]

    def unknown_words(self, text: str) -> list[str]:
        """Words of a sentence that the model has never seen."""
        words: list[str] = self.tokenizer.unknown_words(text)
        return words

    @torch.no_grad()
    def encode_pictures(self, pictures: "Sequence[Any]") -> Encoded:
        """Pictures from anywhere; an error says why the model cannot read them."""
        read = self.reader()
        return Encoded.cat(
            [
                self.model.encode_images(read(pictures[start : start + _BATCH], self.device))
                for start in range(0, len(pictures), _BATCH)
            ]
        )

    @torch.no_grad()
    def encode_features(self, rows: Any) -> Encoded:
        """Precomputed features of a split's images."""
        return self.model.encode_images(torch.from_numpy(rows).to(self.device))

    def encode_split(self, split: Split) -> tuple[Encoded, Encoded]:
        """Every image and caption of a split, encoded once, in the order of their rows."""
        return encode_source(self.model, self.source(split))

    def encode_side(self, split: Split, kind: str, report: Report) -> Encoded:
        """The images of a split, or its captions, and not the other side."""
        return encode_one_side(self.model, self.source(split), kind, report)

    def reader(self) -> PictureReader:
        """How new pictures are read, found out once."""
        if self._reader is None:
            try:
                self._reader = picture_reader(self.model, self.recipe.features, self.device)
            except InputError as error:
                self._reader = error
        if isinstance(self._reader, InputError):
            raise self._reader
        return self._reader

    # -- what is done with it

    def similarities(self, split: str | Split | None = None) -> Similarities:
        """Similarities of a split's images and captions; by default, of the split it tests."""
        if self._given is not None:
            return self._of_arrays(self._given, split)
        if not self.has_model and self.has_data:
            name = split if isinstance(split, str) else self.recipe.tested_split(self.dataset)
            return Similarities.given(
                self.name, split if isinstance(split, Split) else self.dataset.split(name)
            )
        if not self.has_model:
            raise InputError(
                f"{self.name}: a file of ranks has no similarities; give the run or its embeddings."
            )
        chosen = self.fitting(split) if isinstance(split, Split) else self.split(split)
        return Similarities.of(self.name, self.model, chosen, *self.encode_split(chosen))

    def _of_arrays(self, given: Similarities, split: str | Split | None) -> Similarities:
        """With the names and captions of its data, where they were named."""
        if isinstance(split, str) and self.has_data:
            split = self.dataset.split(split)
        if not isinstance(split, Split):
            return given
        if not np.array_equal(split.image_of_caption, given.split.image_of_caption):
            raise InputError(
                f"{self.name}: its captions do not belong to images as in the {split.name} split "
                f"of {split.dataset}."
            )
        return Similarities(given.name, given.scores, split)

    def evaluate(
        self,
        split: str | Split | None = None,
        *,
        protocol: str | Protocol | None = None,
        recalls: Iterable[int] = HEADLINE_RECALLS,
        rerank: int | None = None,
    ) -> Metrics:
        """Metrics; where nothing else is asked for, of the ranks that a run's test kept.

        Examples:
            >>> model = simgrad.open("runs/first", device="cpu")
            >>> model.evaluate().rsum == model.evaluate("test").rsum
            True
        """
        ranks = self.ranks if split is None and rerank is None else None
        if ranks is None or (protocol is not None and self.has_model):
            return self.similarities(split).measure(protocol, recalls, rerank)
        if protocol not in (None, "all"):
            raise InputError(f"{self.name}: stored ranks cannot be ranked again by a protocol.")
        number = f"{len(ranks.i2t):,} images, {len(ranks.t2i):,} captions"
        return metrics_of(ranks, recalls, f"ranks kept by the run: {number}.")

    def mine(
        self,
        folder: str | Path | None = None,
        *,
        depth: int = 300,
        split: str | None = None,
        filters: Filters | None = None,
        rescore: "Sequence[Retriever]" = (),
        use_truth: bool = False,
        without: str | Path | None = None,
        sure: float = 0.5,
    ) -> Candidates:
        """The hardest negatives of every image and caption of a split; kept in `folder`, if any.

        `split`: by default `train`; arrays have none.
        `rescore`: others, whose mean says what is kept; `without`: a file or folder of found pairs
        to leave out; `use_truth`: leave out what the data know to be true.
        """
        if split is not None and self._given is not None and not self.has_data:
            raise InputError(
                f"{self.name}: arrays have no splits, so there is no '{split:.40}': leave `split` "
                "out, or name the data set with `data=`."
            )
        split, left_out = split or "train", None
        if without is not None:
            if not self.has_data:
                raise InputError("`without`: its pairs are named as in the data set: give `data`.")
            left_out = pairs_of(without, self.dataset.split(split), sure, "without ")
        return mining.mine_with(
            self,
            None if folder is None else Path(folder),
            depth,
            split=split,
            filters=filters,
            rescore=rescore,
            use_truth=use_truth,
            leave_out=left_out,
        )

    def cocos(
        self,
        objective: str | None = None,
        *,
        epsilon: float = 0.01,
        split: str = "train",
        batches: int | None = None,
        batch: int | None = None,
    ) -> counting.RunCounts:
        """What contributes to the gradient in a split, in batches as in training.

        `objective`: another than the run's; `batch`: pairs in a batch; `batches`: how many.
        """
        named: dict[str, Any] = {"split": split, "batches": batches, "batch": batch}
        return counting.count_run(self, epsilon=epsilon, objective=objective, **named)

    def false_negatives(
        self,
        split: str = "train",
        *,
        others: "Sequence[Retriever]" = (),
        depth: int = DEPTH,
        most: int = 10_000,
        calibrate: str | Path | None = None,
    ) -> false_negatives.Finds:
        """Pairs that are probably right although nobody marked them, by it and `others`."""
        return false_negatives.false_negatives(
            [self, *others], split, depth=depth, most=most, calibrate=calibrate
        )

    def export(
        self, folder: str | Path, format: str | None = None, *, adapter: bool = False
    ) -> exporting.Exported:
        """Write the model into a new folder, for another program."""
        return exporting.export(self, Path(folder), format, adapter=adapter)

    def searcher(
        self, split: str = ALL, folder: str | Path | None = None, **options: Any
    ) -> Searcher:
        """What searches its data or a split of them, or the pictures of a folder; made once."""
        key = (split, None if folder is None else str(folder), options.get("index"))
        if key not in self._searchers:
            place = None if folder is None else Path(folder)
            self._searchers[key] = Searcher(self, split, place, **options)
        return self._searchers[key]

    def search(
        self,
        query: "str | Path | Image",
        top: int = 10,
        *,
        split: str = ALL,
        folder: str | Path | None = None,
    ) -> Results:
        """Pictures by a sentence; captions, and pictures like it, by a picture.

        All of its data are searched, or one `split`, or the pictures of a `folder`.

        Examples:
            >>> model = simgrad.open("runs/first", device="cpu")
            >>> model.search("a red heart", 2, split="test").searched_images
            10
        """
        return ask(self.searcher(split, folder), query, top)
