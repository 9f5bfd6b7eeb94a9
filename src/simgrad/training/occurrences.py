"""Batch norms count an image once for each caption that it comes with, as VSE++'s and VSRN's loops.

A batch holds every image once, however many of its captions were drawn. Where nothing mixes images,
encoding each once is the same and cheaper. A batch norm mixes them: its statistics are those of
whatever it is given, and captured batches are filled up with repeated images. So, for a network
whose batch norms are training, each caption brings its image along: no more and no less. (Where the
captions of an image are positives of one image, it is there once, and the step is not captured.)
"""

from dataclasses import replace

import torch
from torch import Tensor

from simgrad.data.batches import Batch
from simgrad.mining.drawing import Drawn


def each_with_its_image(batch: Batch, drawn: Drawn | None) -> tuple[Batch, Drawn | None]:
    """The image of every caption of the batch; behind them those that were drawn for each."""
    if drawn is None:
        own = batch.image_of_caption
        return _taken(batch, own, len(own)), None
    own, count = batch.image_of_caption[: drawn.own_captions], drawn.own_captions
    caption, image, partner_image, partner_caption = drawn.places
    rows, mined = [own, image], torch.arange(count, 2 * count, device=own.device)
    partner = mined
    if drawn.images_each > 1:
        rows, partner = [*rows, partner_image], mined + count
    places = torch.stack([caption, mined, partner, partner_caption])
    return _taken(batch, torch.cat(rows), count), drawn._replace(own_images=count, places=places)


def _taken(batch: Batch, rows: Tensor, own: int) -> Batch:
    place = torch.arange(own, device=rows.device)
    return replace(batch, images=batch.images[rows], image_of_caption=place)
