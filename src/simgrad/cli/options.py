"""Options of the command line: how they look in --help, and how they are read."""

import dataclasses
import functools
import inspect
import re
import types
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import tyro
from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo

from simgrad.core.spec import print_value

JSON = "--json"
_PLAIN: dict[Any, tuple[str, str]] = {
    int: ("N", "a whole number"),
    float: ("X", "a number"),
    str: ("TEXT", "text"),
    Path: ("PATH", "a path"),
}
_FLAG = PrimitiveConstructorSpec(
    nargs=1,
    metavar="",  # alone it means True, and --no-NAME False: see `complete_flags`
    choices=("True", "False"),
    instance_from_str=lambda words: words[0] == "True",
    is_instance=lambda value: isinstance(value, bool),
    str_from_instance=lambda value: [str(value)],
)


def registry() -> ConstructorRegistry:
    """The rules for tyro: `--seeds N` where it would say `--seeds {None}|INT`."""
    rules = ConstructorRegistry()
    rules.primitive_rule(_plain)
    rules.primitive_rule(_optional)
    return rules


def _plain(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[Any] | None:
    kind: Any = info.type
    if kind is bool:
        return _FLAG
    if kind not in _PLAIN:
        return None
    metavar, what = _PLAIN[kind]

    def parse(words: list[str]) -> Any:
        try:
            return kind(words[0])
        except ValueError:
            raise ValueError(f"takes {what}, not {words[0]!r:.60}") from None

    return PrimitiveConstructorSpec(
        nargs=1,
        metavar=metavar,
        instance_from_str=parse,
        is_instance=lambda value: isinstance(value, kind),
        str_from_instance=lambda value: [print_value(value)],
    )


def _optional(info: PrimitiveTypeInfo) -> Any:
    """The rule for `KIND | None`: parse KIND, because nobody types "None"."""
    kind = without_none(info.type)
    if kind is info.type:
        return None
    inner = ConstructorRegistry.get_primitive_spec(PrimitiveTypeInfo.make(kind, info.markers))
    if not isinstance(inner, PrimitiveConstructorSpec):
        return inner
    return dataclasses.replace(
        inner,
        is_instance=lambda value: value is None or inner.is_instance(value),
        str_from_instance=lambda value: (
            ["none"] if value is None else inner.str_from_instance(value)
        ),
    )


def readable(command: Callable[..., Any]) -> Callable[..., Any]:
    """The command as --help shows it: the first paragraph of its docstring, defaults as one types
    them, and no line breaks of ours. `details` has the other paragraphs.
    """

    @functools.wraps(command)
    def shown(*args: Any, **kwargs: Any) -> Any:
        return command(*args, **kwargs)

    hints = typing.get_type_hints(command, include_extras=True)
    shown.__annotations__ = {name: _hinted(kind) for name, kind in hints.items()}
    shown.__signature__ = inspect.signature(command)  # type: ignore[attr-defined]
    del shown.__wrapped__  # tyro would look at it instead
    first, _, arguments = _parts(command)
    shown.__doc__ = f"{first}\n\n{arguments}"
    return shown


def _hinted(kind: Any) -> Any:
    """A type with our way to show a default; a command's own annotation comes later, and wins."""
    is_annotated = typing.get_origin(kind) is Annotated
    plain, *own = typing.get_args(kind) if is_annotated else (kind,)
    hint = tyro.conf.arg(help_behavior_hint=default_hint)
    return Annotated.__class_getitem__((plain, hint, *own))  # type: ignore[attr-defined]


def details(command: Callable[..., Any]) -> str:
    """The paragraphs of a command's docstring after the first."""
    more = f"With {JSON} it prints JSON, and nothing else." if answers(command) else ""
    return "\n\n".join(filter(None, (_parts(command)[1], more)))


def answers(command: Callable[..., Any]) -> bool:
    """Whether a command returns something, which --json prints."""
    return typing.get_type_hints(command).get("return") is not type(None)


def _parts(command: Callable[..., Any]) -> tuple[str, str, str]:
    """The first paragraph, the others, and the arguments, each of which is one line."""
    told, mark, arguments = inspect.cleandoc(command.__doc__ or "").partition("\nArgs:\n")
    first, _, rest = told.strip().partition("\n\n")
    return first, rest, mark.lstrip() + re.sub(r"\n {8,}", " ", arguments)


def default_hint(label: str) -> str:
    """The default in a help text; empty if there is none, or it is a flag that is off."""
    if label in ("True", "False"):
        return "(on; --no-NAME turns it off)" if label == "True" else ""
    return f"(default: {label})" if label not in ("", "none") else ""


def without_none(kind: Any) -> Any:
    """`int` of `int | None`; anything else as it is."""
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        rest = [part for part in typing.get_args(kind) if part is not type(None)]
        if len(rest) == 1:
            return rest[0]
    return kind


def complete_flags(command: Callable[..., object], words: list[str]) -> list[str]:
    """`--flag` alone means `--flag True`, `--no-flag` `--flag False`; all forms work."""
    options = options_of(command)
    flags = {name for name, kind in options.items() if kind is bool}
    with_text = {name for name, kind in options.items() if kind == bool | str}
    complete = []
    for i, word in enumerate(words):
        if word.startswith("--no-") and (name := f"--{word[5:].replace('_', '-')}") in flags:
            complete += [name, "False"]
            continue
        complete.append(word)
        name, after = word.replace("_", "-"), words[i + 1 : i + 2]
        alone = not after or after[0].startswith("--")
        if (name in flags and after not in (["True"], ["False"])) or (name in with_text and alone):
            complete.append("True")
    return complete


def options_of(command: Any) -> dict[str, Any]:
    """The options of a command, those in groups too, and the type of each."""
    options: dict[str, Any] = {}
    marked = typing.get_type_hints(command, include_extras=True)
    for name, kind in typing.get_type_hints(command).items():
        if dataclasses.is_dataclass(kind):  # a group
            options |= options_of(kind)
        elif name != "return" and tyro.conf.Positional not in typing.get_args(marked[name]):
            options[f"--{name.replace('_', '-')}"] = without_none(kind)
    return options


_ARGUMENT = re.compile(r"`([a-z_]+)(?:=([^`]*))?`")


def as_options(text: str, command: Any) -> str:
    """What the package says of an argument, `minutes` or `minutes=30`, as the command's option.

    Where the package speaks of Python's arguments, a command speaks of its own: --minutes 30.
    """
    options = options_of(command)

    def option(found: re.Match[str]) -> str:
        name, value = f"--{found[1].replace('_', '-')}", found[2]
        if name not in options:
            return found[0]
        if value == "False":
            return f"--no-{name[2:]}"
        return name if value in (None, "True") else f"{name} {value}"

    return _ARGUMENT.sub(option, text)
