"""Problems found while reading: raised at once, or collected, or known and skipped.

A reader reports a damaged record with `log.bad(...)` and goes on to the next one. By default that
raises, naming file and place. `simgrad datasets` collects instead; `--fix` writes what it found as
a list, and a log made from that list lets exactly those records be left out.
"""

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np

from simgrad.core.errors import InputError
from simgrad.core.files import read_json
from simgrad.core.named_files import write_named_json
from simgrad.data.base import Dataset, Split, with_splits
from simgrad.data.subset import take

HOW_TO_SKIP = (
    "`simgrad datasets DATA` lists every problem; `simgrad datasets DATA --fix` writes a list of "
    "what to leave out, to give as `skip`."
)


@dataclass(frozen=True)
class DataProblem:
    """One thing that is wrong, where it is, and what leaving it out means."""

    file: str
    place: str  # "line 12", "row 7", "record 3", or empty for the file as a whole
    what: str
    split: str | None = None
    image: str | None = None  # leave this image out, with its captions
    caption: int | None = None  # leave this caption row of the split out
    text: str | None = None  # how that caption begins, to know it again
    skippable: bool = False
    kind: Literal["", "missing", "broken", "copy"] = ""  # of a picture: what is wrong with it

    @property
    def missing(self) -> bool:
        """A picture that is not there: what people look for first."""
        return self.kind == "missing"

    def __str__(self) -> str:
        where = f"{self.file}, {self.place}" if self.place else self.file
        return f"{where}: {self.what}"


@dataclass
class Log:
    """Where a layout reports damaged records. `collect`: keep them instead of raising.

    Examples:
        >>> from pathlib import Path
        >>> log = simgrad.data.Log(collect=True)
        >>> log.bad(Path("captions.txt"), "line 3", "no caption behind the picture's name.")
        >>> str(log.problems[0])
        "captions.txt, line 3: no caption behind the picture's name."
    """

    collect: bool = False
    root: Path = Path()  # the data's folder: a skip list names files relative to it
    problems: list[DataProblem] = field(default_factory=list)
    skipped: list[dict[str, Any]] = field(default_factory=list)  # entries of a skip list
    applied: bool = False  # once: rows are counted before anything is left out

    def bad(self, file: Path, place: str, what: str) -> None:
        """A record that cannot be used. Raises unless it is collected or on the skip list."""
        if self.knows(file, place):
            return
        problem = DataProblem(str(file), place, what, skippable=True)
        if not self.collect:
            raise InputError(f"{problem} {HOW_TO_SKIP}")
        self.problems.append(problem)

    def whole_file(self, file: Path, error: InputError) -> None:
        """A split that cannot be read at all."""
        if self.knows(file, ""):
            return
        if not self.collect:
            raise error
        what = str(error).removeprefix(str(file)).lstrip(":, ")
        self.problems.append(
            DataProblem(str(file), "", f"{what} The split is not used.", skippable=True)
        )

    def knows(self, file: Path, place: str) -> bool:
        """Whether the skip list leaves this record out."""
        return (self._name(str(file)), place) in self._places

    def _name(self, file: str) -> str:
        return file.removeprefix(f"{self.root}/")

    @cached_property
    def _places(self) -> set[tuple[str, str]]:
        return {
            (str(entry["file"]), str(entry["place"]))
            for entry in self.skipped
            if entry.get("image") is None and entry.get("caption") is None
        }

    @classmethod
    def read(cls, path: str | Path | None) -> Self:
        """A log that honours a skip list."""
        log = cls()
        if path is not None:
            value = read_json(path)
            entries = value.get("skip") if isinstance(value, dict) else None
            if not isinstance(entries, list):
                raise InputError(f"{path}: not a skip list; `simgrad datasets --fix` writes one.")
            log.leave_out(entries, path)
        return log

    def leave_out(self, entries: list[Any], source: str | Path) -> None:
        """Honour the entries of a skip list; those that are there already are not doubled."""
        for number, entry in enumerate(entries):
            if not isinstance(entry, dict) or not {"file", "place"} <= entry.keys():
                raise InputError(f"{source}, entry {number}: needs 'file' and 'place'.")
            if entry not in self.skipped:
                self.skipped.append(entry)

    def write(self, path: Path, problems: list[DataProblem]) -> int:
        """Write the skip list for these problems; how many it leaves out."""
        entries = self.entries(problems)
        write_named_json(path, {"skip": entries})
        return len(entries)

    def entries(self, problems: list[DataProblem]) -> list[dict[str, Any]]:
        """What a skip list says of these problems."""
        return [
            {
                "file": self._name(problem.file),
                "place": problem.place,
                "problem": problem.what,
                "split": problem.split,
                "image": problem.image,
                "caption": problem.caption,
                "text": problem.text,
                "kind": problem.kind,
            }
            for problem in problems
            if problem.skippable
        ]

    def apply(self, dataset: Dataset) -> Dataset:
        """Leave out the images and captions that the skip list names."""
        if not self.skipped or self.applied:
            return dataset
        self.applied = True
        splits = []
        for split in dataset.splits.values():
            entries = [entry for entry in self.skipped if entry.get("split") == split.name]
            names = {entry["image"] for entry in entries if entry.get("image") is not None}
            rows = [_row(entry, split) for entry in entries if entry.get("caption") is not None]
            images = np.array([name not in names for name in split.image_names], dtype=bool)
            captions = np.ones(split.num_captions, dtype=bool)
            captions[np.array(rows, dtype=np.int64)] = False
            splits.append(take(split, images, captions))
        return with_splits(dataset, splits)


def _row(entry: dict[str, Any], split: Split) -> int:
    row, text = entry["caption"], entry.get("text")
    inside = isinstance(row, int) and 0 <= row < split.num_captions
    if inside and text in (None, split.captions[row][:80]):
        return int(row)
    raise InputError(
        f"the skip list names caption {row!r:.20} of {split.dataset}, split '{split.name}', but "
        "that is another caption; the list was written for other data or other options."
    )
