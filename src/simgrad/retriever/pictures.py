"""How pictures from anywhere become what a model reads: pixels, or features of a network."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from simgrad.core.errors import InputError
from simgrad.data.arrays import read_header
from simgrad.data.batches import Transform
from simgrad.data.transforms import named
from simgrad.models import RetrievalModel
from simgrad.models.networks.backbones import backbone
from simgrad.runs.features import Job, make_job

if TYPE_CHECKING:
    from PIL.Image import Image


@dataclass(frozen=True)
class PictureReader:
    """How pictures become what the model reads."""

    transform: Transform
    job: Job | None = None  # the network behind precomputed features

    def __call__(self, pictures: Sequence["Image"], device: torch.device) -> Tensor:
        pixels = torch.stack([self.transform(picture, None) for picture in pictures]).to(device)
        if self.job is None:
            return pixels
        if self.job.grid is None:
            return self.job.backbone.pooled(pixels)
        return self.job.backbone.grid(pixels, self.job.grid)


def picture_reader(
    model: RetrievalModel, features: str | None, device: torch.device
) -> PictureReader:
    """For a model, and the folder of features that it was trained on; refused where there is no
    way from a picture to what it reads."""
    if model.inputs.images == "pixels":
        size = model.inputs.image_shape[-1]
        return PictureReader(named(model.transform, train=False, size=size))
    if features is None:
        raise InputError(
            "this model reads features that came with its data, and nothing here says how to "
            "make them from a picture: it can search with the data's own pictures, not with "
            "another one. Compute features with `simgrad features`, train on those, and it can."
        )
    return _backbone_reader(Path(features).expanduser(), device)


def _backbone_reader(folder: Path, device: torch.device) -> PictureReader:
    """The network that made a folder of features, checked against the weights it names."""

    header = read_header(folder)
    name, grid = header.get("backbone"), header.get("grid")
    if not isinstance(name, str) or not name:
        raise InputError(
            f"{folder}/features.json does not name the network behind the features, so a new "
            "picture cannot be read the same way; `simgrad features` records it."
        )
    job = make_job(backbone(name, header.get("weights")), grid=grid, device=device)
    told = header.get("weights_sha256")
    if told is not None and told != job.weights_sha256:
        raise InputError(
            f"{folder}/features.json: {name} has other weights here than those that made the "
            "features; compute them again with `simgrad features`."
        )
    return PictureReader(named(job.backbone.transform, train=False, size=job.backbone.size), job)
