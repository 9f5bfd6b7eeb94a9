"""What is said of a command line that is not understood: plain sentences, as other errors are.

tyro draws boxes instead. Its hook for errors is not public yet: a version of tyro that lacks it, or
has another one, draws its box, and exits with 2 just the same.
"""

import contextlib
import re
import sys
import textwrap
from collections.abc import Iterable, Iterator
from typing import Any, NoReturn

from simgrad.core.console import say
from simgrad.core.text import did_you_mean, listed

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
    """Of the unknown options; if there are none, of the arguments that are too many."""
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
