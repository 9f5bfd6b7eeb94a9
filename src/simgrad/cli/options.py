"""How options of the command line look in --help, and what is said when a value does not fit."""

import dataclasses
import types
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo

_PLAIN: dict[Any, tuple[str, str]] = {
    int: ("N", "a whole number"),
    float: ("X", "a number"),
    str: ("TEXT", "text"),
    Path: ("PATH", "a path"),
}
_FLAG = PrimitiveConstructorSpec(
    nargs=1,
    metavar="[True|False]",  # alone it means True, see `complete_flags`
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
            raise ValueError(f"it takes {what}, not {words[0]!r}") from None

    return PrimitiveConstructorSpec(
        nargs=1,
        metavar=metavar,
        instance_from_str=parse,
        is_instance=lambda value: isinstance(value, kind),
        str_from_instance=lambda value: [str(value)],
    )


def _optional(info: PrimitiveTypeInfo) -> Any:
    """What may be left out is parsed as what it is: nobody types "None"."""
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


def without_none(kind: Any) -> Any:
    """`int` of `int | None`; anything else as it is."""
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        rest = [part for part in typing.get_args(kind) if part is not type(None)]
        if len(rest) == 1:
            return rest[0]
    return kind


def complete_flags(command: Callable[..., object], words: list[str]) -> list[str]:
    """`--flag` alone means `--flag True`; both forms work for every yes-or-no option."""
    flags, with_text = _flags(command, bool), _flags(command, bool | str)
    complete = []
    for i, word in enumerate(words):
        complete.append(word)
        name, after = word.replace("_", "-"), words[i + 1 : i + 2]
        alone = not after or after[0].startswith("--")
        if (name in flags and after not in (["True"], ["False"])) or (name in with_text and alone):
            complete.append("True")
    return complete


def _flags(command: Any, wanted: Any) -> set[str]:
    flags = set()
    for name, kind in typing.get_type_hints(command).items():
        if without_none(kind) == wanted:
            flags.add(f"--{name.replace('_', '-')}")
        elif dataclasses.is_dataclass(kind):  # a group of options
            flags |= _flags(kind, wanted)
    return flags
