"""Who draws things in a notebook.

Runs and studies know nothing of the rooms above them that draw them. Whoever puts the house
together (`simgrad/__init__.py`) says here who does; `run.plot()` and `run.show(...)` ask here.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from simgrad.pages.notebook import Shown

Drawer = Callable[..., "Shown"]
_drawers: dict[str, Callable[[], Drawer]] = {}


def register(name: str, load: Callable[[], Drawer]) -> None:
    """`load` fetches the function that draws, when it is first asked for."""
    _drawers[name] = load


def draw(name: str, *given: Any, **options: Any) -> "Shown":
    """What the drawer of this name makes of something."""
    return _drawers[name]()(*given, **options)
