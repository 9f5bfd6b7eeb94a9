"""Mined negatives as training data for others: sentence-transformers' columns.

Image -> caption: the anchor is a picture, positive and negatives are captions; caption -> image
the other way round. A triplet has the columns anchor, positive, negative; an n-tuple anchor,
positive, negative_1 to negative_n. A picture is given by its file, or where it has none of its
own, by its name.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from simgrad.core.errors import InputError
from simgrad.core.files import atomic_path
from simgrad.data.array_files import package
from simgrad.data.base import Rows, Split
from simgrad.data.candidates import Candidates, Lists

Direction = Literal["i2t", "t2i"]
Sampling = Literal["top", "random", "score"]
Shape = Literal["triplet", "n-tuple"]
_ROWS = 50_000  # of a table that are made at a time
_TEMPERATURE = 0.05  # of sampling by score: 0.05 more similar is drawn e times as often


@dataclass(frozen=True)
class Tuples:
    """Rows of anchor, positive and negatives."""

    anchor: Rows  # (rows,) images or captions, by direction
    positive: Rows  # (rows,) of the other kind
    negatives: Lists  # (rows, n) of the other kind
    direction: Direction

    def __len__(self) -> int:
        return len(self.anchor)

    @property
    def columns(self) -> list[str]:
        """sentence-transformers' names."""
        count = self.negatives.shape[1]
        rest = ["negative"] if count == 1 else [f"negative_{i + 1}" for i in range(count)]
        return ["anchor", "positive", *rest]


def chosen(
    lists: Lists,
    scores: npt.NDArray[Any] | None,
    count: int,
    sampling: Sampling = "top",
    seed: int = 0,
) -> Lists:
    """(queries, count) of each query's candidates, hardest first; -1 where there are too few.

    top: the hardest; random: any; score: the more similar, the more often.
    """
    lists = np.asarray(lists)
    if count < 1:
        raise InputError(f"num_negatives is {count}; it must be at least 1.")
    if sampling == "top":
        return _padded(lists[:, :count], count)
    if sampling == "score" and scores is None:
        raise InputError("sampling by score needs the candidates' scores: mine with scores.")
    random = np.random.default_rng(seed)
    # The largest keys of weight + Gumbel noise are a draw without replacement.
    noise = random.gumbel(size=lists.shape)
    keys = noise if scores is None or sampling == "random" else scores / _TEMPERATURE + noise
    keys = np.where(lists < 0, -np.inf, keys)
    count_here = min(count, lists.shape[1])
    places = np.sort(np.argsort(-keys, axis=1, kind="stable")[:, :count_here], axis=1)
    drawn = np.take_along_axis(lists, places, axis=1)
    drawn = np.take_along_axis(drawn, np.argsort(drawn < 0, axis=1, kind="stable"), axis=1)
    return _padded(drawn, count)


def _padded(lists: Lists, count: int) -> Lists:
    wide = count - lists.shape[1]
    return np.pad(lists, ((0, 0), (0, wide)), constant_values=-1).astype(np.int32)


def tuples_of(
    found: Candidates,
    image_of_caption: Rows,
    direction: Direction,
    shape: Shape = "triplet",
    *,
    num_negatives: int = 3,
    sampling: Sampling = "top",
    seed: int = 0,
) -> Tuples:
    """Every own pair with its query's negatives; pairs with too few are left out of n-tuples."""
    captions = np.arange(len(image_of_caption))
    if direction == "i2t":
        anchor, positive = image_of_caption, captions
        lists, scores = found.i2t, found.i2t_scores
    else:
        anchor, positive = captions, image_of_caption
        lists, scores = found.t2i, found.t2i_scores
    # Of each query once: all pairs of an image share its negatives.
    negatives = chosen(lists, scores, num_negatives, sampling, seed)[anchor]
    if shape == "triplet":
        row, place = np.nonzero(negatives >= 0)
        single = negatives[row, place][:, None]
        return Tuples(anchor[row], positive[row], single, direction)
    full = (negatives >= 0).all(1)
    return Tuples(anchor[full], positive[full], negatives[full], direction)


