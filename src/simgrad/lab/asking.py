"""Found pairs, one at a time: is this caption true of this picture? Every answer is kept at once.

The pairs are those of RUN/false-negatives, which `simgrad false-negatives RUN` writes.
"""

from pathlib import Path
from typing import Any

from simgrad.core.errors import InputError
from simgrad.data.found import (
    FOLDER,
    FOUND,
    Pair,
    add_answer,
    places_of,
    read_found,
    split_name,
)
from simgrad.lab.lab import Lab, NotFound
from simgrad.lab.service import picture_address


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
    split = lab.split(run, split_name(_folder(lab, run)))
    image, caption = places_of(split, pair)
    return known | {
        "pair": pair,
        "place": place,
        "picture": picture_address(run, split.name, image),
        "own": [split.captions[i] for i in split.captions_of(image)],
        "other": picture_address(run, split.name, int(split.image_of_caption[caption])),
        "pictures": split.pictures is not None,
    }


def answer(lab: Lab, run: str, image: str, caption: str, said: str) -> None:
    """Keep an answer."""
    if not any((p.image, p.caption) == (image, caption) for p in _pairs(lab, run)):
        raise NotFound(f"there is no such pair to judge in {run}.")
    add_answer(_folder(lab, run), image, caption, said)
