"""What can be evaluated, as one thing: a run, a checkpoint, files of arrays, or kept ranks.

open_system("runs/mine")                             a run: its stored ranks, or its model again
open_system("imported/vsepp", data="data/f30k")      a checkpoint that `simgrad import` wrote
open_system("embeddings.npz")                        images, texts, image_of_caption in a file
open_system("similarities.npy", captions_per_image=5)
open_pair("images.npy", "texts.npy", image_of_caption="owner.npy")
open_system("ranks.parquet")                         ranks that were kept
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from simgrad.core.devices import pick_device
from simgrad.core.errors import InputError
from simgrad.data.base import Split
from simgrad.evaluation.evaluator import check_pairing, embedding_scores
from simgrad.evaluation.ranks import Integers, Ranks
from simgrad.evaluation.scores import Matrix, Scores, as_floats
from simgrad.retriever.array_files import SUFFIXES, pick, read_arrays
from simgrad.retriever.encoding import model_scores
from simgrad.retriever.trained import Trained, open_trained
from simgrad.runs.run import RANKS, RECIPE, Run

_IMAGES = ("images", "image_embeddings")
_TEXTS = ("texts", "captions", "text_embeddings")
_ALONE = ("embedding", "embeddings")  # in a file of images or captions alone
_SIMILARITIES = ("similarities", "scores")
_PAIRING = ("image_of_caption",)


@dataclass(frozen=True)
class Reranking:
    """A second scorer, and how many candidates it is made for."""

    scores: Callable[[torch.Tensor], torch.Tensor]  # (pairs, 2) image and caption rows -> (pairs,)
    candidates: int


@dataclass(frozen=True)
class System:
    """Similarities with their pairing, or ranks that were kept."""

    name: str
    scores: Scores | None = None
    pairing: Integers | None = None
    image_ids: tuple[str, ...] | None = None
    caption_ids: tuple[str, ...] | None = None
    split: Split | None = None  # of a model: what it was asked about
    trained: Trained | None = None
    reranking: Reranking | None = None
    ranks: Ranks | None = None

    @property
    def similarities(self) -> Scores:
        """Refused where only ranks were kept."""
        if self.scores is None:
            raise InputError(
                f"{self.name}: a file of ranks has no similarities; give the run or its embeddings."
            )
        return self.scores


@contextmanager
def naming(where: str | Path) -> Iterator[None]:
    """An error of arrays names the file that they come from: of several, one is wrong."""
    try:
        yield
    except InputError as error:
        if str(error).startswith(str(where)):
            raise
        raise type(error)(f"{where}: {error}") from None


def open_system(
    target: str | Path,
    *,
    data: str | None = None,
    features: str | None = None,
    split: str | None = None,
    image_of_caption: str | Path | None = None,
    captions_per_image: int | None = None,
    normalise: bool = False,
    device: str = "auto",
    stored: bool = True,
) -> System:
    """Open whatever `target` is; `stored`: a run's kept ranks will do.

    Without `split`, a run is asked about what its recipe tests, anything else about `test`.
    """
    path = Path(target).expanduser()
    if path.is_dir():
        kept = stored and data is None and split is None and (path / RANKS).is_file()
        if kept and (path / RECIPE).is_file():
            run = Run.open(path)
            damaged = run.damage()  # weights that were removed to save space are not asked for
            if damaged:
                raise InputError("\n".join(damaged))
            return System(run.name, ranks=run.ranks())
        return model_system(open_trained(path, data=data, features=features, device=device), split)
    if not path.is_file():
        raise InputError(f"{target}: there is no such run, checkpoint or file.")
    if path.suffix not in SUFFIXES:
        kinds = ", ".join(SUFFIXES)
        raise InputError(f"{target}: give the folder of a run or a checkpoint, or a {kinds} file.")
    if path.suffix == ".parquet" and Ranks.recognises(path):
        return System(str(target), ranks=Ranks.load(path))
    arrays = read_arrays(path)
    owner = _owner(arrays, image_of_caption)
    images, texts = (_named(arrays, names) for names in (_IMAGES, _TEXTS))
    scores: Scores
    if images is not None and texts is not None:
        with naming(path):
            scores = embedding_scores(images, texts, normalise=normalise, device=_place(device))
    elif images is not None or texts is not None:
        has = ", ".join(arrays)
        raise InputError(f"{path}: needs the arrays 'images' and 'texts' (it has: {has}).")
    else:
        matrix = as_floats(pick(arrays, _SIMILARITIES, path, 2), str(path))
        if matrix.ndim != 2 or 0 in matrix.shape:
            raise InputError(
                f"{path}: similarities are (images, captions), not {tuple(matrix.shape)}."
            )
        scores = Matrix(matrix)
    pairing = _pairing(owner, captions_per_image, scores, image_of_caption or path)
    ids = (_ids(arrays, "image_ids"), _ids(arrays, "caption_ids"))
    return System(str(target), scores, pairing, *ids)


def open_pair(
    images: str | Path,
    texts: str | Path,
    *,
    image_of_caption: str | Path | None = None,
    captions_per_image: int | None = None,
    normalise: bool = False,
    device: str = "auto",
) -> System:
    """Embeddings of images and of captions, each in a file of its own.

    Which caption belongs to which image is said by `image_of_caption`, by an array or column of
    that name beside the captions, or by ids: a column `image_id` there and `id` or `image_id`
    beside the images.
    """
    first, second = Path(images).expanduser(), Path(texts).expanduser()
    left, right = read_arrays(first), read_arrays(second)
    arrays = pick(left, _IMAGES + _ALONE, first, 2), pick(right, _TEXTS + _ALONE, second, 2)
    with naming(name := f"{images} + {texts}"):
        scores = embedding_scores(*arrays, normalise=normalise, device=_place(device))
    image_ids = _ids(left, "image_id") or _ids(left, "id") or _ids(left, "image_ids")
    owner = _owner(right, image_of_caption)
    if owner is None and image_ids is not None and "image_id" in right:
        owner = _by_id(image_ids, right["image_id"], second)
    pairing = _pairing(owner, captions_per_image, scores, image_of_caption or second)
    caption_ids = _ids(right, "caption_id") or _ids(right, "id") or _ids(right, "caption_ids")
    return System(name, scores, pairing, image_ids, caption_ids)


def model_system(trained: Trained, split: str | None = None) -> System:
    """A model's similarities on a split of its data, by default the one that its recipe tests."""
    chosen = trained.split(split or trained.recipe.tested_split(trained.dataset))
    images, captions = trained.encode(chosen)
    return System(
        trained.name,
        model_scores(trained.model, images, captions),
        chosen.image_of_caption,
        tuple(chosen.image_names),
        tuple(chosen.caption_ids) if chosen.caption_ids is not None else None,
        chosen,
        trained,
        _reranking(trained, images, captions),
    )


