"""`simgrad models`: the lists of models and of encoders of others, from the declarations."""

import textwrap
from typing import Annotated, Any

import tyro

from simgrad.cli.listing import described, print_declared
from simgrad.core.console import print_table
from simgrad.models import ModelConfig
from simgrad.models import models as registry
from simgrad.models.embedders import embedders
from simgrad.models.networks.open_clip import listed

# What a model reads, in the words of the data.
_IMAGES = {"global": "features", "regions": "regions", "pixels": "pictures"}


def models(
    name: Annotated[
        str | None, tyro.conf.Positional, tyro.conf.arg(metavar="[NAME]", help_behavior_hint="")
    ] = None,
) -> list[dict[str, Any]]:
    """List the models and the encoders of others, or explain the parameters of one.

    Args:
        name: a model, e.g. vsrn; without it, all are listed
    """
    outside = {declared.name: declared for declared in embedders}
    if name in outside:
        told = print_declared(embedders, name, (), lambda d: ())
        if name == "open-clip":
            _print_open_clip()
        return told
    told = print_declared(
        registry,
        name,
        ("model", "paper", "images", "what it is"),
        lambda d: (d.name, d.paper, _reads(registry.parse(d.name)), d.description),
    )
    if name is None:
        print("\nEncoders of other libraries, which are not trained here:")
        rows = [(declared.name, declared.description) for declared in outside.values()]
        print_table(("encoder", "what it is"), rows)
        told += [described(declared) for declared in outside.values()]
    return told


def _print_open_clip() -> None:
    """Which of its models need it."""
    known = listed()
    if not known:
        print("\nopen_clip is not installed: pip install open_clip_torch.")
        return
    for own, title in (
        (True, "can also be read without it, and trained, as clip(source=...)"),
        (False, "are read by open_clip alone"),
    ):
        names = [one for one, covered in known.items() if covered is own]
        print(f"\n{len(names)} of the {len(known)} models of open_clip {title}:")
        print(textwrap.fill(", ".join(names), 100, break_on_hyphens=False))


def _reads(config: ModelConfig) -> str:
    return _IMAGES.get(config.reads, config.reads)
