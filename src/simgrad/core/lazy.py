"""Names of a package that are loaded on first use, so that importing it is quick."""

import importlib
from collections.abc import Callable
from typing import Any

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
