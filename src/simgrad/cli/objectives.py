"""`simgrad objectives`: the list, from the declarations."""

from typing import Annotated

import tyro

from simgrad.core.console import print_table
from simgrad.core.spec import print_value
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
    if name is not None:
        entry = registry[name]
        print(f"{entry.name}: {entry.description} ({entry.paper})\n")
        fixed = [(k, print_value(v), "", "fixed by the name") for k, v in entry.preset]
        rows = [
            (p.name, print_value(p.default), "|".join(p.choices or ()), p.description)
            for p in entry.parameters
        ]
        print_table(("parameter", "default", "one of", "meaning"), fixed + rows)
        return
    print_table(
        ("objective", "paper", "what it does to a triplet"),
        [(d.name, d.paper, d.description) for d in registry],
    )
    print("\nsimgrad objectives NAME explains the parameters of one.")
