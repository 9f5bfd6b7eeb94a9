"""The `simgrad` command: finds the sub-command, a typed function in the file of its name.

Only the chosen command's module is imported, so `simgrad --help` answers at once.
"""

import contextlib
import importlib
import io
import os
import shutil
import sys
import textwrap
import warnings
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import simgrad
from simgrad.cli.options import (
    JSON,
    answers,
    as_options,
    complete_flags,
    details,
    readable,
    registry,
)
from simgrad.core.console import say, say_wrapped
from simgrad.core.errors import InputError
from simgrad.core.extras import import_file
from simgrad.core.text import as_json, did_you_mean
from simgrad.core.threads import settle

# name -> (module, function, one line)
COMMANDS: dict[str, tuple[str, str, str]] = {
    "demo": ("demo", "demo", "compare six objectives on drawn scenes"),
    "choose": ("choose", "choose", "compare objectives on your data and recommend one"),
    "train": ("train", "train", "train one model with one objective"),
    "study": ("study", "study", "train a grid of runs and print one table"),
    "evaluate": ("evaluate", "evaluate", "print the metrics of a run, or compare several"),
    "cocos": ("cocos", "cocos", "count how many samples contribute to the gradient"),
    "diagram": ("diagram", "diagram", "draw an objective's weights"),
    "mine": ("mine", "mine", "find hard negatives in the whole training set"),
    "false-negatives": (
        "false_negatives",
        "false_negatives",
        "find unlabelled pairs that are probably correct",
    ),
    "embed": ("embed", "embed", "write vectors of pictures or sentences"),
    "features": ("features", "features", "compute image features once"),
    "import": ("import_checkpoint", "import_checkpoint", "read a published checkpoint"),
    "export": ("export", "export", "write a trained model for other programs"),
    "report": ("report", "report", "write one HTML file about a study or some runs"),
    "search": ("search", "search", "find pictures by a sentence, or captions by a picture"),
    "serve": ("serve", "serve", "serve the lab page to a browser"),
    "objectives": ("objectives", "objectives", "list objectives"),
    "models": ("models", "models", "list models"),
    "datasets": ("datasets", "datasets", "show what a data set holds and what is wrong with it"),
}

_RESUMED = ("choose", "study")  # `train` says so itself

_HEAD = """\
simgrad {version}: train, compare and explain objectives for image-caption retrieval

usage: simgrad [--with FILE.py] COMMAND [OPTIONS]
       simgrad COMMAND --help         explains a command and its options
"""
_TAIL = """
  --with FILE.py   import a Python file of yours first, e.g. with an objective
  --version        print the version
  --completion     print what bash needs to complete commands and options
  --json           after a command that prints a table: print JSON instead

Try: simgrad demo
"""


def help_text() -> str:
    """The page that `simgrad --help` prints."""
    lines = [f"  {name:<15} {line}" for name, (_, _, line) in COMMANDS.items()]
    return "\n".join([_HEAD.format(version=simgrad.__version__), *lines, _TAIL])


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command; errors a user can mend are printed in plain words."""
    rest = list(sys.argv[1:] if arguments is None else arguments)
    if not {"-h", "--help", "--version"} & set(rest):
        settle()  # before torch is loaded
    try:
        with warnings.catch_warnings():
            warnings.showwarning = partial(_warn, rest)
            sys.exit(_run(rest))
    except InputError as error:
        for line in f"simgrad: {_worded(str(error), rest)}".split("\n"):
            # What is set in is a command to copy.
            (say if line.startswith(" ") else say_wrapped)(line, stderr=True)
        sys.exit(2)
    except KeyboardInterrupt:
        command = next((word for word in rest if word in COMMANDS), "")  # --with may come first
        again = " Run the same command again to resume." if command in _RESUMED else ""
        say(f"simgrad: stopped.{again}", stderr=True)
        sys.exit(130)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(0)
    except OSError as error:  # a disk, a socket, a permission: not a mistake of the program
        where = f"{error.filename}: " if error.filename else ""
        say(f"simgrad: {where}{error.strerror or error}.", stderr=True)
        sys.exit(2)


def _warn(rest: Sequence[str], message: Warning | str, *_: object, **__: object) -> None:
    """What a warning says, without its line of code. Of torchrun's processes one speaks."""
    if os.environ.get("RANK", "0") == "0":
        say(f"simgrad: {_worded(str(message), rest)}", stderr=True)


def _worded(text: str, rest: Sequence[str]) -> str:
    """With arguments named as the options of the command that is run, once that is loaded."""
    name = next((word for word in rest if word in COMMANDS), None)  # --with may come first
    if name is None:
        return text
    module, function, _ = COMMANDS[name]
    command = getattr(sys.modules.get(f"simgrad.cli.{module}"), function, None)
    return text if command is None else as_options(text, command)


def _own_files(words: list[str]) -> tuple[list[Path], list[str]]:
    """The files of `--with`, wherever it stands, and everything else."""
    files, rest, left = [], [], iter(words)
    for word in left:
        option, equals, value = word.partition("=")
        if option != "--with":
            rest.append(word)
            continue
        file = value if equals else next(left, "")
        if not file:
            raise InputError("--with needs a Python file.")
        files.append(Path(file))
    return files, rest


def _run(rest: list[str]) -> int:
    files, rest = _own_files(rest)
    for file in files:
        import_file(file)
    if not rest or rest[0] in {"-h", "--help", "help"}:
        print(help_text())
        return 0
    if rest[0] == "--version":
        print(simgrad.__version__)
        return 0
    if rest[0] == "--completion":
        print(importlib.import_module("simgrad.cli.completion").script(COMMANDS), end="")
        return 0
    if rest[0] not in COMMANDS:
        near = did_you_mean(rest[0], COMMANDS)
        hint = f"; did you mean {near}?" if near else "."
        raise InputError(f"there is no command '{rest[0][:60]}'{hint} See simgrad --help.")
    import tyro

    module, function, _ = COMMANDS[rest[0]]
    command: Any = getattr(importlib.import_module(f"simgrad.cli.{module}"), function)
    program, words = f"simgrad {rest[0]}", rest[1:]
    as_data = JSON in words and answers(command)
    if as_data:
        words = [word for word in words if word != JSON]
    shown = contextlib.redirect_stdout(io.StringIO()) if as_data else contextlib.nullcontext()
    with registry(), _told_after(details(command), rest), shown:
        found = tyro.cli(
            readable(command),
            prog=program,
            args=complete_flags(command, words),
            config=(tyro.conf.OmitArgPrefixes, tyro.conf.FlagConversionOff),
        )
    if as_data:
        print(as_json(found))
    return 0


@contextlib.contextmanager
def _told_after(text: str, words: list[str]) -> Iterator[None]:
    """After --help has listed the options: the rest of what a command says, wrapped."""
    try:
        yield
    except SystemExit as end:
        if not end.code and {"-h", "--help"} & set(words):
            width = min(shutil.get_terminal_size().columns, 100)
            for paragraph in text.split("\n\n") if text else []:
                print(textwrap.fill(" ".join(paragraph.split()), width), end="\n\n")
        raise


if __name__ == "__main__":
    main()
