"""What a layout is, the registry of all of them, and which one a path has.

A layout is a class that is declared where it is written, in a file of its own; docs/data.md shows
one. Fields of the class are its parameters: "captions(path=FOLDER, image=photo)" reads a folder in
the layout `captions` with this parameter, wherever data are asked for. The one that was declared
last is asked first, so that a layout of your own comes before ours.
"""

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

from simgrad.core.errors import InputError
from simgrad.core.spec import Registry, split_spec
from simgrad.core.text import did_you_mean, near_path
from simgrad.data.base import Dataset
from simgrad.data.log import DataProblem, Log
from simgrad.data.pictures import SUFFIXES

_MOST = 1000  # entries of a folder that are looked at to say what is in it


class Layout:
    """How images, captions and their pairing lie on disk, or come about without a file.

    Examples:
        >>> layout = simgrad.data.layouts.layouts.parse("captions(image=photo)")
        >>> isinstance(layout, simgrad.data.Layout)
        True
    """

    name: ClassVar[str]

    def parts(self, path: Path) -> dict[str, bool]:
        """What this layout needs, in words, and whether the path has it; with all it is one."""
        return {}

    def read(self, path: Path, log: Log, published: bool) -> Dataset:
        """The data set at a path of this layout."""
        raise InputError(f"{path}: the layout {self.name} has no files; write only '{self.name}'.")

    def make(self, log: Log, published: bool) -> Dataset:
        """The data set that the spec alone describes: `scenes(train=100)`."""
        raise InputError(
            f"'{self.name}' is a layout of files: give the file or folder, or, where it is not "
            f"recognised, '{self.name}(path=FOLDER)'."
        )

    def recognises(self, path: Path) -> bool:
        """Whether the path has all parts."""
        parts = self.parts(path)
        return bool(parts) and all(parts.values())


layouts: Registry[Layout] = Registry("layout", "simgrad datasets --layouts")
declare = layouts.declare


def open_place(text: str, log: Log, layout: str | None, published: bool) -> Dataset:
    """A path in its layout or in the one asked for, or what a spec describes."""
    path = existing(text)
    if path is None and is_spec(text):
        layout, inside = _without_path(text)
        path = existing(inside) if inside is not None else None
        if inside is not None and path is None:
            raise InputError(f"{inside:.200}: there is no such file or folder.{near_path(inside)}")
    elif path is None:
        raise InputError(_nothing_there(text))
    if path is None:
        chosen = layouts.parse(text)
        dataset = chosen.make(log, published)
    else:
        log.root = path if path.is_dir() else path.parent
        chosen = layouts.parse(layout) if layout else recognise(path)
        dataset = chosen.read(path, log, published)
    if layout and not dataset.splits and not log.problems:
        looks = layouts[chosen.name].description
        raise InputError(f"{text}: nothing there is of the layout {chosen.name} ({looks}).")
    if not any(split.num_captions for split in dataset.splits.values()):
        what = f"recognised as {chosen.name}, but it has no captions. Is its file whole?"
        if not log.collect:
            raise InputError(f"{text}: {what}")
        if not dataset.splits and not log.problems:  # else these say so
            log.problems.append(DataProblem(text, "", what))
    return log.apply(dataclasses.replace(dataset, layout=chosen.name))


def existing(text: str) -> Path | None:
    """The path that a text names, if there is something."""
    try:
        path = Path(text).expanduser()
        return path if path.exists() else None
    except (OSError, RuntimeError, ValueError) as error:  # too long, a circle of links, no home
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"{text:.120}: not the name of a data set ({reason}).") from None


def is_spec(text: str) -> bool:
    """Whether a text that names no path is `name` or `name(key=value)` of a declared layout."""
    head = text.split("(")[0].strip()
    return any(declared.name == head for declared in layouts)


def _without_path(text: str) -> tuple[str, str | None]:
    """`captions(path=photos, image=Bild)` -> `captions(image=Bild)`, `photos`."""
    name, values = split_spec(text, layouts.kind)
    path = values.pop("path", None)
    rest = ", ".join(f"{key}={value}" for key, value in values.items())
    return f"{name}({rest})" if rest else name, path


