"""`simgrad.show(run, "a dog on grass")`: a search, drawn in a notebook."""

import base64
import io
import os
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from simgrad.core.errors import InputError
from simgrad.data.cutting import open_picture
from simgrad.models.checkpoint import DESCRIPTION
from simgrad.pages.blocks import Block, Example, Examples, Key, Line, Mark, Paragraph, Strip, Thumb
from simgrad.pages.rendering import Shown
from simgrad.retriever.opening import open_folder
from simgrad.retriever.search import ALL, Searcher, ask
from simgrad.runs.run import BEST
from simgrad.search.results import Hit, Results

if TYPE_CHECKING:
    from PIL.Image import Image

_SIDE = 200  # pixels of a picture


def show(
    run: "str | os.PathLike[str]",
    query: "str | Path | Image",
    *,
    top: int = 5,
    split: str = ALL,
    data: str | None = None,
    device: str = "auto",
) -> Shown:
    """What a run finds: pictures for a sentence, captions for a picture.

    `run` may also be a study, an answer of `choose`, the folder of one of these, or a checkpoint
    that `simgrad import` wrote, with the `data` to search. All of the data are searched, or one
    `split`.

    Examples:
        >>> shown = simgrad.show("runs/first", "a red heart", top=2)  # or the path of a picture
        >>> print(shown)
        a red heart: found
          1  ...
    """
    path = Path(run)
    searcher = _searcher(path, split, data, device, _stamp(path))
    if isinstance(query, str | Path):
        found, asked = ask(searcher, str(query), top), _opened(Path(query))
    else:
        found, asked = searcher.picture(query, "picture", top), query
    notes = [Paragraph([note], "note") for note in found.notes]
    blocks: list[Block] = [Examples([_example(searcher, found, path.resolve().name, asked)])]
    return Shown([*blocks, *notes], str(found))


def _opened(path: Path) -> "Image | None":
    """The picture of a query that is a file."""
    try:
        return open_picture(path, str(path), least=_SIDE)
    except (InputError, OSError, ValueError):  # a sentence
        return None


@lru_cache(maxsize=4)
def _searcher(
    path: Path, split: str, data: str | None, device: str, _: tuple[int, int]
) -> Searcher:
    return Searcher(open_folder(path, device=device, data=data), split)


def _stamp(path: Path) -> tuple[int, int]:
    """Changes when the checkpoint does."""
    for file in (path / BEST / DESCRIPTION, path / DESCRIPTION):
        if file.is_file():
            return file.stat().st_mtime_ns, file.stat().st_size
    return 0, 0


def _example(searcher: Searcher, found: Results, name: str, asked: "Image | None") -> Example:
    outcome = found.verdict() or f"best of {found.searched_images:,} pictures"
    if found.kind == "sentence":
        thumbs = [
            Thumb(_address(searcher.thumbnail(hit.row, _SIDE)), hit.name, _mark(hit), hit.told)
            for hit in found.images
        ]
        return Example(found.query, [Strip(Key(name, 0), outcome, thumbs=thumbs)])
    lines = [Line(hit.captions[0], _mark(hit), hit.told) for hit in found.captions]
    query = Thumb(_address(asked), found.query)
    return Example(None, [Strip(Key(name, 0), outcome, lines=lines)], query)


def _mark(hit: Hit) -> Mark:
    return "right" if hit.right else ""


def _address(picture: "Image | None") -> str | None:
    """A small picture as an address that holds all of it; None where there is none."""
    if picture is None:
        return None
    small = picture.convert("RGB")
    small.thumbnail((_SIDE, _SIDE))
    file = io.BytesIO()
    small.save(file, "WEBP", quality=80)
    return "data:image/webp;base64," + base64.b64encode(file.getvalue()).decode()
