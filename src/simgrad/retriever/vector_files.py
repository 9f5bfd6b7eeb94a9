"""Vectors of pictures or sentences in a file for other programs, with what made them.

.parquet: columns `id` (a picture's name, a sentence's number), `text` (of sentences) and
`embedding` (float32 lists); the provenance is in the file's metadata under `simgrad`. .npy: the
rows alone, with NAME.json beside them for ids and provenance. `simgrad evaluate --images A
--texts B` reads both. .npz: both sides of a data set with pairing and splits, as the layout
`embeddings` reads them.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from simgrad.core.derived import contents_hash
from simgrad.core.errors import InputError
from simgrad.core.files import atomic_path, write_json
from simgrad.core.named_files import refuse_foreign
from simgrad.data.cutting import open_picture
from simgrad.retriever.folder import find_pictures
from simgrad.retriever.retriever import LONGEST

if TYPE_CHECKING:
    from simgrad.retriever.retriever import Retriever

SUFFIXES = (".parquet", ".npy")
_BATCH = 256


@dataclass(frozen=True)
class VectorFile:
    """What was written."""

    path: Path
    ids: Sequence[str]
    vectors: npt.NDArray[np.float32]
    provenance: dict[str, Any]


def write_vectors(retriever: "Retriever", items: Path, output: Path) -> VectorFile:
    """Vectors of the pictures below a folder, or of the lines of a text file."""
    if output.suffix not in SUFFIXES:
        raise InputError(
            f"{output}: vectors are written to {' or '.join(SUFFIXES)} files; those of a data set, "
            "both sides, to .npz."
        )
    _refuse_foreign(output)
    texts: list[str] | None = None
    if items.is_dir():
        ids = list(find_pictures(items))
        content = contents_hash([items / name for name in ids])
        if not ids:
            raise InputError(f"{items}: no pictures in it.")
        vectors = _pictures(retriever, items, ids)
    elif items.is_file():
        texts = _sentences(items)
        ids, content = [str(row) for row in range(len(texts))], contents_hash([items])
        vectors = _rows(retriever.encode_sentences(texts).vectors, items)
    else:
        raise InputError(f"{items}: give a folder of pictures, or a text file, a sentence a line.")
    told = {
        "model": retriever.name,
        "model_key": retriever.key,
        "items": str(items),
        "items_hash": content,
        "kind": "pictures" if texts is None else "sentences",
        "rows": len(ids),
        "dimension": int(vectors.shape[1]),
        "unit_length": True,
    }
    _write(output, ids, texts, vectors, told)
    return VectorFile(output, ids, vectors, told)


def _refuse_foreign(output: Path) -> None:
    """Vectors of ours name the model: in the file itself, or beside an array of numbers."""
    if output.suffix != ".npy":
        refuse_foreign(output, "model_key")
    elif not refuse_foreign(output.with_suffix(".json"), '"model_key"').is_file():
        refuse_foreign(output)


def write_pairs(retriever: "Retriever", output: Path) -> dict[str, Any]:
    """Vectors of the pictures and captions of all splits of the retriever's data."""
    refuse_foreign(output, "simgrad.npy")
    parts = [retriever.fitting(split) for split in retriever.dataset.splits.values()]
    made = [retriever.encode_split(part) for part in parts]
    images, texts = (
        np.concatenate([_rows(one.vectors, output) for one in side])
        for side in zip(*made, strict=True)
    )
    first = np.cumsum([0, *(part.num_images for part in parts)])
    owners = [part.image_of_caption + start for part, start in zip(parts, first, strict=False)]
    told = {
        "model": retriever.name,
        "model_key": retriever.key,
        "data": retriever.recipe.data,
        "fingerprint": retriever.dataset.fingerprint(),
        "images": len(images),
        "texts": len(texts),
        "dimension": int(images.shape[1]),
        "unit_length": True,
    }
    arrays: dict[str, Any] = {
        "images": images,
        "texts": texts,
        "image_of_caption": np.concatenate(owners),
        "image_ids": np.array([name for part in parts for name in part.image_names]),
        "text": np.array([text for part in parts for text in part.captions]),
        "split": np.repeat([part.name for part in parts], [part.num_images for part in parts]),
        "simgrad": np.array(json.dumps(told)),
    }
    with atomic_path(output) as place, open(place, "wb") as file:
        np.savez(file, **arrays)
    return told


def _sentences(file: Path) -> list[str]:
    try:
        lines = file.read_text("utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise InputError(f"{file}: not UTF-8 text (byte {error.start}).") from None
    for number, line in enumerate(lines, 1):
        if not line.strip():
            raise InputError(f"{file}, line {number}: empty; each line is a sentence.")
        if len(line) > LONGEST:
            raise InputError(
                f"{file}, line {number}: {len(line):,} characters; {LONGEST:,} at most."
            )
    if not lines:
        raise InputError(f"{file}: no sentences in it.")
    return lines


def _pictures(retriever: "Retriever", folder: Path, ids: Sequence[str]) -> Any:
    made = []
    for start in range(0, len(ids), _BATCH):
        names = ids[start : start + _BATCH]
        opened = [open_picture(folder / name, str(folder / name), least=512) for name in names]
        made.append(_rows(retriever.encode_pictures(opened).vectors, folder))
    return np.concatenate(made)


def _rows(vectors: Any, items: Path) -> npt.NDArray[np.float32]:
    if vectors is None:
        raise InputError(f"{items}: this model compares sets and has no vectors to write.")
    rows: npt.NDArray[np.float32] = vectors.float().cpu().numpy()
    return rows


def _write(
    output: Path,
    ids: Sequence[str],
    texts: Sequence[str] | None,
    vectors: npt.NDArray[np.float32],
    told: dict[str, Any],
) -> None:
    if output.suffix == ".npy":
        output.unlink(missing_ok=True)  # killed anywhere, this leaves no rows with ids of others
        write_json(output.with_suffix(".json"), {**told, "ids": list(ids)})
        with atomic_path(output) as place, open(place, "wb") as file:
            np.save(file, vectors, allow_pickle=False)
        return
    import pyarrow as arrow
    from pyarrow import parquet

    columns: dict[str, Any] = {"id": arrow.array(ids)}
    if texts is not None:
        columns["text"] = arrow.array(texts)
    flat = arrow.array(vectors.reshape(-1))
    columns["embedding"] = arrow.FixedSizeListArray.from_arrays(flat, vectors.shape[1])
    table = arrow.table(columns).replace_schema_metadata({"simgrad": json.dumps(told)})
    with atomic_path(output) as place:
        parquet.write_table(table, place)
