"""The rsum of a run's best checkpoint with three kinds of batch norm statistics.

    python results/scenes/vsrn/compare_norms.py RUN ...

running: as kept while training. batch: of each batch of test images. anew: over the training images
with the checkpoint's weights. Where the first is behind the last, running statistics were at fault.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

import simgrad
from simgrad.data.base import Split
from simgrad.data.batches import in_order
from simgrad.models.base import Encoded
from simgrad.retriever.similarities import Similarities

BATCH = 64


def main() -> None:
    print(f"{'':44} running  batch   anew")
    for folder in sys.argv[1:]:
        trained = simgrad.open(folder)
        split = trained.split("test")
        _, captions = trained.encode_split(split)  # no batch norm there
        found = [rsum(trained, split, captions)]
        with batch_statistics(trained, momentum=0.0):
            found.append(rsum(trained, split, captions))
        with batch_statistics(trained, momentum=None):  # a plain mean over all batches
            images(trained, trained.split("train"))
        found.append(rsum(trained, split, captions))
        print(f"{trained.name[-44:]:44} " + "  ".join(f"{value:5.1f}" for value in found))


@torch.no_grad()
def images(trained: simgrad.Retriever, split: Split) -> Encoded:
    source = trained.source(split)
    batches = source.batches(in_order(split, BATCH))
    return Encoded.cat([trained.model.encode_images(piece.images) for piece in batches])


def rsum(trained: simgrad.Retriever, split: Split, captions: Encoded) -> float:
    seen = images(trained, split)
    return Similarities.of(trained.name, trained.model, split, seen, captions).measure().rsum


@contextmanager
def batch_statistics(trained: simgrad.Retriever, momentum: float | None) -> Iterator[None]:
    """Batch norms use each batch's statistics, and keep `momentum` of them (None: their mean)."""
    parts = [part for part in trained.model.modules() if isinstance(part, nn.BatchNorm1d)]
    kept = [part.momentum for part in parts]
    for part in parts:
        part.train()
        part.momentum = momentum
        if momentum is None:
            part.reset_running_stats()
    yield
    for part, before in zip(parts, kept, strict=True):
        part.eval()
        part.momentum = before


if __name__ == "__main__":
    main()
