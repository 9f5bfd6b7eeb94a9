"""What batch norms alone do to features when a network is thawed.

    python results/flickr8k/drift.py FLICKR8K

75 batches of 64 training pictures go through EfficientNet-Lite0 in training mode; weights stay.
Prints the cosine of validation pictures' features with what they were before.
"""

import sys

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity

from simgrad.data import Split, open_dataset
from simgrad.data.transforms import named
from simgrad.models.networks.backbones import Backbone, backbone

TRAIN, VAL, PASSES = 960, 200, 5


def main() -> None:
    torch.manual_seed(0)
    data, network = open_dataset(sys.argv[1]), backbone("efficientnet-lite0")
    val = pictures(data.split("val"), VAL, network)
    before = features(network, val)
    network.requires_grad_(True)
    network.train()
    train = pictures(data.split("train"), TRAIN, network)
    with torch.no_grad():
        for batch in train.split(64) * PASSES:
            network.pooled(batch)
    turned = cosine_similarity(before, features(network, val))
    others = cosine_similarity(before[: VAL // 2], before[VAL // 2 :])
    print(f"a picture before and after: mean {turned.mean():.2f}, least {turned.min():.2f}")
    print(f"two pictures: mean {others.mean():.2f}")


def pictures(split: Split, count: int, network: Backbone) -> Tensor:
    """The first pictures of a split, as the network sees them."""
    transform = named(network.transform, train=False, size=224)
    assert split.pictures is not None
    return torch.stack([transform(split.pictures.picture(row)) for row in range(count)])


def features(network: Backbone, pixels: Tensor) -> Tensor:
    network.eval()
    with torch.no_grad():
        return torch.cat([network.pooled(batch) for batch in pixels.split(50)])


if __name__ == "__main__":
    main()
