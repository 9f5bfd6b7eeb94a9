"""Who draws runs and studies in a notebook, and who does else what stands above them.

Runs and studies know nothing of the files above them that draw, train or tabulate them. Whoever
puts the house together (`simgrad/__init__.py`) says here who does; `run.plot()`, `run.show(...)`,
`study.train()` and `study.table()` ask here.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from simgrad.pages.rendering import Shown

_functions: dict[str, Callable[[], Callable[..., Any]]] = {}


def register(name: str, load: Callable[[], Callable[..., Any]]) -> None:
    """`load` fetches the function, when it is first asked for."""
    _functions[name] = load


def ask(name: str, *given: Any, **options: Any) -> Any:
    """What the function of this name makes of something."""
    return _functions[name]()(*given, **options)


def draw(name: str, *given: Any, **options: Any) -> "Shown":
    """What the drawer of this name makes of something."""
    shown: Shown = ask(name, *given, **options)
    return shown