def _reranking(trained: Trained, images: Any, captions: Any) -> Reranking | None:
    second = trained.model.reranker(images, captions)
    if second is None:
        return None
    return Reranking(lambda pairs: second.scores(pairs.to(trained.device)), second.candidates)


def _place(device: str) -> str | None:
    """Where to multiply; None: where the arrays are."""
    if device == "auto":
        return "cuda" if torch.cuda.is_available() else None
    return str(pick_device(device))


def _owner(arrays: Mapping[str, Any], given: str | Path | None) -> Any:
    """The image of each caption, from a file of its own or beside the captions."""
    if given is not None:
        path = Path(given).expanduser()
        return pick(read_arrays(path), _PAIRING, path, 1)
    return _named(arrays, _PAIRING)


def _named(arrays: Mapping[str, Any], names: Sequence[str]) -> Any:
    return next((arrays[name] for name in names if name in arrays), None)


def _by_id(images: tuple[str, ...], owners: Any, path: Path) -> Integers:
    rows = {name: row for row, name in enumerate(images)}
    if len(rows) < len(images):
        raise InputError(
            f"{path}: two images have the same id, so their captions cannot be distinguished."
        )
    wanted = [str(name) for name in owners.tolist()]
    missing = next((i for i, name in enumerate(wanted) if name not in rows), None)
    if missing is not None:
        raise InputError(f"{path}, row {missing}: there is no image '{wanted[missing][:80]}'.")
    return np.array([rows[name] for name in wanted], dtype=np.int64)


def _ids(arrays: Mapping[str, Any], name: str) -> tuple[str, ...] | None:
    return tuple(str(i) for i in arrays[name].tolist()) if name in arrays else None


def _pairing(
    owner: Any, captions_per_image: int | None, scores: Scores, where: str | Path
) -> Integers:
    images, captions = scores.num_images, scores.num_captions
    if captions_per_image is None and owner is not None:
        with naming(where):
            return check_pairing(owner, images, captions)
    if captions_per_image is None and images == captions:
        captions_per_image = 1
    if captions_per_image is None:
        raise InputError(
            f"{where}: which image does a caption belong to? Give --captions-per-image "
            f"({captions / images:g} here, if it is the same for all and an image's captions stand "
            "together), or --image-of-caption FILE, or an array 'image_of_caption' in the file."
        )
    if captions_per_image < 1 or images * captions_per_image != captions:
        raise InputError(
            f"{where}: {images:,} images with {captions_per_image} captions each would be "
            f"{images * captions_per_image:,} captions, not {captions:,}."
        )
    return np.repeat(np.arange(images), captions_per_image)
