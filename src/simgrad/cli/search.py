"""`simgrad search`: pictures by a sentence, captions by a picture."""

import os
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import tyro

from simgrad.core.console import console, reporting, say_wrapped
from simgrad.core.errors import InputError
from simgrad.retriever.opening import open_either
from simgrad.retriever.search import ALL, Searcher, ask
from simgrad.search.approximate import AUTO
from simgrad.search.results import Hit, Results, percent


def search(
    words: Annotated[
        tuple[str, ...],
        tyro.conf.Positional,
        tyro.conf.arg(metavar="[RUN] SENTENCE|PICTURE", help_behavior_hint=""),
    ],
    *,
    model: str | None = None,
    folder: Path | None = None,
    data: str | None = None,
    features: str | None = None,
    split: str = ALL,
    top: int = 10,
    sure: float | None = None,
    index: str = AUTO,
    device: str = "auto",
) -> dict[str, Any]:
    """Find pictures by a sentence, or captions by a picture.

    Args:
        words: the output of `simgrad choose`, a run or a study, or a checkpoint that `simgrad
            import` wrote; then a sentence, or a picture: its file, or its name in the data
        model: a pretrained model as it is, instead of a run, with --data or --folder:
            "clip(source=FOLDER_OR_HUB_NAME)"
        folder: search the pictures in this folder instead of the data's
        data: search this data set instead of the run's; an imported checkpoint needs one
        features: a folder of features for that data, if the model reads features
        split: split of the data to search; by default all of them
        top: number of results
        sure: probability from which a hit counts, 0 to 1; by default learned on the validation
            split, like the probabilities
        index: auto (exact below a million items, above it an index of FAISS chosen by size and
            memory), exact, or a factory string of FAISS, such as IVF4096,Flat or HNSW32. How much
            of the exact answer an index finds is measured when it is built, and printed
        device: auto, cpu, cuda, cuda:N or mps
    """

    if sure is not None and not 0 <= sure <= 1:
        raise InputError(f"--sure is a probability, 0 to 1, not {sure}.")
    if len(words) != (2 if model is None else 1):
        raise InputError("give a run and a sentence or picture; with --model, no run.")
    query = words[-1]
    place = {"data": data, "features": features, "device": device}
    opened = open_either(words[0] if model is None else None, model, **place)
    with reporting("embedding") as report:
        searcher = opened.searcher(split, folder, index=index, report=report)
        results = ask(searcher, query, top)
    _print(searcher, results, sure)
    return {**asdict(results), "verdict": results.verdict(sure)}


def _print(searcher: Searcher, results: Results, sure: float | None) -> None:
    out = console()
    what = f"{results.searched_captions:,} captions"
    if results.kind == "sentence" or not results.captions:
        what = f"{results.searched_images:,} pictures"
    out.print(f"{results.query}: best of {what}", style="bold")
    cut = results.cut_off if sure is None else sure
    for hit in results.asked or results.images:
        _print_hit(hit, cut)
    if results.kind == "picture" and results.captions and results.images:
        out.print(f"\nlike it, of {results.searched_images:,} pictures", style="bold")
        for hit in results.images:
            _print_hit(hit, cut)
    _print_notes(searcher, results, sure)


def _print_notes(searcher: Searcher, results: Results, sure: float | None) -> None:
    """How sure that is, and what else there is to know."""
    told = results.told(sure)
    notes = list(results.notes)
    if searcher.folder is not None and searcher.folder.skipped:
        names = ", ".join(list(searcher.folder.skipped)[:3])
        notes.append(f"{len(searcher.folder.skipped)} unreadable pictures skipped: {names}")
    if told or notes:
        console().print()
    if told:
        say_wrapped(told)
    for note in notes:
        say_wrapped(f"({note})")


def _place(hit: Hit) -> str:
    """The picture's file as one would type it here; its name where it has none."""
    if hit.path is None:
        return hit.name
    try:
        return min(hit.path, os.path.relpath(hit.path), key=len)
    except ValueError:  # on another drive
        return hit.path


def _print_hit(hit: Hit, cut: float | None) -> None:
    mark = " ✓" if hit.right else ""
    chance = "" if hit.probability is None else f"{percent(hit.probability):>4}  "
    faint = hit.probability is not None and cut is not None and hit.probability < cut
    console().print(
        f"{hit.rank:>3}  {chance}{hit.score:6.3f}  {_place(hit)}{mark}",
        style="dim" if faint else None,
        soft_wrap=True,
    )
    if hit.captions:
        indent = " " * (13 + len(chance))
        console().print(f"{indent}{hit.captions[0]}", style="dim")
