"""Names of a package that are loaded on first use, so that importing it is quick."""

import importlib
from collections.abc import Callable
from typing import Any


def lazy(
    package: str, modules: dict[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """`__getattr__`, `__dir__` and `__all__` of a package, from {name: the module it is in}."""

    def get(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module '{package}' has no attribute '{name}'")
        module = importlib.import_module(modules[name])
        return module if modules[name] == f"{package}.{name}" else getattr(module, name)

    names = sorted(modules)
    return get, lambda: names, names
