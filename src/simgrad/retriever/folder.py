"""A folder of pictures as something to search: embedded once, then only what is new or changed.

Pictures are told apart by name, size and time, and by content where those differ, so a renamed or
touched picture is not embedded again. See `embeddings.py` for how the result is kept.
"""

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

import torch

from simgrad.core.derived import read_kept, write_kept
from simgrad.core.errors import InputError
from simgrad.core.files import lock, sha256, sweep
from simgrad.core.text import near_path
from simgrad.data.cutting import open_picture
from simgrad.data.pictures import SUFFIXES
from simgrad.models import Encoded
from simgrad.retriever.embeddings import UNUSABLE, place_of, read_encoded, write_encoded
from simgrad.retriever.encoding import Report

if TYPE_CHECKING:
    from PIL.Image import Image

    from simgrad.retriever.retriever import Retriever

_INDEX = "index.json"
_BATCH = 64  # pictures encoded together
_SAVE_EVERY = 30.0  # seconds of work that a kill may cost


@dataclass(frozen=True)
class FolderIndex:
    """The pictures of a folder, encoded."""

    root: Path
    names: Sequence[str]  # relative to the root
    encoded: Encoded | None  # None: no picture in it
    skipped: dict[str, str]  # name -> why it was left out
    added: int  # encoded by this call
    place: Path | None = None  # where its embeddings are kept


@dataclass
class _State:
    """What index.json says: a row for each picture, None for one that cannot be read."""

    entries: dict[str, dict[str, Any]]  # name -> size, mtime, sha, row or reason
    pieces: list[Encoded]  # rows run on from piece to piece

    @property
    def rows(self) -> int:
        return sum(len(piece) for piece in self.pieces)


def folder_embeddings(
    retriever: "Retriever",
    root: Path,
    *,
    report: Report = lambda done, total: None,
) -> FolderIndex:
    """Every picture below a folder; only what is new or has changed is encoded."""
    root = root.expanduser()
    if not root.is_dir():
        raise InputError(f"{root}: there is no such folder.{near_path(root)}")
    retriever.reader()  # says at once why pictures cannot be read
    folder = place_of(retriever) / f"folder-{sha256(str(root.resolve()))[:16]}"
    with lock(folder.with_suffix(".lock"), what=f"the embeddings of {root}"):
        sweep(folder)
        state = _read_state(folder, retriever.key)
        files = find_pictures(root)
        kept, missing = _compare(state, root, files)
        gone = len(kept.entries) != len(state.entries)
        added = 0
        saved = monotonic()
        for entries, encoded in _encode_files(retriever, root, missing):
            _grow(kept, entries, encoded)
            added += len(entries)
            report(added, len(missing))
            if monotonic() - saved > _SAVE_EVERY:
                _write_state(folder, kept, retriever.key)
                saved = monotonic()
        if added or gone:
            kept = _write_state(folder, kept, retriever.key)
    return _as_index(root, kept, added, folder)


def find_pictures(root: Path) -> dict[str, os.stat_result]:
    """Pictures below a folder by name; links that lead out of it are left alone."""
    inside = root.resolve()
    found = {}
    for base, folders, files in os.walk(root):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for file in sorted(files):
            path = Path(base) / file
            if path.suffix.lower() not in SUFFIXES or file.startswith("."):
                continue
            if path.is_symlink() and not _leads_into(inside, path):
                continue
            if path.is_file():
                found[path.relative_to(root).as_posix()] = path.stat()
    return found


def _leads_into(folder: Path, link: Path) -> bool:
    """Whether a link leads to a place in a folder, and not out of it or round and round."""
    try:
        return link.resolve(strict=True).is_relative_to(folder)
    except (OSError, RuntimeError):
        return False


def _times(stat: os.stat_result) -> dict[str, int]:
    """What differs where a file was changed; the last is the system's own, and cannot be set."""
    return {"size": stat.st_size, "mtime": stat.st_mtime_ns, "ctime": stat.st_ctime_ns}


def _compare(
    state: _State, root: Path, files: dict[str, os.stat_result]
) -> tuple[_State, dict[str, os.stat_result]]:
    """What can be kept (by size and time, else by content), and what must be encoded."""
    by_content = {entry["sha"]: entry for entry in state.entries.values()}
    kept, missing = {}, {}
    for name, stat in files.items():
        old = state.entries.get(name)
        if old and all(old.get(key) == value for key, value in _times(stat).items()):
            kept[name] = old
            continue
        same = by_content.get(_content(root / name)) if by_content else None
        if same is not None:
            kept[name] = {**same, **_times(stat)}
        else:
            missing[name] = stat
    return _State(kept, list(state.pieces)), missing


