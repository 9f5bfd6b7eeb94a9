"""Hard negatives over the whole training set, exactly.

Every image against every caption; each query keeps its `depth` most similar candidates, its own
left out.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from simgrad.core.errors import InputError
from simgrad.data.base import Rows
from simgrad.data.candidates import Candidates, Lists
from simgrad.mining.product import Cut, both_ways, largest


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


def mine_similarities(
    similarities: Tensor,
    image_of_caption: Rows,
    depth: int,
    *,
    skip: int = 0,
    relative_margin: float | None = None,
) -> Candidates:
    """The same from similarities (images, captions) on the host, which are used up."""
    S, cut = similarities, Cut(depth, skip, relative_margin, half=False)
    owner, every = torch.from_numpy(image_of_caption), torch.arange(S.shape[1])
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


def which_are_true(
    lists: Lists, truth: Callable[[Rows, Rows], npt.NDArray[np.bool_]]
) -> npt.NDArray[np.bool_]:
    """Which candidates are true of their query after all."""
    rows = np.maximum(lists, 0).astype(np.int64)
    found = np.stack([truth(np.array([query]), rows[query]) for query in range(len(lists))])
    return found & (lists >= 0)


def without(lists: Lists, drop: npt.NDArray[np.bool_]) -> Lists:
    """The lists with some entries taken out, the rest moved up, -1 at the end."""
    dropped = drop | (lists < 0)
    order = np.argsort(dropped, axis=1, kind="stable")
    kept = np.where(np.take_along_axis(dropped, order, 1), -1, np.take_along_axis(lists, order, 1))
    return kept.astype(np.int32)
