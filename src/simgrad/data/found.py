"""Pairs that are right although nobody had marked them, and what people said of them.

A file has one line of JSON for each pair:

    {"image": "a.jpg", "caption": "b.jpg#2", "text": "two dogs run", "probability": 0.83,
     "answer": "yes"}

`answer` is yes, no or unsure; before a person has looked there is only the probability. Of two
lines on one pair the later counts, field by field. Lines that we write carry a checksum as well;
one without, of an earlier version or of your own, is read as it is. A folder holds found.jsonl,
which `simgrad false-negatives` writes, and answers.jsonl, to which every answer is added.
"""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from simgrad.core.derived import read_checked
from simgrad.core.errors import InputError
from simgrad.core.files import atomic_path, from_line, lock, refuse_link, to_line, writing
from simgrad.data.base import Rows, Split

FOUND, ANSWERS = "found.jsonl", "answers.jsonl"
FOLDER, INFO = "false-negatives", "false-negatives.json"  # of a run; what they were made from
CHOICES = ("yes", "no", "unsure")
_LONGEST = 1 << 20  # bytes of a line


@dataclass(frozen=True)
class Pair:
    """An image and a caption of another one."""

    image: str
    caption: str
    text: str = ""
    probability: float | None = None
    answer: str | None = None


@dataclass(frozen=True)
class FoundRows:
    """The pairs of a split: (k, 2) rows of images and captions."""

    right: Rows  # answered yes, or not answered and sure enough
    unsure: Rows  # answered so


def places_of(split: Split, pair: Pair) -> tuple[int, int]:
    """The rows of a pair's image and caption."""
    try:
        return list(split.image_names).index(pair.image), caption_names(split).index(pair.caption)
    except ValueError:
        raise InputError(
            f"'{pair.image[:80]}' or '{pair.caption[:80]}' is not in the {split.name} split: the "
            "pairs are of other data."
        ) from None


def split_name(folder: Path) -> str:
    """The split that a folder's pairs are of."""
    told = read_checked(folder / INFO)
    if not isinstance(told, dict) or not isinstance(told.get("split"), str):
        raise InputError(
            f"{folder / INFO}: does not say which split its pairs are of; run `simgrad "
            "false-negatives` again, answers stay."
        )
    return str(told["split"])


def caption_names(split: Split) -> list[str]:
    """What captions are called: their ids, or image and number, as Flickr8k does."""
    if split.caption_ids is not None:
        return list(split.caption_ids)
    seen: dict[int, int] = {}
    names = []
    for image in split.image_of_caption.tolist():
        place = seen[image] = seen.get(image, -1) + 1
        names.append(f"{split.image_names[image]}#{place}")
    return names


def write_found(path: Path, pairs: Iterable[Pair]) -> None:
    """All pairs, surest first or in whatever order."""
    with atomic_path(path) as temporary, open(temporary, "w", encoding="utf-8") as file:
        file.writelines(line_of(pair) for pair in pairs)


def line_of(pair: Pair) -> str:
    """One line of a file."""
    return to_line({key: value for key, value in vars(pair).items() if value not in (None, "")})


def read_found(place: str | Path) -> list[Pair]:
    """The pairs of a file, or of a folder with its answers; the last word on each counts."""
    path = Path(place).expanduser()
    files = [path / FOUND, path / ANSWERS] if path.is_dir() else [path]
    if not any(file.is_file() for file in files):
        raise InputError(f"{path}: no found pairs here; `simgrad false-negatives` writes them.")
    known: dict[tuple[str, str], dict[str, Any]] = {}
    for file in files:
        if file.is_file():
            for told in _lines(file):
                known.setdefault((told["image"], told["caption"]), {}).update(told)
    return [Pair(**told) for told in known.values()]


def _lines(file: Path) -> Iterable[dict[str, Any]]:
    with open(file, encoding="utf-8", errors="replace") as lines:
        whole = lines.read()
    # A kill may have cut the last line of the answers short: what came before it stands.
    every = whole.split("\n")
    for number, line in enumerate(every, 1):
        if not line.strip() or (number == len(every) and file.name == ANSWERS):
            continue
        where = f"{file}, line {number}"
        try:
            told = from_line(line, where)
        except InputError as error:
            raise InputError(
                f"{error} Copy the file again, or take this line out: the other pairs stay."
            ) from None
        yield _checked(told, where)


def _checked(told: Any, where: str) -> dict[str, Any]:
    if not isinstance(told, dict) or not {"image", "caption"} <= set(told):
        raise InputError(f"{where}: needs 'image' and 'caption', their names in the data.")
    known = {key: told[key] for key in Pair.__dataclass_fields__ if told.get(key) is not None}
    if not all(isinstance(known.get(key, ""), str) for key in ("image", "caption", "text")):
        raise InputError(f"{where}: image, caption and text are texts.")
    probability = known.get("probability", 0.0)
    if isinstance(probability, bool) or not isinstance(probability, int | float):
        raise InputError(f"{where}: the probability is a number from 0 to 1.")
    if not 0 <= probability <= 1:
        raise InputError(f"{where}: the probability is {probability}, not from 0 to 1.")
    if known.get("answer", "yes") not in CHOICES:
        raise InputError(
            f"{where}: an answer is {', '.join(CHOICES)}, not {known['answer']!r:.40}."
        )
    return known


def rows_of(
    pairs: Iterable[Pair], split: Split, sure: float = 0.5, *, place: str | Path = "found pairs"
) -> FoundRows:
    """Where the pairs stand in a split; those of other splits, and own pairs, are left out.

    `sure`: a pair that nobody has answered counts as right from this probability on. `place`:
    where they were read, for messages.
    """
    images = {name: row for row, name in enumerate(split.image_names)}
    captions = {name: row for row, name in enumerate(caption_names(split))}
    right, unsure = [], []
    for pair in pairs:
        row = images.get(pair.image), captions.get(pair.caption)
        if row[0] is None or row[1] is None or split.image_of_caption[row[1]] == row[0]:
            continue
        if pair.text and pair.text != split.captions[row[1]]:
            raise InputError(
                f"{place}: caption {pair.caption} is '{pair.text[:60]}' there and "
                f"'{split.captions[row[1]][:60]}' in {split.dataset}: they are of other data."
            )
        if pair.answer == "yes" or (pair.answer is None and (pair.probability or 0) >= sure):
            right.append(row)
        elif pair.answer == "unsure":
            unsure.append(row)
    tables = (np.array(rows, dtype=np.int64).reshape(-1, 2) for rows in (right, unsure))
    return FoundRows(*tables)


def add_answer(folder: Path, image: str, caption: str, answer: str) -> None:
    """Add one answer to a folder; it is on the disk when this returns."""
    if answer not in CHOICES:
        raise InputError(f"an answer is {', '.join(CHOICES)}, not {answer!r:.40}.")
    line = line_of(Pair(image, caption, answer=answer)).encode()
    path = folder / ANSWERS
    with lock(folder / ".lock", what=f"the answers {path}"), writing(path):
        refuse_link(path)
        with open(path, "a+b") as file:
            file.truncate(_whole(file))
            file.write(line)
            file.flush()
            os.fsync(file.fileno())


def _whole(file: IO[bytes]) -> int:
    """Where the last whole line ends: a kill may have cut the one behind it short."""
    end = file.seek(0, os.SEEK_END)
    start = max(0, end - _LONGEST)
    file.seek(start)
    tail = file.read()
    return start + tail.rfind(b"\n") + 1 if tail and not tail.endswith(b"\n") else end