def picture_names(split: Split) -> list[str]:
    """Each image's file, or its name."""
    pictures = split.pictures
    if pictures is None:
        return list(split.image_names)
    paths = (pictures.path(row) for row in range(split.num_images))
    return [str(p) if p is not None else split.image_names[row] for row, p in enumerate(paths)]


def blocks_of(
    tuples: Tuples, images: list[str], captions: list[str]
) -> Iterator[dict[str, list[str]]]:
    """Columns of text, some thousand rows at a time."""
    names = (images, captions) if tuples.direction == "i2t" else (captions, images)
    for start in range(0, len(tuples), _ROWS):
        part = slice(start, start + _ROWS)
        others = [tuples.positive[part], *tuples.negatives[part].T]
        cells = [[names[0][i] for i in tuples.anchor[part]]]
        cells += [[names[1][i] for i in rows] for rows in others]
        yield dict(zip(tuples.columns, cells, strict=True))


def write_tuples(path: str | Path, tuples: Tuples, images: list[str], captions: list[str]) -> Path:
    """A .parquet or .jsonl file; any other name is a folder: a Hugging Face data set."""
    path = check_place(path)
    if not len(tuples):
        raise InputError(f"{path}: no query has enough negatives left; loosen the filters.")
    writers = {".parquet": _parquet, ".jsonl": _jsonl, "": _huggingface}
    writers[path.suffix](path, tuples, images, captions)
    return path


def check_place(path: str | Path) -> Path:
    """Refuse a place that cannot be written to, before hours of mining."""
    path = Path(path).expanduser()
    if path.suffix not in (".parquet", ".jsonl", ""):
        raise InputError(
            f"{path}: negatives are written as .parquet or .jsonl, or as a folder (Hugging Face)."
        )
    if not path.suffix:
        package(str(path))
    return path


def _jsonl(path: Path, tuples: Tuples, images: list[str], captions: list[str]) -> None:
    with atomic_path(path) as temporary, open(temporary, "w", encoding="utf-8") as file:
        for block in blocks_of(tuples, images, captions):
            for row in zip(*block.values(), strict=True):
                line = dict(zip(block, row, strict=True))
                file.write(json.dumps(line, ensure_ascii=False) + "\n")


def _parquet(path: Path, tuples: Tuples, images: list[str], captions: list[str]) -> None:
    import pyarrow.parquet as parquet

    tables = _tables(tuples, images, captions)
    first = next(tables)
    with atomic_path(path) as temporary, parquet.ParquetWriter(temporary, first.schema) as writer:
        for table in (first, *tables):
            writer.write_table(table)


def _huggingface(path: Path, tuples: Tuples, images: list[str], captions: list[str]) -> None:
    """What `datasets.load_from_disk` opens; pictures with a file are decoded when they are read."""
    import pyarrow as arrow

    datasets = package(str(path))
    are_files = all(Path(name).is_file() for name in images)
    image = datasets.Image() if are_files else datasets.Value("string")
    text = datasets.Value("string")
    one, other = (image, text) if tuples.direction == "i2t" else (text, image)
    kinds = {name: one if name == "anchor" else other for name in tuples.columns}
    made = datasets.Dataset(arrow.concat_tables(_tables(tuples, images, captions)))
    shown = datasets.are_progress_bars_disabled()
    datasets.disable_progress_bars()  # two of them for each file
    try:
        made.cast(datasets.Features(kinds)).save_to_disk(path)
    finally:
        if not shown:
            datasets.enable_progress_bars()


def _tables(tuples: Tuples, images: list[str], captions: list[str]) -> Iterator[Any]:
    import pyarrow as arrow

    schema = arrow.schema([(name, arrow.string()) for name in tuples.columns])
    for block in blocks_of(tuples, images, captions):
        yield arrow.table(block, schema=schema)
