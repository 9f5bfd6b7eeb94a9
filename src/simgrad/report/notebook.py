"""`simgrad.plot(run)`: a run, some runs or a study, drawn in a notebook."""

from pathlib import Path

from simgrad.pages.blocks import Block, Inline, Paragraph
from simgrad.pages.notebook import Shown
from simgrad.report.headline import headline
from simgrad.report.material import collect
from simgrad.report.standings import standings
from simgrad.report.training import pushed, training
from simgrad.runs.run import Run
from simgrad.studies.study import Study


def plot(*targets: "str | Path | Run | Study") -> Shown:
    """Who leads and how sure that is, and how training went.

    Takes runs and studies, or their folders.

    Examples:
        >>> shown = simgrad.plot("runs/first")  # a notebook draws it
        >>> print(shown)
        nt-xent reaches ... rsum ... on the test split, with one seed.
        >>> path = shown.save("curves.html")
    """
    paths = [t.path if isinstance(t, Run | Study) else Path(t) for t in targets]
    material = collect(paths)
    head = headline(material, standings(material))
    sections = [training(material), pushed(material)]
    curves: list[Block] = [b for s in sections if s is not None for b in s.blocks]
    first = next((block for block in head if isinstance(block, Paragraph)), None)
    text = "" if first is None else "".join(map(_plain, first.words))
    return Shown([*head, *curves], text or material.title)


def _plain(word: Inline) -> str:
    return word if isinstance(word, str) else word.text
