"""What the command line evaluates: a run, a file of embeddings, of similarities, or of ranks."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from simgrad.core.errors import InputError
from simgrad.core.files import open_array
from simgrad.data.base import Split
from simgrad.evaluation.evaluator import check_pairing, embedding_scores
from simgrad.evaluation.ranks import Integers, Ranks
from simgrad.evaluation.scores import Matrix, Scores, as_floats
from simgrad.runs.encoding import encode_source, model_scores
from simgrad.runs.prepare import pick_device, source_of
from simgrad.runs.run import RANKS, Run


@dataclass(frozen=True)
class System:
    """Similarities with their pairing, or ranks that were kept."""

    name: str
    scores: Scores | None = None
    pairing: Integers | None = None
    image_ids: tuple[str, ...] | None = None
    caption_ids: tuple[str, ...] | None = None
    split: "Split | None" = None
    second_scorer: Callable[[torch.Tensor], torch.Tensor] | None = None
    candidates: int | None = None  # how many the second scorer looks at, if the model says so
    ranks: Ranks | None = None


def open_system(
    target: str,
    *,
    split: str = "test",
    captions_per_image: int | None = None,
    normalise: bool = False,
    device: str = "auto",
    stored: bool = True,
) -> System:
    """Open whatever `target` is; `stored`: a run's kept ranks will do."""
    path = Path(target).expanduser()
    if path.is_dir():
        return _open_run(path, split, device, stored)
    if not path.is_file():
        raise InputError(f"{target}: there is no such run or file.")
    if path.suffix == ".parquet":
        return System(target, ranks=Ranks.load(path))
    if path.suffix == ".npz":
        return _open_embeddings(path, captions_per_image, normalise, device)
    if path.suffix == ".npy":
        array = open_array(path)
        if array.ndim != 2:
            raise InputError(f"{path}: similarities are (images, captions), not {array.shape}.")
        images, captions = array.shape
        scores = Matrix(as_floats(array, str(path)))
        return System(target, scores, _pairing(None, captions_per_image, images, captions, path))
    raise InputError(f"{target}: give a run's folder, or a .npz, .npy or .parquet file.")


def _open_run(path: Path, split_name: str, device: str, stored: bool) -> System:

    run = Run.open(path)
    if stored and split_name == "test" and (run.path / RANKS).is_file():
        return System(run.name, ranks=run.ranks())
    place = pick_device(device)
    loaded = run.load(str(place))
    split = run.dataset().split(split_name)
    source = source_of(split, loaded.tokenizer, loaded.model, place, run.recipe)
    images, captions = encode_source(loaded.model, source)
    second = loaded.model.reranker(images, captions)
    return System(
        run.name,
        model_scores(loaded.model, images, captions),
        split.image_of_caption,
        tuple(split.image_names),
        tuple(split.caption_ids) if split.caption_ids is not None else None,
        split,
        second_scorer=None if second is None else lambda pairs: second.scores(pairs.to(place)),
        candidates=None if second is None else second.candidates,
    )


def _open_embeddings(
    path: Path, captions_per_image: int | None, normalise: bool, device: str
) -> System:
    try:
        with np.load(path, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
    except Exception as error:  # a damaged archive makes zipfile, zlib and numpy raise anything
        raise InputError(f"{path}: not a readable .npz archive ({error}).") from None
    texts = arrays.get("texts", arrays.get("captions"))
    if "images" not in arrays or texts is None:
        has = ", ".join(arrays) or "nothing"
        raise InputError(f"{path}: needs the arrays 'images' and 'texts' (it has: {has}).")
    where = None
    if device != "auto" or torch.cuda.is_available():
        where = "cuda" if device == "auto" else device
    scores = embedding_scores(arrays["images"], texts, normalise=normalise, device=where)
    pairing = _pairing(
        arrays.get("image_of_caption"),
        captions_per_image,
        scores.num_images,
        scores.num_captions,
        path,
    )
    ids = [
        tuple(str(i) for i in arrays[name]) if name in arrays else None
        for name in ("image_ids", "caption_ids")
    ]
    return System(str(path), scores, pairing, ids[0], ids[1])


def _pairing(
    given: Any, captions_per_image: int | None, images: int, captions: int, path: Path
) -> Integers:
    if captions_per_image is None and given is not None:
        return check_pairing(given, images, captions)
    if captions_per_image is None:
        raise InputError(
            f"{path}: which image does a caption belong to? Give --captions-per-image "
            f"({captions / images:g} here, if it is the same for all and an image's captions stand "
            "together), or an array 'image_of_caption' in an .npz file."
        )
    if captions_per_image < 1 or images * captions_per_image != captions:
        raise InputError(
            f"{path}: {images:,} images with {captions_per_image} captions each would be "
            f"{images * captions_per_image:,} captions, not {captions:,}."
        )
    return np.repeat(np.arange(images), captions_per_image)
