"""Found pairs, one at a time: is this caption right of this picture? Every answer is kept at once.

The pairs are those of RUN/false-negatives, which `simgrad false-negatives RUN` writes.
"""

from pathlib import Path
from typing import Any

from simgrad.core.errors import InputError
from simgrad.core.files import read_json
from simgrad.data.base import Split
from simgrad.data.found import FOUND, Pair, add_answer, caption_names, read_found
from simgrad.serve.lab import Lab, NotFound
from simgrad.serve.service import picture_address

FOLDER, INFO = "false-negatives", "false-negatives.json"


def _folder(lab: Lab, run: str) -> Path:
    return lab.run(run).path / FOLDER


def count(lab: Lab, run: str) -> int:
    """How many pairs wait for an answer."""
    if not (_folder(lab, run) / FOUND).is_file():
        return 0
    try:
        return sum(pair.answer is None for pair in read_found(_folder(lab, run)))
    except InputError:
        return 0  # the page of the pairs says what is wrong


def _pairs(lab: Lab, run: str) -> list[Pair]:
    folder = _folder(lab, run)
    if not (folder / FOUND).is_file():
        raise NotFound(f"no pairs to judge: run `simgrad false-negatives` on {run} first.")
    return read_found(folder)


def question(lab: Lab, run: str, place: int | None) -> dict[str, Any]:
    """The pair at a place, or the first that nobody has answered."""
    pairs = _pairs(lab, run)
    waiting = [i for i, pair in enumerate(pairs) if pair.answer is None]
    answered = {said: sum(p.answer == said for p in pairs) for said in ("yes", "no", "unsure")}
    known: dict[str, Any] = {
        "run": run,
        "label": lab.label(run),
        "total": len(pairs),
        "waiting": len(waiting),
        "answered": answered,
        "pair": None,
    }
    if place is None:
        place = waiting[0] if waiting else None
    if place is None:
        return known
    if place >= len(pairs):
        raise NotFound(f"there are {len(pairs):,} pairs; none at place {place}.")
    pair = pairs[place]
    told = read_json(_folder(lab, run) / INFO)
    split = lab.split(run, str(told.get("split", "train")))
    image, other = _rows(split, pair)
    return known | {
        "pair": pair,
        "place": place,
        "picture": picture_address(run, split.name, image),
        "own": [split.captions[i] for i in split.captions_of(image)],
        "other": picture_address(run, split.name, other),
        "pictures": split.pictures is not None,
    }


def _rows(split: Split, pair: Pair) -> tuple[int, int]:
    """The row of the pair's image, and of the image that the caption was written for."""
    try:
        image = list(split.image_names).index(pair.image)
        caption = caption_names(split).index(pair.caption)
    except ValueError:
        raise InputError(
            f"'{pair.image[:80]}' or '{pair.caption[:80]}' is not in the {split.name} split: the "
            "pairs are of other data."
        ) from None
    return image, int(split.image_of_caption[caption])


def answer(lab: Lab, run: str, image: str, caption: str, said: str) -> None:
    """Keep an answer."""
    if not any((p.image, p.caption) == (image, caption) for p in _pairs(lab, run)):
        raise NotFound(f"there is no such pair to judge in {run}.")
    add_answer(_folder(lab, run), image, caption, said)
