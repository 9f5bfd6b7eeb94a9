"""What is declared, as a list, or one of it with its parameters."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from simgrad.core.console import print_table
from simgrad.core.spec import Declaration, Registry, print_value

T = TypeVar("T")


def _place(declared: Declaration[T]) -> tuple[str, bool, str]:
    """By name; an alias follows what it is an alias of."""
    whole = str(getattr(declared.factory, "name", declared.name))
    return whole, bool(declared.preset), declared.name


def print_declared(
    registry: Registry[T],
    name: str | None,
    headings: Sequence[str],
    row: Callable[[Declaration[T]], Sequence[str]],
) -> list[dict[str, Any]]:
    """The list of a registry, or the parameters of one of its names."""
    told = [described(one) for one in sorted(registry, key=_place) if name in (None, one.name)]
    if name is None:
        print_table(headings, [row(declared) for declared in sorted(registry, key=_place)])
        print(f"\n{registry.command} NAME explains the parameters of one.")
        return told
    entry = registry[name]
    print(f"{entry.name}: {entry.description} ({entry.paper})\n")
    if entry.formula:
        print("formula (LaTeX):")
        print(*(f"  {line}" for line in entry.formula.strip().splitlines()), sep="\n", end="\n\n")
    fixed = [(k, print_value(v), "", "", "fixed by the name") for k, v in entry.preset]
    rows = [
        (
            p.name,
            print_value(p.default),
            "|".join(p.choices or ()) or str(p.limits),
            "" if p.search is None else str(p.search),
            p.description,
        )
        for p in entry.parameters
    ]
    print_table(("parameter", "default", "values", "searched", "meaning"), fixed + rows)
    return told


def described(declared: Declaration[Any]) -> dict[str, Any]:
    """For programs."""
    return {
        "name": declared.name,
        "description": declared.description,
        "paper": declared.paper,
        "parameters": {p.name: p.description for p in declared.parameters},
    }