def _content(path: Path) -> str:
    try:
        return sha256(path)
    except OSError as error:
        return f"unreadable {error.errno}"


def _encode_files(
    retriever: "Retriever", root: Path, files: dict[str, os.stat_result]
) -> Iterator[tuple[dict[str, dict[str, Any]], Encoded | None]]:
    """Batches of entries and their embeddings; a bad picture is an entry with a reason."""
    names = list(files)
    with ThreadPoolExecutor(2) as pool:
        for start in range(0, len(names), _BATCH):
            piece = names[start : start + _BATCH]
            read = list(pool.map(lambda name: _open_picture(root / name), piece))
            good = [picture for _, picture, _ in read if picture is not None]
            encoded = retriever.encode_pictures(good).to("cpu") if good else None
            entries, row = {}, 0
            for name, (content, picture, reason) in zip(piece, read, strict=True):
                entry = {**_times(files[name]), "sha": content}
                entries[name] = {**entry, "row": row if picture is not None else None}
                if picture is None:
                    entries[name]["reason"] = reason
                row += picture is not None
            yield entries, encoded


def _open_picture(path: Path) -> tuple[str, "Image | None", str]:

    content = _content(path)
    try:
        return content, open_picture(path, path.name, least=512), ""
    except InputError as error:
        return content, None, str(error)


def _grow(state: _State, entries: dict[str, dict[str, Any]], encoded: Encoded | None) -> None:
    start = state.rows
    for entry in entries.values():
        if entry["row"] is not None:
            entry["row"] += start
    state.entries.update(entries)
    if encoded is not None:
        state.pieces.append(encoded)


def _read_state(folder: Path, weights: str) -> _State:
    try:
        index = read_kept(folder / _INDEX, {"weights": weights})
        name, told = index["arrays"], index["encoded"]
        encoded = read_encoded(folder, name, told) if name else None
        entries = dict(index["pictures"])
        rows = [e["row"] for e in entries.values() if e["row"] is not None]
        if rows and (encoded is None or not 0 <= min(rows) <= max(rows) < len(encoded)):
            raise ValueError("rows beyond the arrays")
        return _State(entries, [] if encoded is None else [encoded])
    except UNUSABLE:
        return _State({}, [])  # none yet, or damaged: made again


def _write_state(folder: Path, state: _State, weights: str) -> _State:
    """Keep only rows in use, sorted by name; then forget the arrays of the state before."""
    entries = dict(sorted(state.entries.items()))
    used = [e["row"] for e in entries.values() if e["row"] is not None]
    pieces: list[Encoded] = []
    arrays, told = "", {}
    if used:
        encoded = Encoded.cat(state.pieces).select(torch.tensor(used))
        pieces = [encoded]
        new = iter(range(len(used)))
        entries = {
            name: {**e, "row": next(new)} if e["row"] is not None else e
            for name, e in entries.items()
        }
        arrays = sha256("\n".join(f"{n} {e['sha']}" for n, e in entries.items()))[:16]
        told = write_encoded(folder, arrays, encoded)
    index = {"arrays": arrays, "encoded": told, "pictures": entries}
    write_kept(folder / _INDEX, index, {"weights": weights})
    for file in folder.glob("*.npy"):
        if not arrays or not file.name.startswith(f"{arrays}."):
            file.unlink(missing_ok=True)
    return _State(entries, pieces)


def _as_index(root: Path, state: _State, added: int, place: Path) -> FolderIndex:
    good = sorted(n for n, e in state.entries.items() if e["row"] is not None)
    rows = [state.entries[name]["row"] for name in good]
    encoded = Encoded.cat(state.pieces) if len(state.pieces) > 1 else next(iter(state.pieces), None)
    if encoded is not None and rows != list(range(len(encoded))):
        encoded = encoded.select(torch.tensor(rows, dtype=torch.long))
    skipped = {
        name: str(e.get("reason", "")) for name, e in state.entries.items() if e["row"] is None
    }
    return FolderIndex(root, good, encoded if good else None, skipped, added, place)