def absolute(text: str) -> str:
    """The same data from anywhere: paths become absolute, a spec without one stays as it is."""
    path = existing(text)
    if path is not None:
        return str(path.resolve())
    if is_spec(text):
        spec, inside = _without_path(text)
        if inside is not None:
            name, _, rest = spec.partition("(")
            return f"{name}(path={absolute(inside)}{f', {rest}' if rest else ')'}"
    return text


def _nothing_there(text: str) -> str:
    told = f"{text:.200}: there is no such file or folder.{near_path(text)} "
    told += "`simgrad datasets --layouts` lists what can be read; 'scenes' needs no files."
    near = did_you_mean(text.split("(")[0], (one.name for one in layouts))
    told += f" Did you mean the layout '{near}'?" if near else ""
    owner, slash, name = text.partition("/")
    if slash and owner and name and "/" not in name and not owner.startswith("."):
        told += f" A data set of the Hugging Face hub is written 'hub(repo={text:.80})'."
    return told


# -- recognising


def recognise(path: Path) -> Layout:
    """The layout of a path; an error says what is there, what is missing and what is nearest."""
    for layout in _asked():
        if layout.recognises(path):
            return layout
    inside = _data_sets_inside(path)
    if len(inside) == 1:
        raise InputError(f"{path}: the data set is in {inside[0]}; give that folder.")
    if inside:
        raise InputError(f"{path} holds several data sets: choose {', '.join(inside)}.")
    raise InputError(
        f"{path}: no known layout. Found: {what_is_in(path)}. {_simplest(path)}{_nearest(path)}"
    )


def _asked() -> Iterator[Layout]:
    """Every layout with its defaults, the one declared last first."""
    return (layouts.parse(declared.name) for declared in reversed(list(layouts)))


def _data_sets_inside(path: Path) -> list[str]:
    if not path.is_dir():
        return []
    folders = sorted(child for child in path.iterdir() if child.is_dir())[:50]
    return [str(folder) for folder in folders if any(one.recognises(folder) for one in _asked())]


def _simplest(path: Path) -> str:
    """What a folder of pictures needs."""
    if not path.is_dir() or not any(one.suffix.lower() in SUFFIXES for one in _some(path)):
        return ""
    return "Simplest is a file captions.txt in it, a line for each caption: dog.jpg, A dog runs. "


def _nearest(path: Path) -> str:
    """What the layouts of which the most is there would need."""
    shares = []
    for layout in _asked():
        parts = layout.parts(path)
        missing = [part for part, there in parts.items() if not there]
        if parts and len(missing) < len(parts):
            shares.append((1 - len(missing) / len(parts), layout.name, missing))
    if not shares:
        return "Nothing of any layout is there: `simgrad datasets --layouts` shows what each needs."
    best = max(share for share, _, _ in shares)
    told = [
        f"{name} ({layouts[name].description}): it lacks {'; '.join(missing)}"
        for share, name, missing in shares
        if share == best
    ]
    others = ". Or ".join(told[:2])
    return f"The nearest layout is {others}. `simgrad datasets --layouts` shows all."


def what_is_in(path: Path) -> str:
    """A few words on a path: how many pictures, which other files, which folders."""
    if not path.is_dir():
        return f"a file {path.suffix or 'without an ending'} of {path.stat().st_size:,} bytes"
    counts: dict[str, int] = {}
    others: list[str] = []
    for number, child in enumerate(sorted(path.iterdir())):
        if number == _MOST:
            others.append("...")
            break
        if child.is_dir():
            within = sum(file.suffix.lower() in SUFFIXES for file in _some(child))
            name = f"{child.name}/"
            others.append(f"{name} with {_about(within)} pictures" if within else name)
        elif child.suffix.lower() in SUFFIXES:
            counts[child.suffix] = counts.get(child.suffix, 0) + 1
        elif not child.name.startswith("."):
            others.append(f"{child.name}{_odd(child)}")
    pictures = [f"{_about(n)} pictures {suffix}" for suffix, n in counts.items()]
    shown = [*pictures, *others[:6], *(["..."] if len(others) > 6 else [])]
    return ", ".join(shown) or "nothing"


def _odd(file: Path) -> str:
    if not file.exists():
        return " (a broken link)"
    return "" if file.stat().st_size else " (empty)"


def _some(folder: Path) -> Iterator[Path]:
    return (file for file, _ in zip(folder.iterdir(), range(_MOST), strict=False))


def _about(count: int) -> str:
    return f"{count:,}" if count < _MOST else f"{count:,} or more"
