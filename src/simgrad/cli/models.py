"""`simgrad models`: the list, from the declarations."""

from typing import Annotated

import tyro

from simgrad.cli.listing import print_declared
from simgrad.models import ModelConfig
from simgrad.models import models as registry

# What a model reads, in the words of the data.
_IMAGES = {"global": "features", "regions": "regions", "pixels": "pictures"}


def models(
    name: Annotated[
        str | None, tyro.conf.Positional, tyro.conf.arg(metavar="[NAME]", help_behavior_hint="")
    ] = None,
) -> None:
    """List the models, or explain the parameters of one.

    Args:
        name: a model, e.g. vsrn; without it, all are listed
    """
    print_declared(
        registry,
        name,
        ("model", "paper", "images", "what it is"),
        lambda d: (d.name, d.paper, _reads(registry.parse(d.name)), d.description),
    )


def _reads(config: ModelConfig) -> str:
    return _IMAGES.get(config.reads, config.reads)
