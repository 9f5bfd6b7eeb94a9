"""Names of a package, and functions of rooms above, that are loaded on first use.

So importing the package is quick. And runs and studies know nothing of the files above them that
draw, train or tabulate them: whoever puts the house together (`simgrad/__init__.py`) registers who
does; `run.plot()`, `run.show(...)`, `study.train()` and `study.table()` ask here.
"""

import importlib
from collections.abc import Callable
from typing import Any

_functions: dict[str, Callable[[], Callable[..., Any]]] = {}
TRAIN = "pip install 'simgrad[train]'"  # what the command line, training and studies need


def lazy(
    package: str, modules: dict[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """`__getattr__`, `__dir__` and `__all__` of a package, from {name: the module it is in}."""

    def get(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module '{package}' has no attribute '{name}'")
        try:
            module = importlib.import_module(modules[name])
        except ModuleNotFoundError as error:
            raise needs(f"{package}.{name}", error) from None
        return module if modules[name] == f"{package}.{name}" else getattr(module, name)

    names = sorted(modules)
    return get, lambda: names, names


def needs(what: str, error: ModuleNotFoundError) -> ModuleNotFoundError:
    """The error, with the line to type where a package of the extra `train` is missing."""
    missing = (error.name or "").partition(".")[0]
    if not missing or missing == "simgrad" or "pip install" in str(error):
        return error
    text = f"{what} needs the package {missing}, which is not installed: {TRAIN}"
    return ModuleNotFoundError(text, name=error.name)


def register(name: str, load: Callable[[], Callable[..., Any]]) -> None:
    """`load` fetches the function, when it is first asked for."""
    _functions[name] = load


def ask(name: str, *given: Any, **options: Any) -> Any:
    """What the function of this name makes of something."""
    return _functions[name]()(*given, **options)
