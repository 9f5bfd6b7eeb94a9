"""`simgrad.plot(run)`: a run, some runs or a study, drawn in a notebook."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from simgrad.pages.blocks import Block, Inline, Paragraph
from simgrad.pages.rendering import Shown
from simgrad.report.headline import headline
from simgrad.report.material import collect
from simgrad.report.standings import standings
from simgrad.report.training import pushed, training

Target = str | os.PathLike[str]


def plot(*targets: Target | Sequence[Target], output: str | Path | None = None) -> Shown:
    """Who leads and how sure that is, and how training went.

    Takes runs, studies and answers of `choose`, or their folders, or a list of these. `output` is a
    page to write, .html or .htm.

    Examples:
        >>> shown = simgrad.plot("runs/first")  # a notebook draws it
        >>> print(shown)
        nt-xent reaches ... rsum ... on the test split, with one seed.
        >>> path = shown.save("curves.html")
    """
    each: list[Any] = []
    for one in targets:
        each += one if isinstance(one, list | tuple) else [one]
    material = collect([Path(one) for one in each])
    head = headline(material, standings(material))
    sections = [training(material), pushed(material)]
    curves: list[Block] = [b for s in sections if s is not None for b in s.blocks]
    first = next((block for block in head if isinstance(block, Paragraph)), None)
    text = "" if first is None else "".join(map(_plain, first.words))
    shown = Shown([*head, *curves], text or material.title)
    if output is not None:
        shown.save(output)
    return shown


def _plain(word: Inline) -> str:
    return word if isinstance(word, str) else word.text
