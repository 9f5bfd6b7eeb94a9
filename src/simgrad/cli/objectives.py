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
        name: an objective, e.g. goal; all of them if left out.
    """
    print_declared(
        registry,
        name,
        ("objective", "paper", "what it does to a triplet"),
        lambda d: (d.name, d.paper, d.description),
    )
    if name is None:
        return
    cases = type(registry.parse(name)).known_cases()
    if cases:
        print()
        print_table(("spec", "known as"), list(cases.items()))
