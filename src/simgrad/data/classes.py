"""Pictures of classes, for zero-shot classification.

`classes(path=FOLDER)` names FOLDER/CLASS/*.jpg: a class is called as its folder, with _ as a blank.
prompts.txt in FOLDER has a sentence in each line, with {} for the name; of several, a class has the
mean of their vectors (Radford et al., ICML 2021). Without it: "a photo of a {}."
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from simgrad.core.errors import InputError
from simgrad.data.pictures import SUFFIXES

_SPEC = re.compile(r"\s*classes\(\s*path\s*=\s*(.+?)\s*\)\s*")
_FILE, _USUAL = "prompts.txt", "a photo of a {}."
METRIC = "zero-shot accuracy"


@dataclass(frozen=True)
class Classes:
    """Pictures of a folder, and which class each is of."""

    folder: Path
    names: Sequence[str]
    prompts: Sequence[str]
    pictures: Sequence[Path]
    class_of: Sequence[int]  # of each picture

    def to_dict(self) -> dict[str, object]:
        """As also.json says what was scored."""
        sizes = {"images": len(self.pictures), "classes": len(self.names)}
        return {"dataset": self.folder.name, "metric": METRIC, **sizes}


def classes_place(text: str) -> str:
    """The same spec from anywhere: its folder becomes absolute; other texts stay as they are."""
    told = _SPEC.fullmatch(text)
    return text if told is None else f"classes(path={Path(told[1]).expanduser().resolve()})"


def read_classes(text: str) -> Classes | None:
    """The classes that a spec names, or an error that says what is missing; None: other data."""
    told = _SPEC.fullmatch(text)
    if told is None:
        return None
    folder = Path(told[1]).expanduser()
    if not folder.is_dir():
        raise InputError(f"also: {text}: there is no such folder.")
    found = {
        place.name: sorted(f for f in place.iterdir() if f.suffix.lower() in SUFFIXES)
        for place in sorted(folder.iterdir())
        if place.is_dir() and not place.name.startswith(".")
    }
    empty = next((name for name, files in found.items() if not files), None)
    if len(found) < 2 or empty is not None:
        what = f"no picture in its folder '{empty}'" if empty else "no folder for each class"
        raise InputError(f"also: {text}: {what}; FOLDER/CLASS/picture.jpg is needed.")
    file, prompts = folder / _FILE, [_USUAL]
    if file.is_file():
        try:
            lines = file.read_text(encoding="utf-8-sig").splitlines()
        except UnicodeDecodeError as error:
            raise InputError(f"{file}: not UTF-8 text (byte {error.start}).") from None
        prompts = [line for line in lines if line.strip()]
        for number, line in enumerate(prompts, 1):
            if line.count("{}") != 1:
                raise InputError(f"{file}, sentence {number}: {{}} for the name is needed, once.")
        if not prompts:
            raise InputError(f"{file}: is empty.")
    pairs = [(path, row) for row, files in enumerate(found.values()) for path in files]
    names = [name.replace("_", " ") for name in found]
    return Classes(folder, names, prompts, [p for p, _ in pairs], [row for _, row in pairs])
