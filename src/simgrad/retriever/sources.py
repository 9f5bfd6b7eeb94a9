"""The batches of a split as a model reads them, kept on the device where they fit."""

import contextlib
import dataclasses
import math
import threading

import torch
from torch import Tensor

from simgrad.core.errors import DiskError
from simgrad.data.base import Split
from simgrad.data.batches import Source, Tokens
from simgrad.data.decoded import DecodedPictures
from simgrad.data.transforms import named
from simgrad.data.vocabulary import Tokenizer
from simgrad.models import RetrievalModel
from simgrad.retriever.fitting import require_readable
from simgrad.runs.features import cached_features
from simgrad.runs.recipe import Recipe

# Features up to this size are kept on the device; 16 GiB leaves room on any current data GPU.
_RESIDENT = {"cpu": 2 * 2**30, "cuda": 16 * 2**30}
_CAPTIONS = 256  # that a text network reads at a time
# Runs side by side in one process take turns to read data and to draw initial weights.
building = threading.Lock()


def source_of(
    split: Split,
    tokenizer: Tokenizer,
    model: RetrievalModel,
    device: torch.device,
    recipe: Recipe,
    training: bool = False,
    tokens: Tokens | None = None,
) -> Source:
    """The batches of a split, resident on the device where they fit."""
    room = _RESIDENT.get(device.type, 0)
    vectors = caption_vectors(split, tokenizer, model, device)
    if model.inputs.images == "pixels":
        if training and recipe.augment is not None:
            transform = named(recipe.augment, train=True, size=model.inputs.image_shape[-1])
            return Source(
                split,
                tokenizer,
                transform,
                device,
                workers=recipe.workers,
                vectors=vectors,
                tokens=tokens,
            )
        split, size = _seen(split, model, device, recipe.workers, room)
        resident = size <= room
    else:
        require_readable(split, model)
        assert split.features is not None
        resident = 4 * split.num_images * math.prod(split.features.shape) <= room
    return Source(
        split,
        tokenizer,
        device=device,
        resident=resident,
        workers=recipe.workers,
        vectors=vectors,
        tokens=tokens,
    )


@torch.no_grad()
def caption_vectors(
    split: Split,
    tokenizer: Tokenizer,
    model: RetrievalModel,
    device: torch.device,
    most: int | None = None,
) -> Tensor | None:
    """What a text network that never changes makes of every caption, or of the first `most`."""
    network = model.fixed_captions()
    if network is None:
        return None
    was, place = model.training, next(model.parameters()).device
    model.to(device).eval()
    lists = [torch.tensor(tokenizer.encode(caption)) for caption in split.captions[:most]]
    made: list[Tensor] = []
    for start in range(0, len(lists), _CAPTIONS):
        some = lists[start : start + _CAPTIONS]
        lengths = torch.tensor([len(tokens) for tokens in some], device=device)
        tokens = torch.nn.utils.rnn.pad_sequence(some, batch_first=True).to(device)
        made.append(network(tokens, lengths).float().cpu())
    model.to(place).train(was)
    return torch.cat(made)


def _seen(
    split: Split, model: RetrievalModel, device: torch.device, workers: int, room: int
) -> tuple[Split, int]:
    """Pictures that look the same each time, as what can be made of them once; its size."""
    fixed = model.fixed_network()
    if fixed is not None:
        network, grid = fixed
        each = network.dimension if grid is None else grid * grid * network.grid_dimension
        if 4 * each * split.num_images <= room:
            # No place for the cache: the network sees the pictures again each time.
            with contextlib.suppress(DiskError):
                made = cached_features(split, network, grid, device=device)
                return dataclasses.replace(split, features=made), 4 * each * split.num_images
    pixels = model.inputs.image_shape[-1]
    size = 3 * pixels * pixels * split.num_images
    pictures = DecodedPictures.of(split, model.transform, pixels, workers if size <= room else 1)
    return dataclasses.replace(split, features=pictures), size
