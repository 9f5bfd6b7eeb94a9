"""`simgrad search`: pictures by a sentence, captions by a picture."""

import sys
from dataclasses import asdict
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from simgrad.core.console import console, progress
from simgrad.core.errors import InputError
from simgrad.data.cutting import open_picture
from simgrad.data.pictures import SUFFIXES
from simgrad.serve.embedder import Embedder
from simgrad.serve.search import Hit, Results, Searcher, row_named
from simgrad.serve.thumbnails import protocol, show

if TYPE_CHECKING:
    from PIL.Image import Image


def search(
    run: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")],
    query: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="SENTENCE|PICTURE")],
    *,
    folder: Path | None = None,
    split: str = "test",
    top: int = 10,
    exact: bool = False,
    thumbnails: bool = True,
    device: str = "auto",
    json: bool = False,
) -> None:
    """Find pictures by a sentence, or captions by a picture.

    Args:
        run: a run folder, or a checkpoint that `simgrad import` wrote
        query: a sentence; or a picture: its file, or its name in the split
        folder: search the pictures below this folder instead of the run's own
        split: the split of the run's data to search
        top: how many results
        exact: no FAISS, however many items there are
        thumbnails: show pictures, in a terminal
        device: auto, cpu, cuda
        json: print JSON
    """

    embedder = Embedder.open(run, device)
    with progress() as bar:
        task = bar.add_task("embedding pictures", total=None, visible=folder is not None)

        def report(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total)

        searcher = Searcher(embedder, split, folder, exact=exact, report=report)
    results = _ask(searcher, query, top)
    if json:
        print(dumps(asdict(results), indent=1, ensure_ascii=False))
        return
    _print(searcher, results, thumbnails)


def _ask(searcher: "Searcher", query: str, top: int) -> "Results":

    path = Path(query)
    try:
        is_file = path.is_file()
    except (OSError, ValueError):  # too long for a name, or a NUL in it: a sentence
        is_file = False
    if is_file:
        return searcher.picture(open_picture(path, str(path), least=512), path.name, top)
    row = row_named(searcher.split.image_names, query) if searcher.split is not None else None
    if row is not None:
        return searcher.row(row, top)
    if path.suffix.lower() in SUFFIXES and " " not in query:
        raise InputError(f"{query}: there is no such picture.")
    return searcher.sentence(query, top)


def _print(searcher: "Searcher", results: "Results", thumbnails: bool) -> None:

    out = console()
    how = protocol(sys.stdout) if thumbnails else None
    if results.kind == "sentence":
        what, hits = f"{results.searched_images:,} pictures", results.images
    else:
        what, hits = f"{results.searched_captions:,} captions", results.captions
        hits = hits or results.images
    head = f"{results.query}: best of {what}, {1000 * results.seconds:.1f} ms"
    out.print(head, style="bold")
    for note in results.notes:
        out.print(f"({note})", style="dim")
    if searcher.folder is not None and searcher.folder.skipped:
        names = ", ".join(list(searcher.folder.skipped)[:3])
        out.print(f"({len(searcher.folder.skipped)} unreadable pictures left out: {names})")
    for hit in hits:
        _print_hit(searcher, hit, how if results.kind == "sentence" else None)
    if results.kind == "picture" and results.captions and results.images:
        out.print(f"\nlike it, of {results.searched_images:,} pictures", style="bold")
        for hit in results.images:
            _print_hit(searcher, hit, how)


def _print_hit(searcher: "Searcher", hit: "Hit", how: str | None) -> None:

    mark = {True: " ✓", False: "", None: ""}[hit.right]
    console().print(f"{hit.rank:>3}  {hit.score:.3f}  {hit.name}{mark}", soft_wrap=True)
    if hit.captions:
        console().print(f"            {hit.captions[0]}", style="dim")
    if how is not None:
        picture = _picture(searcher, hit.row)
        if picture is not None:
            show(picture, how, sys.stdout)


def _picture(searcher: "Searcher", row: int) -> "Image | None":

    try:
        if searcher.folder is not None:
            path = searcher.folder.root / searcher.folder.names[row]
            return open_picture(path, str(path), least=256)
        assert searcher.split is not None
        pictures = searcher.split.pictures
        return None if pictures is None else pictures.picture(row)
    except InputError:
        return None
