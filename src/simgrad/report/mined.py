"""Mined negatives as pictures: what a second round was trained against."""

from collections.abc import Sequence

import numpy as np

from simgrad.core.errors import InputError
from simgrad.data.base import Split
from simgrad.data.candidates import Candidates
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

_QUERIES, _SHOWN = 3, 5
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
            return _section([Paragraph([words], "note")])
        return _section(_blocks(material, system, run, lists, split, pictures))
    return None


def _section(blocks: Sequence[Block]) -> Section:
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
            rows = [int(i) for i in lists.t2i[own[0]][:_SHOWN] if i >= 0]
            strip = Strip(key, depth, thumbs=[thumb(i) for i in rows])
            found.append(Example(split.captions[own[0]], [strip], thumb(image)))
    for image in drawn[_QUERIES:].tolist():
        rows = [int(i) for i in lists.i2t[image][:_SHOWN] if i >= 0]
        lines = [Line(split.captions[i], "") for i in rows]
        found.append(Example(None, [Strip(key, depth, lines=lines)], thumb(image), _ASKED))
    return [Paragraph([_WORDS]), Examples(found)]
