"""Retrieved examples as pictures, and the cases in which two objectives disagree most."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from simgrad.core.errors import InputError
from simgrad.core.text import did_you_mean
from simgrad.data.base import Dataset, Rows, Split
from simgrad.evaluation import Ranks
from simgrad.pages.blocks import (
    Block,
    Example,
    Examples,
    Key,
    Line,
    Mark,
    Paragraph,
    Section,
    Strip,
    Thumb,
)
from simgrad.report.material import Material, System
from simgrad.report.retrieval import RetrievedRows, ShownPictures, retrieve
from simgrad.report.standings import GroupStanding
from simgrad.runs.run import Run

_SENTENCES, _PICTURES, _DISAGREEMENTS = 4, 3, 6


@dataclass(frozen=True)
class _Shown:
    """A system whose results are shown."""

    system: System
    key: Key
    run: Run
    ranks: list[Ranks]  # [] where they do not belong to this split
    found: RetrievedRows


def examples(
    material: Material,
    standings: list[GroupStanding],
    pictures: ShownPictures,
    device: str = "auto",
    only: Sequence[str] = (),
) -> list[Section]:
    """Two sections; none where there is no checkpoint to ask. `only`: the settings to ask."""
    chosen = _named(material, only) if only else _choose(standings)
    if not chosen:
        return []
    try:
        dataset = chosen[0][1].dataset()
        split = _split(dataset, chosen[0][1])
        asked = _Queries(split, [_ranks_on(system, split) for system, _ in chosen])
        shown = [
            _Shown(system, Key(system.label, material.colour(system)), run, ranks,
                   retrieve(run, split, asked.captions, asked.images, device))
            for (system, run), ranks in zip(chosen, asked.ranks, strict=True)
        ]  # fmt: skip
    except InputError as error:
        words = f"The data could not be opened, so there are no pictures here: {error}"
        blocks = [Paragraph([words], "note")]
        return [Section("examples", "What it finds", "Examples", blocks)]
    writer = _Writer(split, pictures, asked, shown)
    sections = [_retrieved(writer)]
    if asked.disagreements or asked.disagreed_images:
        sections.append(_disagreed(writer))
    return sections


def _choose(standings: list[GroupStanding]) -> list[tuple[System, Run]]:
    """The best system and what it is compared with, each with a run that has a checkpoint."""
    for standing in standings:
        order = list(standing.order)
        if standing.baseline in order[1:]:
            order = [order[0], standing.baseline]
        found = [(s, s.with_checkpoint) for s in order]
        known = [(s, run) for s, run in found if run is not None]
        if known:
            return known[:2]
    return []


def _named(material: Material, only: Sequence[str]) -> list[tuple[System, Run]]:
    """The settings of these labels, each with a run that has a checkpoint."""
    if len(only) > 2:
        raise InputError(f"`examples`: {len(only)} settings are named; give one or two.")
    trained = {s.label: s for s in material.systems if s.with_checkpoint is not None}
    found = []
    for label in only:
        if label not in trained:
            near = did_you_mean(label, list(trained))
            hint = f"Did you mean '{near}'?" if near else f"There are: {', '.join(trained)}."
            raise InputError(f"`examples`: {label[:80]}: no such setting has a checkpoint. {hint}")
        run = trained[label].with_checkpoint
        assert run is not None
        found.append((trained[label], run))
    return found


def _split(dataset: Dataset, run: Run) -> Split:
    name = run.recipe.tested_split(dataset)
    return dataset.split(name if name in dataset.splits else "val")


def _ranks_on(system: System, split: Split) -> list[Ranks]:
    """Kept ranks, if they are of this split as it is now."""
    ranks = system.ranks if split.name != "val" else []
    same = all(np.array_equal(r.image_of_caption, split.image_of_caption) for r in ranks)
    return ranks if same else []


class _Queries:
    """What is asked: some queries at random, and those on which two systems disagree most."""

    def __init__(self, split: Split, ranks: list[list[Ranks]]) -> None:
        self.ranks = ranks
        random = np.random.default_rng(0)
        drawn = random.permutation(split.num_images)[: _SENTENCES + _PICTURES]
        drawn = np.array([i for i in drawn if len(split.captions_of(int(i)))], dtype=np.int64)
        pictures = np.sort(drawn[_SENTENCES:]).tolist()
        first = [int(random.choice(split.captions_of(int(i)))) for i in drawn[:_SENTENCES]]
        two = len(ranks) == 2
        self.disagreements = most_different(ranks, split) if two else []
        self.disagreed_images = most_different_images(ranks) if two else []
        self.random_sentences, self.random_pictures = first, pictures
        self.captions: Rows = np.array([*first, *self.disagreements], dtype=np.int64)
        self.images: Rows = np.array([*pictures, *self.disagreed_images], dtype=np.int64)


def most_different(ranks: Sequence[list[Ranks]], split: Split) -> list[int]:
    """Captions whose image two systems rank most differently, in turns for the one and the other.

    Ranks are compared on a logarithmic scale, on average over seeds; an image appears once.
    """
    found = [[r.t2i for r in runs] for runs in ranks]
    return _furthest_apart(found, split.image_of_caption, _DISAGREEMENTS)


def most_different_images(ranks: Sequence[list[Ranks]]) -> list[int]:
    """The same for images, by where their best caption stands."""
    found = [[r.i2t for r in runs] for runs in ranks]
    own = np.arange(len(found[0][0]) if all(found) else 0)
    return _furthest_apart(found, own, _PICTURES + 1)


def _furthest_apart(found: list[list[Rows]], image_of_query: Rows, most: int) -> list[int]:
    """Queries that two systems rank most differently; no two of one image."""
    if not all(found):
        return []
    middle = [np.mean([np.log(each) for each in runs], axis=0) for runs in found]
    gap = middle[0] - middle[1]
    chosen: list[int] = []
    images: set[int] = set()
    for sign in (1, -1):
        for row in np.argsort(sign * gap, kind="stable").tolist():
            image = int(image_of_query[row])
            if len(chosen) == (most // 2 if sign == 1 else most):
                break
            if sign * gap[row] >= -1e-9:
                break  # no disagreement left on this side
            if image not in images:
                chosen.append(row)
                images.add(image)
    return chosen


class _Writer:
    """Turns what was found into examples."""

    def __init__(
        self, split: Split, pictures: ShownPictures, asked: _Queries, shown: list[_Shown]
    ) -> None:
        self.split, self.pictures, self.asked, self.shown = split, pictures, asked, shown

    def thumb(self, image: int, mark: Mark = "") -> Thumb:
        return Thumb(self.pictures.add(self.split, image), self.split.image_names[image], mark)

    def sentence(self, place: int) -> Example:
        """A caption query."""
        row = int(self.asked.captions[place])
        own = int(self.split.image_of_caption[row])
        strips = []
        for one in self.shown:
            found = one.found.images[place].tolist()
            thumbs = [self.thumb(i, self._mark(i, row)) for i in found]
            seeds = [int(r.t2i[row]) for r in one.ranks]
            outcome = _outcome("its picture", seeds or [int(one.found.image_rank[place])],
                               self.split.num_images if seeds else one.found.pool)  # fmt: skip
            strips.append(Strip(one.key, outcome, thumbs=thumbs))
        return Example(self.split.captions[row], strips, self.thumb(own))

    def picture(self, place: int) -> Example:
        """An image query."""
        image = int(self.asked.images[place])
        strips = []
        for one in self.shown:
            rows = one.found.captions[place].tolist()
            lines = [Line(self.split.captions[r], self._mark(image, r)) for r in rows]
            seeds = [int(r.i2t[image]) for r in one.ranks]
            outcome = _outcome("its best caption", seeds or [int(one.found.caption_rank[place])],
                               self.split.num_captions if seeds else 0)  # fmt: skip
            strips.append(Strip(one.key, outcome, lines=lines))
        return Example(None, strips, self.thumb(image))

    def _mark(self, image: int, caption: int) -> Mark:
        if self.split.image_of_caption[caption] == image:
            return "right"
        truth = self.split.truth
        if truth is not None and bool(truth(np.array([image]), np.array([caption]))[0]):
            return "true"
        return ""

    def note(self) -> str:
        """What the marks mean, and among how many candidates."""
        pool, whole = self.shown[0].found.pool, self.split.num_images
        among = f"{whole:,}" if pool == whole else f"{pool:,} of {whole:,}"
        text = f"The first five among {among} images of the {self.split.name} split. "
        if any(len(one.ranks) > 1 for one in self.shown):
            text += "Ranks are of all seeds, in their order; what is shown is the first one's. "
        text += "✓ marks what belongs together"
        text += ", ~ what is true all the same. " if self.split.truth else ". "
        if not self.pictures.has(self.split):
            text += "This data has features but no pictures, so images go by their names. "
        elif self.pictures.left_out:
            text += f"{self.pictures.left_out} pictures could not be read or had no room. "
        return text


def _outcome(what: str, ranks: Sequence[int], of: int) -> str:
    if len(ranks) > 1:
        *first, last = (f"{rank:,}" for rank in ranks)
        return f"{what} at rank {', '.join(first)} and {last} ({len(ranks)} seeds)"
    return f"{what} at rank {ranks[0]:,}" + (f" of {of:,}" if of else "")


def _retrieved(writer: _Writer) -> Section:
    count = len(writer.asked.random_sentences)
    found = [writer.sentence(i) for i in range(count)]
    found += [writer.picture(i) for i in range(len(writer.asked.random_pictures))]
    words = "Queries drawn at random, not chosen. " + writer.note()
    blocks: list[Block] = [Paragraph([words]), Examples(found)]
    return Section("examples", "What it finds", "Examples", blocks)


def _disagreed(writer: _Writer) -> Section:
    count = len(writer.asked.random_sentences)
    places = range(count, count + len(writer.asked.disagreements))
    first, second = (one.key for one in writer.shown)
    rest = " differ most: first those on which the former does better, then the latter."
    words = Paragraph(["The captions, then the pictures, on which ", first, " and ", second, rest])
    found = [writer.sentence(i) for i in places]
    begin = len(writer.asked.random_pictures)
    found += [writer.picture(begin + i) for i in range(len(writer.asked.disagreed_images))]
    blocks: list[Block] = [words, Examples(found)]
    return Section("disagreements", "Where two settings disagree most", "Disagreements", blocks)
