"""Which part of a batch a process works on: some of its images, and their captions."""

from dataclasses import replace

import numpy as np
import torch

from simgrad.data.sampling import IndexBatch, OfflineIndex, own_size
from simgrad.mining.drawing import appended
from simgrad.training import distributed


def own_share(index: IndexBatch) -> IndexBatch:
    """This process's part: images in order, as many as the others have, and their captions.

    What was drawn for these captions from outside the batch comes along.
    """
    world, rank = distributed.size(), distributed.rank()
    if world == 1:
        return index
    count, m = own_size(index)
    first, stop = count * rank // world, count * (rank + 1) // world
    owner = index.image_of_caption[:m]
    mine = np.flatnonzero((owner >= first) & (owner < stop))
    if stop == first:
        return _nothing(index)
    images = np.arange(first, stop)
    if not isinstance(index, OfflineIndex):
        return IndexBatch(index.images[images], index.captions[mine], owner[mine] - first)
    places = {name: place[mine] for name, place in index.places().items()}
    rows, image = appended(images, [v for k, v in places.items() if k.endswith("image")])
    columns, caption = appended(mine, [v for k, v in places.items() if k.endswith("caption")])
    more = np.zeros(len(columns) - len(mine), dtype=np.int64)
    return replace(
        index,
        images=index.images[rows],
        captions=index.captions[columns],
        image_of_caption=np.concatenate([owner[mine] - first, more]),
        own_images=len(images),
        own_captions=len(mine),
        mined_caption=caption[0],
        mined_image=image[0],
        partner_image=image[1],
        partner_caption=caption[1],
    )


def every_share(index: IndexBatch) -> IndexBatch:
    """The whole batch, gathered from the shares of all processes, without what was drawn."""
    if distributed.size() == 1:
        return index
    n, m = own_size(index)
    parts = index.images[:n], index.captions[:m]
    owner = index.image_of_caption[:m] + distributed.before(n)
    images, captions, owners = (
        distributed.every(torch.from_numpy(np.ascontiguousarray(part))).numpy()
        for part in (*parts, owner)
    )
    return IndexBatch(images, captions, owners)


def _nothing(index: IndexBatch) -> IndexBatch:
    """A process without a pair: one image and caption as input for its encoders, with no weight."""
    none = np.zeros(0, dtype=np.int64)
    return OfflineIndex(
        index.images[:1],
        index.captions[:1],
        np.zeros(1, dtype=np.int64),
        for_each=1,
        mined_caption=none,
        mined_image=none,
        partner_image=none,
        partner_caption=none,
    )
