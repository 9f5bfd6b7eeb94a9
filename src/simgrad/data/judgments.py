"""Flickr8k's human judgments: does this caption describe this image?

ExpertAnnotations.txt: image, caption id, three scores from 1 (unrelated) to 4 (describes it).
CrowdFlowerAnnotations.txt: image, caption id, share of yes, number of yes, number of no.
They cover captions of other images too, so they are graded relevance, not the pairing again.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from simgrad.core.errors import InputError
from simgrad.data.base import Rows, Split
from simgrad.data.layouts.building import read_lines
from simgrad.data.log import Log

EXPERT, CROWD = "ExpertAnnotations.txt", "CrowdFlowerAnnotations.txt"


@dataclass(frozen=True)
class Judgments:
    """One kind of judgment of many pairs."""

    kind: str  # "expert" or "crowd"
    images: list[str]  # (pairs,) file names
    caption_ids: list[str]  # (pairs,) "file#k", as Split.caption_ids
    scores: npt.NDArray[np.float64]  # (pairs, 3) as in the file

    def relevance(self) -> npt.NDArray[np.float64]:
        """(pairs,) one score from 0 to 1: the experts' mean, or the crowd's share of yes."""
        if self.kind == "crowd":
            return self.scores[:, 0]
        return np.asarray((self.scores.mean(axis=1) - 1) / 3, dtype=np.float64)

    def rows(self, split: Split) -> tuple[Rows, Rows, Rows]:
        """Image rows, caption rows and judgment rows of the pairs that lie in this split."""
        image_row = {name: row for row, name in enumerate(split.image_names)}
        caption_row = {name: row for row, name in enumerate(split.caption_ids or ())}
        found = [
            (image_row[image], caption_row[caption], pair)
            for pair, (image, caption) in enumerate(zip(self.images, self.caption_ids, strict=True))
            if image in image_row and caption in caption_row
        ]
        table = np.array(found, dtype=np.int64).reshape(-1, 3)
        return table[:, 0], table[:, 1], table[:, 2]


def read_judgments(folder: str | Path) -> dict[str, Judgments]:
    """The judgments in a folder, by kind: "expert", "crowd".

    Examples:
        >>> from pathlib import Path
        >>> _ = Path("ExpertAnnotations.txt").write_text("1.jpg\\t2.jpg#0\\t1\\t2\\t1\\n")
        >>> found = simgrad.data.read_judgments(".")
        >>> found["expert"].scores.tolist()
        [[1.0, 2.0, 1.0]]
    """
    folder = Path(folder)
    files = {"expert": folder / EXPERT, "crowd": folder / CROWD}
    found = {kind: _read(kind, file) for kind, file in files.items() if file.is_file()}
    if not found:
        raise InputError(f"{folder}: neither {EXPERT} nor {CROWD} is there.")
    return found


def _read(kind: str, file: Path) -> Judgments:
    images, captions, scores = [], [], []
    for number, line in enumerate(read_lines(file, Log()), 1):
        cells = (line or "").split("\t")
        if cells == [""]:
            continue
        try:
            image, caption, *values = cells
            row = [float(value) for value in values]
        except ValueError:
            raise InputError(f"{file}, line {number}: a score that is not a number.") from None
        if len(row) != 3 or "#" not in caption:
            raise InputError(
                f"{file}, line {number}: needs image, caption id and three scores, tab-separated."
            )
        low, high = (1.0, 4.0) if kind == "expert" else (0.0, float("inf"))
        if not all(low <= value <= high for value in row):
            raise InputError(f"{file}, line {number}: scores out of range.")
        images.append(image)
        captions.append(caption)
        scores.append(row)
    return Judgments(kind, images, captions, np.array(scores, dtype=np.float64).reshape(-1, 3))
