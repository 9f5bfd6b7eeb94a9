"""Search: a sentence finds pictures, a picture finds captions and pictures like it.

Models that embed are searched by a matrix product, exactly (`exact.py`). Above a million items, or
where one is named, an index of FAISS is used (`approximate.py`). Models that compare sets are asked
for similarities. How sure a hit is was learned on the validation split (`sureness.py`).
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from itertools import zip_longest
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np

from simgrad.core.errors import InputError
from simgrad.data.base import Dataset, Split
from simgrad.data.cutting import open_picture
from simgrad.data.likeness import find_picture
from simgrad.data.pictures import SUFFIXES
from simgrad.data.resplit import joined
from simgrad.data.words import tokenize
from simgrad.models import Encoded
from simgrad.retriever.embeddings import Gallery, place_of, split_embeddings
from simgrad.retriever.encoding import Report
from simgrad.retriever.folder import FolderIndex, folder_embeddings
from simgrad.retriever.sureness import Calibrations, sureness_of
from simgrad.search.approximate import AUTO
from simgrad.search.exact import Ranked
from simgrad.search.results import Hit, Results

if TYPE_CHECKING:
    from PIL.Image import Image

    from simgrad.retriever.retriever import Retriever

MOST = 1000  # results of one query
ALL = "all"  # splits together


class Searcher:
    """A model and what it searches: a split of its data, all of them, or the pictures of a folder.

    `report` is called while images are encoded that were not encoded before.
    """

    def __init__(
        self,
        retriever: "Retriever",
        split: str = "test",
        folder: Path | None = None,
        *,
        dataset: Dataset | None = None,
        index: str = AUTO,
        report: Report = lambda done, total: None,
    ) -> None:
        self.retriever, self._index, self._report = retriever, index, report
        self.folder: FolderIndex | None = None
        self.dataset, self._no_data = dataset, ""
        if folder is not None:
            self.folder = folder_embeddings(retriever, folder, report=report)
        if dataset is None:
            self.dataset = self._open_data()
        self.split: Split | None = None
        self._parts: list[Split] = []  # of which the split is made
        if self.dataset is not None:
            self.split, self._parts = self._chosen(self.dataset, split)

    def _chosen(self, dataset: Dataset, split: str) -> tuple[Split | None, list[Split]]:
        """What is searched, and the splits that it is made of."""
        if split != ALL or ALL in dataset.splits:
            if self.folder is not None and split not in dataset.splits:
                return None, []
            one = dataset.split(split)
            return one, [one]
        twice = "test" if "testall" in dataset.splits else ""  # COCO's test is part of its testall
        parts = [s for s in dataset.splits.values() if s.num_images and s.name != twice]
        return replace(joined(parts), name=ALL), parts

    def _open_data(self) -> Dataset | None:
        """The model's data; a folder can be searched without it."""
        try:
            return self.retriever.dataset
        except InputError as error:
            if self.folder is None:
                raise
            self._no_data = str(error)
            return None

    @cached_property
    def fingerprint(self) -> str:
        """The fingerprint of the data."""
        return "" if self.dataset is None else self.dataset.fingerprint()

    def _encoded(self, kind: str) -> Encoded:
        """The images or the captions of all that is searched."""
        sizes = [part.num_images if kind == "images" else part.num_captions for part in self._parts]
        encoded = []
        for number, part in enumerate(self._parts):
            before, whole = sum(sizes[:number]), sum(sizes)

            def report(done: int, _: int, before: int = before, whole: int = whole) -> None:
                self._report(before + done, whole)

            encoded.append(split_embeddings(self.retriever, part, self.fingerprint, kind, report))
        return encoded[0] if len(encoded) == 1 else Encoded.cat(encoded)

    def _gallery(self, kind: str) -> Gallery:
        assert self.split is not None
        place = place_of(self.retriever) / f"{self.split.name}-{self.fingerprint[:16]}"
        others = "captions" if kind == "images" else "images"
        return Gallery(
            self.retriever.model,
            self._encoded(kind),
            kind,
            place,
            self._index,
            lambda: self._encoded(others).vectors,
        )

    @cached_property
    def images(self) -> Gallery | None:
        """The pictures that are searched; None: there are none."""
        if self.folder is not None:
            items, place = self.folder.encoded, self.folder.place
            if items is None:
                return None
            return Gallery(self.retriever.model, items, "images", place, self._index)
        return self._gallery("images")

    @cached_property
    def captions(self) -> Gallery | None:
        """The captions that are searched; None: without data there are none."""
        return None if self.split is None else self._gallery("captions")

    @cached_property
    def sureness(self) -> Calibrations:
        """How sure hits are; learned at the first search."""
        if self._no_data:
            return Calibrations(why_not=self._no_data.rstrip("."))
        return sureness_of(self.retriever, self.dataset, self.fingerprint)

    def sentence(self, text: str, top: int = 10) -> Results:
        """Pictures that a sentence describes."""
        top, gallery = _checked(top), self.images
        start = perf_counter()
        query = self.retriever.encode_sentences([text])
        # One more than is shown: how far the first stands before the second is part of how sure.
        ranked = [] if gallery is None else gallery.search(query, top + 1)
        seconds = perf_counter() - start
        unknown = self.retriever.unknown_words(text)
        notes = [f"not in the model's vocabulary: {', '.join(unknown)[:200]}"] if unknown else []
        if unknown and set(unknown) >= set(tokenize(text)):
            ranked = []
            notes = [f"no hits: the model knows none of these words: {', '.join(unknown)[:200]}"]
        notes += [gallery.note] if gallery is not None and gallery.note else []
        known = self._known("sentence", ranked, gallery, notes)
        own = self._captions_like(text)
        images = [self._image(k, *hit, own=own) for k, hit in _numbered(ranked[:top], known)]
        cut = self._cut("sentence", gallery)
        searched = len(gallery or ())
        return Results(text, "sentence", images, [], searched, 0, seconds, tuple(notes), *cut)

    def picture(self, picture: "Image", name: str, top: int = 10) -> Results:
        """Captions that fit a picture, and pictures like it."""
        if not hasattr(picture, "convert"):
            raise InputError(
                f"search for what? Give a sentence, a picture's file or a picture of Pillow, not "
                f"{picture!r:.60}."
            )
        row = self.recognise(picture)
        if row is not None:
            return self.row(row, top, name)
        start = perf_counter()
        return self._ranked(self.retriever.encode_pictures([picture]), name, top, start)

    def row(self, row: int, top: int = 10, name: str | None = None) -> Results:
        """The same for a picture of the split, by its row."""
        assert self.split is not None
        start = perf_counter()
        if self.folder is None and self.images is not None:
            query = self.images.items.select(slice(row, row + 1))
        elif self.split.features is not None:
            query = self.retriever.encode_features(self.split.features.rows(np.array([row])))
        else:
            assert self.split.pictures is not None
            query = self.retriever.encode_pictures([self.split.pictures.picture(row)])
        name = name or self.split.image_names[row]
        return self._ranked(query, name, top, start, row)

    def recognise(self, picture: "Image") -> int | None:
        """The row of a picture that belongs to the split, where only features can be read."""
        if self.split is None or self.split.features is None or self.split.pictures is None:
            return None
        return find_picture(picture, self.split, place_of(self.retriever).parent, self.fingerprint)

    def _ranked(
        self, query: Encoded, name: str, top: int, start: float, row: int | None = None
    ) -> Results:
        top = _checked(top)
        captions = self.captions.search(query, top + 1) if self.captions is not None else []
        like = self.images.like(query, top + 1) if self.images is not None else []
        if self.folder is None:
            like = [(r, score) for r, score in like if r != row]
        seconds = perf_counter() - start
        notes = []
        if row is not None and self.split is not None and name != self.split.image_names[row]:
            where = "data" if self.split.name == ALL else f"{self.split.name} split"
            notes.append(f"this is {self.split.image_names[row]} of the {where}")
        notes += [self.captions.note] if self.captions is not None and self.captions.note else []
        known = self._known("picture", captions, self.captions, notes)
        return Results(
            name,
            "picture",
            [self._image(k, *hit) for k, hit in _numbered(like[:top])],
            [self._caption(k, *hit, image=row) for k, hit in _numbered(captions[:top], known)],
            len(self.images or ()),
            len(self.captions or ()),
            seconds,
            tuple(notes),
            *self._cut("picture", self.captions),
        )

    def _known(
        self, kind: str, ranked: Ranked, gallery: Gallery | None, notes: list[str]
    ) -> Sequence[float | None]:
        """The probability of each hit; adds to `notes` why there is none, or why it is a guess."""
        if gallery is None or not ranked:
            return []
        calibration = self.sureness.of(kind)
        if calibration is None:
            notes.append(f"no probabilities: {self.sureness.why_not}")
            return []
        if calibration.far_from(len(gallery)):
            notes.append(
                f"no probabilities: how sure a hit is was learned among "
                f"{calibration.candidates:,}, and {len(gallery):,} are searched"
            )
            return []
        return calibration.probabilities([score for _, score in ranked], len(gallery))

    def _cut(self, kind: str, gallery: Gallery | None) -> tuple[float | None, float | None]:
        """The probability below which a best hit counts as nothing; and the share of queries that
        have no answer and are refused by it."""
        calibration = self.sureness.of(kind)
        if calibration is None or gallery is None or calibration.far_from(len(gallery)):
            return None, None
        return calibration.cut_off(len(gallery)), calibration.refused

    def _image(
        self, rank: int, row: int, score: float, p: float | None, own: Sequence[int] = ()
    ) -> Hit:
        if self.folder is not None:
            path = str(self.folder.root / self.folder.names[row])
            return Hit(rank, row, score, self.folder.names[row], (), probability=p, path=path)
        assert self.split is not None
        captions = tuple(self.split.captions[int(c)] for c in self.split.captions_of(row))
        right = self._fits(row, own[0]) if own else None
        return Hit(
            rank, row, score, self.split.image_names[row], captions, right, p, self._path(row)
        )

    def _caption(
        self, rank: int, row: int, score: float, p: float | None, image: int | None
    ) -> Hit:
        assert self.split is not None
        owner = int(self.split.image_of_caption[row])
        name = self.split.image_names[owner]
        right = None if image is None else self._fits(image, row)
        return Hit(rank, row, score, name, (self.split.captions[row],), right, p, self._path(owner))

    def _path(self, row: int) -> str | None:
        assert self.split is not None
        path = None if self.split.pictures is None else self.split.pictures.path(row)
        return None if path is None else str(path)

    def thumbnail(self, row: int, side: int) -> "Image | None":
        """The picture of a row of what is searched, small; None where it cannot be read."""
        try:
            if self.folder is not None:
                path = self.folder.root / self.folder.names[row]
                picture = open_picture(path, str(path), least=side)
            elif self.split is None or self.split.pictures is None:
                return None
            else:
                picture = self.split.pictures.picture(row)
        except InputError:
            return None
        picture.thumbnail((side, side))
        return picture

    def _fits(self, image: int, caption: int) -> bool:
        assert self.split is not None
        if int(self.split.image_of_caption[caption]) == image:
            return True
        truth = self.split.truth
        return truth is not None and bool(truth(np.array([image]), np.array([caption]))[0])

    def _captions_like(self, text: str) -> list[int]:
        return self._rows_of_caption.get(text.strip().lower(), [])

    @cached_property
    def _rows_of_caption(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for row, caption in enumerate(self.split.captions if self.split is not None else ()):
            found.setdefault(caption.strip().lower(), []).append(row)
        return found


def _numbered(
    ranked: Ranked, known: Sequence[float | None] = ()
) -> list[tuple[int, tuple[int, float, float | None]]]:
    """rank -> row, score and probability of each hit."""
    pairs = zip_longest(ranked, known[: len(ranked)])
    return [(k, (row, score, p)) for k, ((row, score), p) in enumerate(pairs, 1)]


def _checked(top: int) -> int:
    if not isinstance(top, int) or not 1 <= top <= MOST:
        raise InputError(f"`top` is 1 to {MOST:,}, not {top!r:.60}.")
    return top


def ask(searcher: Searcher, query: "str | Path | Image", top: int = 10) -> Results:
    """Search by a sentence, a picture, a picture's file, or the name of a picture of the split."""
    if not isinstance(query, str | Path):
        return searcher.picture(query, "picture", top)
    query, path = str(query), Path(query)
    try:
        is_file = path.is_file()
    except (OSError, ValueError):  # too long for a name, or a NUL in it: a sentence
        is_file = False
    if is_file:
        return searcher.picture(open_picture(path, str(path), least=512), path.name, top)
    names = searcher.split.image_names if searcher.split is not None else ()
    row = next((row for row, name in enumerate(names) if name == query), None)
    if row is not None:
        return searcher.row(row, top)
    if path.suffix.lower() in SUFFIXES and " " not in query:
        raise InputError(f"{query}: there is no such picture.")
    return searcher.sentence(query, top)
