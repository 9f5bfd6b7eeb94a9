"""Hard negatives over the whole training set, exactly.

Every image against every caption; each query keeps its `depth` most similar candidates, its own
left out.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from simgrad.data.base import Rows, Split
from simgrad.errors import InputError
from simgrad.files import atomic_path, open_array, read_json, write_json
from simgrad.models.base import Encoded, RetrievalModel, vectors_of
from simgrad.training.mining_product import Cut, Lists, both_ways, largest


@dataclass(frozen=True)
class Candidates:
    """Mined negatives, most similar first; -1 where a filter left fewer than `depth`."""

    i2t: Lists  # (images, depth) captions
    t2i: Lists  # (captions, depth) images
    info: dict[str, Any]

    def save(self, folder: str | Path) -> None:
        """Write i2t.npy, t2i.npy and candidates.json, the last one when all is there."""
        folder = Path(folder)
        (folder / "candidates.json").unlink(missing_ok=True)  # it speaks of the lists before
        for name, lists in (("i2t", self.i2t), ("t2i", self.t2i)):
            with atomic_path(folder / f"{name}.npy") as path, open(path, "wb") as file:
                np.save(file, lists)
        write_json(folder / "candidates.json", self.info)

    @staticmethod
    def load(folder: str | Path) -> "Candidates":
        """Read what `save` wrote; memory-mapped."""
        folder = Path(folder)
        if not (folder / "candidates.json").is_file():
            raise InputError(f"{folder}: no finished candidate lists here; run `simgrad mine`.")
        lists = [open_array(folder / f"{name}.npy") for name in ("i2t", "t2i")]
        for name, array in zip(("i2t", "t2i"), lists, strict=True):
            if array.ndim != 2 or array.dtype.kind != "i":
                raise InputError(f"{folder / name}.npy: not a table of candidate numbers.")
        return Candidates(lists[0], lists[1], read_json(folder / "candidates.json"))


def mine(
    images: Tensor,
    texts: Tensor,
    image_of_caption: Any,
    depth: int = 300,
    *,
    skip: int = 0,
    relative_margin: float | None = None,
    half: bool | None = None,
) -> Candidates:
    """The `depth` hardest negatives of every image and caption.

    Args:
        images: (images, d) embeddings, normalised inside.
        texts: (captions, d) embeddings.
        image_of_caption: (captions,) each caption's image; own pairs are never candidates.
        depth: how many to keep for each query.
        skip: leave out so many of the very hardest, where false negatives are.
        relative_margin: leave out candidates more similar than this share of the query's best own
            pair, e.g. 0.95.
        half: products in half precision with float32 re-scoring; default: on a GPU.
    """
    if images.dim() != 2 or texts.dim() != 2 or images.shape[1] != texts.shape[1]:
        raise InputError(
            f"images {tuple(images.shape)} and texts {tuple(texts.shape)} must be (count, d)."
        )
    owner = torch.as_tensor(image_of_caption, device=images.device).long()
    if owner.shape != (len(texts),) or int(owner.min()) < 0 or int(owner.max()) >= len(images):
        raise InputError("image_of_caption must give one image row for every caption.")
    if depth < 1 or skip < 0:
        raise InputError("depth must be at least 1 and skip at least 0.")
    half = images.is_cuda if half is None else half
    x, y = (torch.nn.functional.normalize(e.detach().float(), dim=1) for e in (images, texts))
    own = (x[owner] * y).sum(1)  # (captions,)
    best = torch.full((len(x),), -2.0, device=x.device).scatter_reduce_(0, owner, own, "amax")
    cut = Cut(depth, skip, relative_margin, half)
    i2t, t2i = both_ways(x, y, owner, best, own, cut)
    info = {"depth": depth, "skip": skip, "relative_margin": relative_margin, "half": half}
    return Candidates(i2t, t2i, info)


def mine_encoded(
    model: RetrievalModel,
    images: Encoded,
    captions: Encoded,
    split: Split,
    depth: int,
    *,
    skip: int = 0,
    relative_margin: float | None = None,
    use_truth: bool = False,
) -> Candidates:
    """Mine with any model, and say how many candidates are true after all, where that is known."""
    truth = split.truth
    if use_truth and truth is None:
        raise InputError(f"{split.dataset}: what is true of a picture is known on scenes alone.")
    if model.embeds:
        found = mine(
            vectors_of(images),
            vectors_of(captions),
            split.image_of_caption,
            depth,
            skip=skip,
            relative_margin=relative_margin,
        )
    else:
        cut = Cut(depth, skip, relative_margin, half=False)
        found = _mine_similarities(model, images, captions, split, cut)
    if truth is None:
        return found
    i2t_true = _true(found.i2t, lambda query, rows: truth(query, rows)[0])
    listed = max(1, int((found.i2t >= 0).sum()))
    info = {**found.info, "false_negatives": float(i2t_true.sum() / listed)}
    if not use_truth:
        return Candidates(found.i2t, found.t2i, info)
    t2i_true = _true(found.t2i, lambda query, rows: truth(rows, query)[:, 0])
    return Candidates(_without(found.i2t, i2t_true), _without(found.t2i, t2i_true), info)


def _mine_similarities(
    model: RetrievalModel, images: Encoded, captions: Encoded, split: Split, cut: Cut
) -> Candidates:
    """For models that compare sets: the whole similarity matrix, in blocks of images."""
    rows = []
    for start in range(0, len(images), 64):
        block = model.similarities(images.select(slice(start, start + 64)), captions)
        rows.append(block.float().cpu())
    S = torch.cat(rows)  # (images, captions) on the host
    owner, every = torch.from_numpy(split.image_of_caption), torch.arange(S.shape[1])
    own = S[owner, every]
    best = torch.full((len(S),), -torch.inf).scatter_reduce_(0, owner, own, "amax")
    S[owner, every] = -torch.inf
    lists = []
    for scores, bound in ((S, best), (S.t().contiguous(), own)):
        if cut.margin is not None:
            scores = scores.masked_fill(scores > cut.margin * bound[:, None], -torch.inf)
        count = scores.shape[1]
        lists.append(cut.lists(*largest(scores, cut.keep(count)), count))
    info = {"depth": cut.depth, "skip": cut.skip, "relative_margin": cut.margin}
    return Candidates(lists[0], lists[1], info)


def _true(
    lists: Lists, truth: Callable[[Rows, Rows], npt.NDArray[np.bool_]]
) -> npt.NDArray[np.bool_]:
    """Which candidates are true of their query after all."""
    rows = np.maximum(lists, 0).astype(np.int64)
    found = np.stack([truth(np.array([query]), rows[query]) for query in range(len(lists))])
    return found & (lists >= 0)


def _without(lists: Lists, drop: npt.NDArray[np.bool_]) -> Lists:
    """The lists with some entries taken out, the rest moved up, -1 at the end."""
    dropped = drop | (lists < 0)
    order = np.argsort(dropped, axis=1, kind="stable")
    kept = np.where(np.take_along_axis(dropped, order, 1), -1, np.take_along_axis(lists, order, 1))
    return kept.astype(np.int32)
