"""Pairs that are probably right although nobody marked them, where a run has looked for them."""

from simgrad.core.errors import InputError
from simgrad.data.base import Split
from simgrad.data.found import FOLDER, FOUND, Pair, places_of, read_found, split_name
from simgrad.pages.blocks import Example, Examples, Key, Line, Paragraph, Section, Strip, Thumb
from simgrad.report.material import Material
from simgrad.report.retrieval import ShownPictures

_SHOWN = 12


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
            shown = [_example(pair, split, key, pictures) for pair in pairs[:_SHOWN]]
        except (InputError, OSError) as error:
            words = f"The pairs in {folder.name} cannot be shown: {error}"
            return _section([Paragraph([words])])
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
        return _section([Paragraph([words]), Examples(shown)])
    return None


def _section(blocks: list[Paragraph | Examples]) -> Section:
    title = "Right, although nobody marked them"
    return Section("false-negatives", title, "False negatives", blocks)


def _example(pair: Pair, split: Split, key: Key, pictures: ShownPictures) -> Example:
    image, _ = places_of(split, pair)
    sure = "" if pair.probability is None else f"right with probability {pair.probability:.2f}"
    outcome = ", ".join(filter(None, (sure, pair.answer and f"people say {pair.answer}")))
    own = [Line(split.captions[row], note="its own") for row in split.captions_of(image)]
    thumb = Thumb(pictures.add(split, image), split.image_names[image])
    return Example(pair.text, [Strip(key, outcome, lines=own)], thumb)
