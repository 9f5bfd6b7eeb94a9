"""`simgrad objectives`: the list, from the declarations."""

from typing import Annotated

import tyro

from simgrad.cli.listing import print_declared
from simgrad.core.console import print_table
from simgrad.objectives import objectives as registry


def objectives(
    name: Annotated[
        str | None, tyro.conf.Positional, tyro.conf.arg(metavar="[NAME]", help_behavior_hint="")
    ] = None,
) -> None:
    """List the objectives, or explain the parameters of one.

    Args:
        name: an objective, e.g. goal; without it, all are listed
    """
    print_declared(
        registry,
        name,
        ("objective", "paper", "value", "what it does to a triplet"),
        lambda d: (d.name, d.paper, _scale(d.name), d.description),
    )
    if name is None:
        print("value: sum over queries and directions, or half the sum of the directions' means.")
        return
    cases = type(registry.parse(name)).known_cases()
    if cases:
        print()
        print_table(("spec", "known as"), list(cases.items()))


def _scale(name: str) -> str:
    return "mean" if registry.parse(name).mean else "sum"
