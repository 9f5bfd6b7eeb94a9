"""Negatives as pictures: those mined for a second round, and false ones that were found."""

from collections.abc import Sequence

import numpy as np

from simgrad.core.errors import InputError
from simgrad.data.base import Split
from simgrad.data.candidates import Candidates
from simgrad.data.found import FOLDER, FOUND, Pair, places_of, read_found, split_name
from simgrad.pages.blocks import (
    Block,
    Example,
    Examples,
    Key,
    Line,
    Paragraph,
    Section,
    Strip,
    Thumb,
)
from simgrad.report.material import Material, System
from simgrad.report.retrieval import ShownPictures
from simgrad.runs.run import Run

_QUERIES, _SHOWN_OF_QUERY = 3, 5
_WORDS = (
    "The hardest negatives that the first round found in the training set, for captions and for "
    "pictures drawn at random, hardest first. Some may be true: nobody has checked."
)
_ASKED = "Captions of other pictures, taken for this one's"


def mined(material: Material, pictures: ShownPictures) -> Section | None:
    """The section about the first run that was trained with mined lists; None without one."""
    for system, run in material.runs:
        if run.recipe.candidates is None:
            continue
        try:
            lists = Candidates.load(run.recipe.candidates)
            split = run.dataset().split("train")
            lists.check(split)
        except InputError as error:
            words = f"What was mined cannot be shown: {error}"
            return _mined([Paragraph([words], "note")])
        return _mined(_blocks(material, system, run, lists, split, pictures))
    return None


def _mined(blocks: Sequence[Block]) -> Section:
    return Section("mined", "What was mined", "Mined", list(blocks))


def _blocks(
    material: Material,
    system: System,
    run: Run,
    lists: Candidates,
    split: Split,
    pictures: ShownPictures,
) -> list[Block]:
    key = Key(system.label, material.colour(system))
    drawn = np.random.default_rng(0).permutation(split.num_images)[: 2 * _QUERIES]
    depth = f"the first of {run.recipe.depth}"

    def thumb(image: int) -> Thumb:
        return Thumb(pictures.add(split, image), split.image_names[image], "")

    found = []
    for image in drawn[:_QUERIES].tolist():
        own = split.captions_of(image)
        if len(own):
            rows = [int(i) for i in lists.t2i[own[0]][:_SHOWN_OF_QUERY] if i >= 0]
            strip = Strip(key, depth, thumbs=[thumb(i) for i in rows])
            found.append(Example(split.captions[own[0]], [strip], thumb(image)))
    for image in drawn[_QUERIES:].tolist():
        rows = [int(i) for i in lists.i2t[image][:_SHOWN_OF_QUERY] if i >= 0]
        lines = [Line(split.captions[i], "") for i in rows]
        found.append(Example(None, [Strip(key, depth, lines=lines)], thumb(image), _ASKED))
    return [Paragraph([_WORDS]), Examples(found)]


_SHOWN_PAIRS = 12


def false_negatives(material: Material, pictures: ShownPictures) -> Section | None:
    """The surest finds of the first run that has some; None where none has."""
    for system, run in material.runs:
        folder = run.path / FOLDER
        if not (folder / FOUND).is_file():
            continue
        try:
            pairs = read_found(folder)
            split = run.dataset().split(split_name(folder))
            key = Key(system.label, material.colour(system))
            shown = [_example(pair, split, key, pictures) for pair in pairs[:_SHOWN_PAIRS]]
        except (InputError, OSError) as error:
            words = f"The pairs in {folder.name} cannot be shown: {error}"
            return _found([Paragraph([words])])
        said = {answer: sum(p.answer == answer for p in pairs) for answer in ("yes", "no")}
        told = (
            f" People answered {said['yes']:,} yes and {said['no']:,} no."
            if any(said.values())
            else " Nobody has judged them yet."
        )
        words = (
            f"The {len(shown)} most probable of {len(pairs):,} pairs of the {split.name} split. "
        )
        words += "They count as negatives in training and as errors in evaluation." + told
        return _found([Paragraph([words]), Examples(shown)])
    return None


def _found(blocks: list[Paragraph | Examples]) -> Section:
    title = "Right, although nobody marked them"
    return Section("false-negatives", title, "False negatives", blocks)


def _example(pair: Pair, split: Split, key: Key, pictures: ShownPictures) -> Example:
    image, _ = places_of(split, pair)
    sure = "" if pair.probability is None else f"right with probability {pair.probability:.2f}"
    outcome = ", ".join(filter(None, (sure, pair.answer and f"people say {pair.answer}")))
    own = [Line(split.captions[row], note="its own") for row in split.captions_of(image)]
    thumb = Thumb(pictures.add(split, image), split.image_names[image])
    return Example(pair.text, [Strip(key, outcome, lines=own)], thumb)
