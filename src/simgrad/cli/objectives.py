"""`simgrad objectives`: the list, from the declarations."""

from typing import Annotated, Any

import tyro

from simgrad.cli.listing import print_declared
from simgrad.core.console import print_table
from simgrad.core.spec import split_spec
from simgrad.objectives import objectives as registry

_SCALES = {
    "sum": "sum over queries and directions",
    "mean": "half the sum of the directions' means",
}


def objectives(
    name: Annotated[
        str | None, tyro.conf.Positional, tyro.conf.arg(metavar="[NAME]", help_behavior_hint="")
    ] = None,
) -> list[dict[str, Any]]:
    """List the objectives, or explain the parameters of one.

    Args:
        name: an objective, e.g. goal or "goal(triplet=con)"; without it, all are listed
    """
    spec = name
    if spec is not None:
        made = registry.parse(spec)  # what does not fit is named
        name = split_spec(spec, "objective")[0]
    told = print_declared(
        registry,
        name,
        ("objective", "paper", "value", "what it does to a triplet"),
        lambda d: (d.name, d.paper, _scale(d.name), d.description),
    )
    if spec is None:
        print(f"value: {_SCALES['sum']}, or {_SCALES['mean']}.")
        return told
    print(f"\nvalue: {_SCALES[_scale(name or spec)]}.")
    if name != spec:
        read = ", ".join(made.searched()) or "none of its parameters"
        print(f"\n{made}: a tuned study searches {read}.")
    cases = type(made).known_cases()
    if cases:
        print()
        print_table(("spec", "known as"), list(cases.items()))
    return told


def _scale(name: str) -> str:
    return "mean" if registry.parse(name).mean else "sum"
