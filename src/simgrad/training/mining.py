"""Hard negatives over the whole training set, exactly.

Every image against every caption, in blocks; each query keeps its `depth` most similar candidates,
its own left out. The largest entries of a row are found in two cheap steps instead of one dear one:
the row is cut into groups, the groups with the `depth` largest maxima are kept (no other group can
hold one of the `depth` largest entries), and only their members are ranked.
On a GPU the products are taken in half precision and the survivors scored again in float32.
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

Lists = npt.NDArray[np.int32]
# Entries of a block of similarities: 32 MiB on a CPU, 2 GiB of half precision on a GPU.
_BLOCK = {"cpu": 2**23, "cuda": 2**30}
# Half precision may swap neighbours at the cut: keep a few more, and drop them after re-scoring.
_SLACK = 24


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
    order = torch.argsort(owner, stable=True)
    first = torch.searchsorted(owner[order], torch.arange(len(x) + 1, device=x.device))
    cut = _Cut(depth, skip, relative_margin, half)
    i2t = _one_way(x, y, lambda a, b: _own_of_images(a, b, order, first), best, cut)
    t2i = _one_way(y, x, lambda a, b: _own_of_captions(a, b, owner), own, cut)
    info = {"depth": depth, "skip": skip, "relative_margin": relative_margin, "half": half}
    return Candidates(i2t, t2i, info)


@dataclass(frozen=True)
class _Cut:
    """What of a sorted row is kept."""

    depth: int
    skip: int
    margin: float | None
    half: bool


def _own_of_images(a: int, b: int, order: Tensor, first: Tensor) -> tuple[Tensor, Tensor]:
    """(row, caption) of every own pair of images a:b."""
    start, stop = int(first[a]), int(first[b])
    counts = first[a + 1 : b + 1] - first[a:b]
    rows = torch.repeat_interleave(torch.arange(b - a, device=order.device), counts)
    return rows, order[start:stop]


def _own_of_captions(a: int, b: int, owner: Tensor) -> tuple[Tensor, Tensor]:
    return torch.arange(b - a, device=owner.device), owner[a:b]


def _one_way(
    queries: Tensor,
    candidates: Tensor,
    own_of: Callable[[int, int], tuple[Tensor, Tensor]],
    own_score: Tensor,
    cut: _Cut,
) -> Lists:
    count, depth, skip, half = len(candidates), cut.depth, cut.skip, cut.half
    keep = min(depth + skip + (_SLACK if half else 0), count)
    left, right = (x.half() if half else x for x in (queries, candidates))
    # Rows of a round length: tensor cores need them aligned, and groups leave no rest.
    padded = -(-count // (8 * _group(count, keep))) * 8 * _group(count, keep)
    right = torch.nn.functional.pad(right, (0, 0, 0, padded - count))
    rows = max(1, _BLOCK.get(queries.device.type, 2**23) // padded)
    result = np.full((len(queries), min(depth, count)), -1, dtype=np.int32)
    room = left.new_empty(min(rows, len(queries)), padded)  # the same memory for every block
    for a in range(0, len(queries), rows):
        b = min(a + rows, len(queries))
        scores = torch.mm(left[a:b], right.t(), out=room[: b - a])
        scores[:, count:] = -torch.inf
        scores[own_of(a, b)] = -torch.inf
        if cut.margin is not None:
            scores.masked_fill_(scores > cut.margin * own_score[a:b, None], -torch.inf)
        values, where = largest(scores, keep)
        if half:
            values, where = _score_again(queries[a:b], candidates, values, where)
        values, where = values[:, skip : skip + depth], where[:, skip : skip + depth]
        where = where.masked_fill(values == -torch.inf, -1)
        result[a:b, : where.shape[1]] = where.to(torch.int32).cpu().numpy()
    return result


def _group(count: int, keep: int) -> int:
    """How many entries a group has: near sqrt(count / keep), where both steps cost the same."""
    group = 1
    while 2 * group * group * keep <= count:
        group *= 2
    return group


def largest(scores: Tensor, keep: int) -> tuple[Tensor, Tensor]:
    """`torch.topk(scores, keep)` by way of group maxima; several times faster for long rows.

    Group g holds the entries g, g + groups, g + 2 * groups, ...: neighbours in memory belong to
    neighbouring groups, which is the order in which a GPU reads fastest.
    """
    rows, count = scores.shape
    group = _group(count, keep)
    if group < 4:
        values, where = scores.topk(keep)
        return values, where
    groups = count // group
    whole = scores[:, : groups * group].view(rows, group, groups)
    kept = min(keep, groups)
    chosen = whole.amax(1).topk(kept, sorted=False).indices  # (rows, kept)
    members = whole.gather(2, chosen[:, None].expand(-1, group, -1)).view(rows, -1)
    if groups * group < count:  # what the groups left over
        members = torch.cat([members, scores[:, groups * group :]], 1)
    values, where = members.topk(keep)
    # Member k of the chosen ones is the (k // kept)-th of group chosen[k % kept].
    place = chosen.gather(1, where % kept) + where // kept * groups
    rest = where - group * kept
    return values, torch.where(rest < 0, place, rest + groups * group)


def _score_again(
    queries: Tensor, candidates: Tensor, coarse: Tensor, where: Tensor
) -> tuple[Tensor, Tensor]:
    """The survivors' scores in float32, sorted."""
    values = torch.empty_like(coarse, dtype=torch.float32)
    where = where.clamp(max=len(candidates) - 1)  # padding is marked by its score
    step = max(1, 2**28 // (where.shape[1] * candidates.shape[1]))
    for a in range(0, len(queries), step):
        chosen = candidates[where[a : a + step]]  # (rows, keep, d)
        values[a : a + step] = torch.einsum("rkd,rd->rk", chosen, queries[a : a + step])
    values.masked_fill_(coarse == -torch.inf, -torch.inf)
    values, order = values.sort(1, descending=True)
    return values, where.gather(1, order)


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
        cut = _Cut(depth, skip, relative_margin, half=False)
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
    model: RetrievalModel, images: Encoded, captions: Encoded, split: Split, cut: _Cut
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
        values, where = largest(scores, min(cut.depth + cut.skip, count))
        where = where.masked_fill(values == -torch.inf, -1)[:, cut.skip :]
        lists.append(np.full((len(scores), min(cut.depth, count)), -1, dtype=np.int32))
        lists[-1][:, : where.shape[1]] = where.numpy()
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
