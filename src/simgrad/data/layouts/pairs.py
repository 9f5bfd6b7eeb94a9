"""Pairs of files: IMAGE.jpg beside IMAGE.txt, a caption per line; folders below may be splits."""

from dataclasses import dataclass
from pathlib import Path

from simgrad.data.base import Dataset
from simgrad.data.layouts.base import Layout, declare
from simgrad.data.layouts.building import Growth, known_split, read_lines
from simgrad.data.log import Log
from simgrad.data.pictures import SUFFIXES


@declare("pairs", paper="", description="IMAGE.jpg + IMAGE.txt, a caption per line")
@dataclass(frozen=True)
class PairsLayout(Layout):
    """A picture and a text of the same name."""

    def parts(self, path: Path) -> dict[str, bool]:
        images = _images(path, limit=1000) if path.is_dir() else []
        return {
            "pictures": bool(images),
            "IMAGE.txt beside IMAGE.jpg, a caption per line": any(
                image.with_suffix(".txt").is_file() for image in images
            ),
        }

    def read(self, path: Path, log: Log, published: bool) -> Dataset:
        growth = Growth(path.name, pattern="line {}")
        images = _images(path)
        stems: dict[Path, Path] = {}
        for image in images:
            captions = image.with_suffix(".txt")
            if captions in stems:
                log.bad(image, "", f"shares {captions.name} with {stems[captions].name}.")
                continue
            stems[captions] = image
            if not captions.is_file():
                log.bad(image, "", f"there is no {captions.name} beside it.")
                continue
            lines = read_lines(captions, log)
            if not lines:
                log.bad(captions, "", "has no captions.")
                continue
            growth.files.append(captions)
            _add(growth, image.relative_to(path), lines)
        _report_orphans(path, stems, log)
        return growth.finish(path, published)


def _images(path: Path, limit: int | None = None) -> list[Path]:
    """Picture files below a folder, in a fixed order; `limit` stops early for recognition."""
    found = []
    for file in path.rglob("*"):
        if file.suffix.lower() in SUFFIXES:
            found.append(file)
            if limit is not None and len(found) >= limit:
                break
    return sorted(found)


def _add(growth: Growth, relative: Path, lines: list[str | None]) -> None:
    name = relative.as_posix()
    split = known_split(relative.parts[0]) if len(relative.parts) > 1 else None
    growing = growth.split_of(name, split)
    row = growing.image(name)
    for k, line in enumerate(lines):
        # Blank lines between captions are layout, not captions.
        if line is not None and line.strip():
            growing.caption(row, line, f"{name}#{k}", (len(growth.files) - 1, k + 1, 0))


def _report_orphans(path: Path, stems: dict[Path, Path], log: Log) -> None:
    folders = {image.parent for image in stems.values()}
    for text in filter(Path.is_file, sorted(path.rglob("*.txt"))):
        if text not in stems and text.parent in folders and text.stem.upper() not in _PROSE:
            log.bad(text, "", "there is no picture beside it.")


_PROSE = frozenset({"README", "LICENSE", "NOTES", "CHANGELOG", "CAPTIONS"})
