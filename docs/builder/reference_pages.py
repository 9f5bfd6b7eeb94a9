"""Pages of the Python reference: the public names, from `__all__`."""

import ast
import inspect
import itertools
import re
import sys
import types
from typing import Any

import simgrad

_HEAD = """# Python

`import simgrad` gives these names, and is quick: each is loaded when it is first used. The
examples on this page are run by a test.

| name | what it is |
|---|---|
"""


def names() -> dict[str, Any]:
    """The public names and what they are."""
    return {name: getattr(simgrad, name) for name in simgrad.__all__}


def rooms() -> dict[str, types.ModuleType]:
    """Public names that hold names themselves."""
    return {name: found for name, found in names().items() if inspect.ismodule(found)}


def navigation() -> list[Any]:
    """The section of the navigation."""
    return [
        {"simgrad": "reference/index.md"},
        *({f"simgrad.{name}": f"reference/{name}.md"} for name in rooms()),
    ]


def pages() -> dict[str, str]:
    """Place in the site -> text."""
    found = {f"reference/{name}.md": _room(name, module) for name, module in rooms().items()}
    return {"reference/index.md": _index(), **found}


def _index() -> str:
    rows, sections = [], []
    for name, thing in names().items():
        link = f"{name}.md" if name in rooms() else f"#{path_of(name, thing)}"
        rows.append(f"| [simgrad.{name}]({link}) | {_line(thing)} |")
        if name not in rooms():
            sections.append(_entry(name, thing))
    return _HEAD + "\n".join(rows) + "\n\n" + "\n\n".join(sections) + "\n"


def _room(name: str, module: types.ModuleType) -> str:
    top = f"::: simgrad.{name}\n    options:\n      members: false\n      heading_level: 1\n"
    top += "      show_root_full_path: true\n"
    parts = [top]
    public = {simgrad_name for simgrad_name, _ in names().items()}
    for each in module.__all__:
        thing = getattr(module, each)
        if each in public and names()[each] is thing and not inspect.ismodule(thing):
            parts.append(f"## {each}\n\n[On the first page](index.md#{path_of(each, thing)}).")
        else:
            parts.append(_entry(each, thing))
    return "\n\n".join(parts) + "\n"


def _entry(name: str, thing: Any) -> str:
    if inspect.ismodule(thing):
        return f"::: {thing.__name__}\n    options:\n      heading_level: 2\n      members: false"
    if not hasattr(thing, "__qualname__"):
        options = "\n      heading_level: 2\n      show_attribute_values: false"
        return f"::: {_assigned(name, thing)[0]}\n    options:{options}"
    fields = _fields(thing)
    members = "\n      members: false" if fields else ""
    return f"::: {path_of(name, thing)}\n    options:\n      heading_level: 2{members}\n\n{fields}"


def _fields(thing: Any) -> str:
    """Of a typed recipe: its fields, with what they mean."""
    fields = getattr(thing, "model_fields", None)
    if not isinstance(fields, dict) or not fields:
        return ""
    rows = []
    for name, field in fields.items():
        text = (field.description or "").replace("|", "\\|")
        rows.append(f"| `{name}` | `{field.default!r}` | {text} |")
    return "| field | default | meaning |\n|---|---|---|\n" + "\n".join(rows)


def path_of(name: str, thing: Any) -> str:
    """Where it is defined."""
    return f"{thing.__module__}.{thing.__qualname__}"


def documentation(name: str, thing: Any) -> str:
    """What it says of itself: its docstring, or the text below the line that assigns it."""
    if inspect.ismodule(thing) or hasattr(thing, "__qualname__"):
        return inspect.getdoc(thing) or ""
    return _assigned(name, thing)[1]


def _assigned(name: str, thing: Any) -> tuple[str, str]:
    """Where a name that is neither class nor function is assigned, and the text below."""
    for place, module in sorted(sys.modules.items()):
        if not place.startswith("simgrad.") or vars(module).get(name) is not thing:
            continue
        lines = ast.parse(inspect.getsource(module)).body
        for line, below in itertools.pairwise(lines):
            targets = line.targets if isinstance(line, ast.Assign) else [getattr(line, "target", 0)]
            if any(isinstance(target, ast.Name) and target.id == name for target in targets):
                text = getattr(getattr(below, "value", None), "value", None)
                return f"{place}.{name}", inspect.cleandoc(text) if isinstance(text, str) else ""
    raise LookupError(f"no module of simgrad assigns {name}")


def _line(thing: Any) -> str:
    """The first sentence of what it says of itself."""
    text = inspect.getdoc(thing) or ""
    first = " ".join(text.split("\n\n")[0].split())
    return re.sub(r"\|", "\\|", first)
