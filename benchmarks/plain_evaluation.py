"""How others evaluate, written out from their description, or called where they are installed.

Helpers of `evaluation.py`. The slow ones do one query in `share`, after which their time is
multiplied; nothing in them depends on the number of queries but the repetition.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

RECALLS = (1, 5, 10)


def bare_product(images: Tensor, captions: Tensor, pairing: Tensor) -> None:
    """The similarities, block by block, into one buffer; nothing is done with them."""
    rows = 500
    block = images.new_empty((rows, len(captions)))
    for start in range(0, len(images), rows):
        part = images[start : start + rows]
        torch.mm(part, captions.T, out=block[: len(part)])


def vsepp_loops(images: Tensor, captions: Tensor, pairing: Tensor, share: int) -> None:
    """One query at a time: product, sort, look for the own items."""
    left, right, own = images.numpy(), captions.numpy(), pairing.numpy()
    each = len(right) // len(left)
    for i in range(0, len(left), share):
        order = np.argsort(left[i] @ right.T)[::-1]
        min(int(np.where(order == c)[0][0]) for c in range(each * i, each * i + each))
    for i in range(0, len(left), share):
        for scores in right[each * i : each * i + each] @ left.T:
            order = np.argsort(scores)[::-1]
            int(np.where(order == own[each * i])[0][0])


def clip_benchmark(images: Tensor, captions: Tensor, pairing: Tensor, share: int) -> None:
    """All similarities and a mask of all pairs, then for each k batches of one-hot top k."""
    scores = captions @ images.T
    true = torch.zeros_like(scores, dtype=torch.bool)
    true[torch.arange(len(captions), device=true.device), pairing] = True
    for matrix, mask in ((scores, true), (scores.T, true.T)):
        for k in RECALLS:
            for start in range(0, len(matrix), 64 * share):
                part, hit = matrix[start : start + 64], mask[start : start + 64]
                best = torch.topk(part, k, dim=1).indices
                chosen = torch.nn.functional.one_hot(best, num_classes=matrix.shape[1])
                found = (chosen * hit[:, None]).sum(dim=(1, 2))
                (found / hit.sum(dim=1) > 0).float()


def full_sort(images: Tensor, captions: Tensor, pairing: Tensor, share: int) -> None:
    """Every list sorted in full, the own items' places read off it."""
    for queries, candidates in ((images, captions), (captions, images)):
        some = queries[: len(queries) // share]
        order = torch.argsort(some @ candidates.T, dim=1, descending=True)
        torch.argsort(order, dim=1)


def faiss_flat(images: Tensor, captions: Tensor, pairing: Tensor, share: int) -> None:
    """The first ten of each query, both ways: recalls only, no ranks."""
    import faiss

    faiss.omp_set_num_threads(torch.get_num_threads())
    for queries, candidates in ((images, captions), (captions, images)):
        index = faiss.IndexFlatIP(queries.shape[1])
        index.add(candidates.numpy())
        index.search(queries.numpy(), max(RECALLS))


def coco_ids() -> tuple[list[int], list[int]]:
    """Image and caption ids of COCO's test split, as eccv_caption has them."""
    gold = _eccv()
    captions = [int(number) for number in gold.coco_ids]
    images = [gold.coco_gts["t2i"][caption][0] for caption in captions]
    return list(dict.fromkeys(images)), captions


def eccv_caption(
    images: Tensor, captions: Tensor, image_ids: list[int], caption_ids: list[int]
) -> dict[str, Any]:
    """COCO, CxC and ECCV Caption metrics from lists of the first hundred, which it is given."""
    gold = _eccv()
    scores = images @ captions.T
    lists = []
    for matrix, own, other in (
        (scores, image_ids, caption_ids),
        (scores.T, caption_ids, image_ids),
    ):
        names = np.array(other)
        best = names[matrix.topk(100, dim=1).indices.numpy()].tolist()
        lists.append(dict(zip(own, best, strict=True)))
    wanted = ("coco_1k_recalls", "coco_5k_recalls", "cxc_recalls", "eccv_r1", "eccv_map_at_r")
    found: dict[str, Any] = gold.compute_all_metrics(*lists, target_metrics=wanted)
    return found


def _eccv() -> Any:
    with warnings.catch_warnings():  # it warns about an optional faster JSON reader
        warnings.simplefilter("ignore")
        import eccv_caption as package
    return package.Metrics()


@dataclass(frozen=True)
class Peer:
    """Somebody else's evaluation."""

    run: Callable[[Tensor, Tensor, Tensor, int], Any]
    share: int = 1  # on a CPU, one query in so many
    goal: float | None = None  # how many times faster we want to be
    package: str | None = None  # that must be installed
    on_gpu: bool = False


PEERS: dict[str, Peer] = {
    "VSE++ loops": Peer(vsepp_loops, 20, 10.0),
    "CLIP benchmark": Peer(clip_benchmark, 20, 5.0, on_gpu=True),
    "full sort": Peer(full_sort, 20, on_gpu=True),
    "faiss flat, top 10": Peer(faiss_flat, package="faiss"),
}
