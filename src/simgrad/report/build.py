"""From folders to a report: collect, compare, write each section, render."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import simgrad
from simgrad.core.errors import InputError
from simgrad.core.files import atomic_write
from simgrad.core.named_files import refuse_foreign
from simgrad.data.opening import open_dataset
from simgrad.pages.blocks import Section
from simgrad.report.comparison import comparison, crossed
from simgrad.report.examples import examples as show
from simgrad.report.headline import headline
from simgrad.report.material import Material, collect
from simgrad.report.negatives import false_negatives, mined
from simgrad.report.page import Report, page, write_markdown
from simgrad.report.provenance import provenance
from simgrad.report.replicates import replicates
from simgrad.report.retrieval import PictureLender, ShownPictures
from simgrad.report.standings import standings
from simgrad.report.training import finetuned, pushed, training
from simgrad.report.tuning import tuning
from simgrad.report.weights import cocos, diagrams

Format = Literal["html", "md", "pdf-ready"]
NAMES: dict[str, str] = {"html": "report.html", "md": "report.md", "pdf-ready": "report-print.html"}
_FOOT = "Written by simgrad"  # by this a report is known


def build_report(
    targets: Sequence[str | Path],
    *,
    batches: int = 4,
    pictures: bool = True,
    examples: Sequence[str] = (),
    photos: str | Path | None = None,
    device: str = "auto",
) -> Report:
    """The report of studies and runs; `batches` of each system are counted for COCOS, 0: none.

    `examples`: the labels of one or two settings whose finds are shown; by default the best and
    what it is compared with. `photos`: a data set with the pictures of data that have features
    alone; they are found by their captions.
    """
    material = collect(targets)
    found = standings(material)
    album = ShownPictures(None if photos is None else PictureLender(open_dataset(photos)))
    sections: list[Section | None] = [
        comparison(material, found),
        replicates(material, found),
        tuning(material),
        finetuned(material),
        training(material),
        pushed(material),
        cocos(material, batches, device) if batches else None,
        diagrams(material),
        crossed(material),
        *(show(material, found, album, device, examples) if pictures else []),
        false_negatives(material, album) if pictures else None,
        mined(material, album) if pictures else None,
        provenance(material),
    ]
    return Report(
        material.title,
        _subtitle(material),
        headline(material, found),
        [section for section in sections if section is not None],
        f"{_FOOT} {simgrad.__version__} on {time.strftime('%d %B %Y, %H:%M')}.",
        album.album,
    )


def _subtitle(material: Material) -> str:
    trained = [system for system in material.systems if not system.average_of]
    planned = sum(system.planned for system in trained)
    done = sum(len(system.ended) for system in trained)
    runs = f"{done} of {planned} runs finished" if done < planned else f"{done} runs"
    runs = "1 run" if runs == "1 runs" else runs
    data = list(dict.fromkeys(run.recipe.data.split("(")[0] for _, run in material.runs))
    models = list(dict.fromkeys(run.recipe.model.split("(")[0] for _, run in material.runs))
    parts = [f"{len(material.systems)} settings" if len(material.systems) > 1 else "", runs]
    parts += [", ".join(Path(name).name for name in data), ", ".join(models)]
    return " · ".join(part for part in parts if part)


def write_report(
    targets: Sequence[str | Path],
    output: str | Path | None = None,
    format: Format = "html",
    *,
    batches: int = 4,
    pictures: bool = True,
    examples: Sequence[str] = (),
    photos: str | Path | None = None,
    device: str = "auto",
) -> Path:
    """Write the report of studies and runs (see `build_report`); the path of what was written."""
    if format not in NAMES:
        raise InputError(f"a report is {', '.join(NAMES)}, not {format!r:.40}.")
    path = Path(output).expanduser() if output is not None else Path(NAMES[format])
    if path.is_dir() or not path.suffix:  # a folder, there or to be made
        path = path / NAMES[format]
    refuse_foreign(path, _FOOT)
    report = build_report(
        targets, batches=batches, pictures=pictures, examples=examples, photos=photos, device=device
    )
    if format == "md":
        write_markdown(report, path)
        return path
    with atomic_write(path) as file:
        file.write(page(report, paper=format == "pdf-ready"))
    return path
