"""Options of the command line: how they look in --help, and what is said when one does not fit.

Mistakes are told in plain sentences, as other errors are; tyro draws boxes instead. Its hook for
errors is not public yet: a version of tyro that lacks it, or has another one, draws its box, and
exits with 2 just the same.
"""

import contextlib
import dataclasses
import functools
import inspect
import re
import sys
import textwrap
import types
import typing
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any, NoReturn

import tyro
from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo

from simgrad.core.console import say
from simgrad.core.spec import print_value
from simgrad.core.text import did_you_mean, listed

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
    """An option that may be omitted is parsed as what it is: nobody types "None"."""
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
    """The same command as --help shows it: texts wrapped by tyro alone, defaults as one types them.

    Only the first paragraph is left of what it does; `details` has the others.
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
    """A type with our way to show a default; what a command says itself comes after, and wins."""
    is_annotated = typing.get_origin(kind) is Annotated
    plain, *own = typing.get_args(kind) if is_annotated else (kind,)
    hint = tyro.conf.arg(help_behavior_hint=default_hint)
    return Annotated.__class_getitem__((plain, hint, *own))  # type: ignore[attr-defined]


def details(command: Callable[..., Any]) -> str:
    """What a command says of itself after the first paragraph."""
    more = f"With {JSON} it prints JSON, and nothing else." if answers(command) else ""
    return "\n\n".join(filter(None, (_parts(command)[1], more)))


def answers(command: Callable[..., Any]) -> bool:
    """Whether a command gives what it found to its caller, which --json prints."""
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


try:
    from tyro._errors import on_parse_error
except ImportError:
    on_parse_error = None  # type: ignore[assignment]

_WIDTH = 79
_KEPT = "\xa0"  # a space at which no line is broken
_LONGEST = 60  # of a word that somebody typed


def refuse(program: str, *sentences: str) -> NoReturn:
    """Print what is wrong and where to read on, within 80 columns in a pipe too; exit with 2."""
    more = f"See {program} --help.".replace(" ", _KEPT)
    text = f"{program}: {' '.join(sentences)} {more}"
    lines = textwrap.wrap(
        text, _WIDTH, subsequent_indent="  ", break_on_hyphens=False, break_long_words=False
    )
    say(*(line.replace(_KEPT, " ") for line in lines), stderr=True)
    sys.exit(2)


@contextlib.contextmanager
def plain_errors(program: str, options: Iterable[str]) -> Iterator[None]:
    """Turn the parser's errors into simgrad's own messages."""
    if on_parse_error is None:
        yield
        return
    names = list(options)

    def hook(event: Any) -> None:
        try:
            sentences = _explain(event, names)
        except AttributeError:  # an event with other fields
            return
        if sentences:
            refuse(program, *sentences)

    with on_parse_error(hook):
        yield


def _explain(event: Any, options: list[str]) -> list[str]:
    """What is wrong; nothing for an event that is not known here."""
    match type(event).__name__:
        case "UnrecognizedArgs":
            return _unknown(event.tokens, options)
        case "MissingArgs":
            missing = [_name(one.arg) for one in event.missing_arguments]
            verb = "is" if len(missing) == 1 else "are"
            unknown = _unknown(event.unrecognized_tokens, options)
            return [*unknown, f"{listed(missing, 'and')} {verb} missing."]
        case "BadValue" if event.reason == "too_few_values":
            name, number = _name(event.argument), event.argument.lowered.nargs
            if event.argument.is_positional():
                return [f"{name} is missing."]
            return [f"{name} needs {'a value' if number == 1 else f'{number} values'}."]
        case "InvalidChoice":
            name, value, choices = _name(event.argument), event.value, event.choices
            told = f"{name} is {listed(choices, 'or')}, not {_quoted(value)}"
            return [_asked(told, did_you_mean(value, choices))]
        case "InstantiationFailure" if event.argument is not None:
            told = event.message.rstrip(".")  # ours begin with "takes"
            return [f"{_name(event.argument)}{' ' if told.startswith('takes ') else ': '}{told}."]
    return []


def _unknown(words: Iterable[str], options: list[str]) -> list[str]:
    """Hints about unknown options; if there are none, about surplus arguments."""
    words = list(words)
    found = [word.partition("=")[0] for word in words if re.match("--?[a-zA-Z]", word)]
    if len(found) > 1:
        return [f"there are no options {listed([word[:_LONGEST] for word in found], 'and')}."]
    if found:
        return [_no_option(found[0], options)]
    return [f"too many arguments: {', '.join(map(_quoted, words))}."] if words else []


def _no_option(word: str, options: list[str]) -> str:
    near = did_you_mean(word.lstrip("-").replace("_", "-"), [name.lstrip("-") for name in options])
    return _asked(f"there is no option {word[:_LONGEST]}", near and f"--{near}")


def _asked(told: str, near: str) -> str:
    return f"{told}; did you mean {near}?" if near else f"{told}."


def _name(argument: Any) -> str:
    """As --help calls it: `--epochs`, or `DATA`."""
    lowered = argument.lowered
    return str(lowered.metavar if argument.is_positional() else lowered.name_or_flags[-1])


def _quoted(word: str) -> str:
    return f"'{word[:_LONGEST]}'"
