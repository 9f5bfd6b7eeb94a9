"""The `simgrad` command: finds the sub-command, a typed function in the file of its name.

Only the chosen command's module is imported, so `simgrad --help` answers at once.
"""

import importlib
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path

import simgrad
from simgrad.cli.options import complete_flags, registry
from simgrad.core.console import say
from simgrad.core.errors import InputError
from simgrad.core.extras import import_file
from simgrad.core.threads import settle

# name -> (module, function, one line)
COMMANDS: dict[str, tuple[str, str, str]] = {
    "demo": ("demo", "demo", "compare objectives on the embedded world"),
    "choose": ("choose", "choose", "which objective for these data? one command, one answer"),
    "train": ("train", "train", "train one model with one objective"),
    "study": ("study", "study", "train a grid of runs, print one table"),
    "evaluate": ("evaluate", "evaluate", "metrics of a run, or compare two"),
    "cocos": ("cocos", "cocos", "count what contributes to the gradient"),
    "diagram": ("diagram", "diagram", "draw an objective's weights"),
    "mine": ("mine", "mine", "hard negatives over the whole training set"),
    "false-negatives": (
        "false_negatives",
        "false_negatives",
        "right pairs that nobody marked",
    ),
    "features": ("features", "features", "compute image features once"),
    "import": ("import_checkpoint", "import_checkpoint", "read a published checkpoint"),
    "export": ("export", "export", "write a trained model for other programs"),
    "report": ("report", "report", "one HTML file of a study or some runs"),
    "search": ("search", "search", "find pictures by a sentence, or captions"),
    "serve": ("serve", "serve", "the lab page in a browser"),
    "objectives": ("objectives", "objectives", "list objectives"),
    "models": ("models", "models", "list models"),
    "datasets": ("datasets", "datasets", "look at a data set and its problems"),
}

_HEAD = """\
simgrad {version}: train, compare and explain objectives for image-caption retrieval.

usage: simgrad [--with FILE.py] COMMAND [OPTIONS]      (simgrad COMMAND --help says more)
"""
_TAIL = """
  --with FILE.py   import a file of yours first, e.g. one that declares an objective
  --version        print the version

Try: simgrad demo
"""


def help_text() -> str:
    """The page that `simgrad --help` prints."""
    lines = [f"  {name:<15} {line}" for name, (_, _, line) in COMMANDS.items()]
    return "\n".join([_HEAD.format(version=simgrad.__version__), *lines, _TAIL])


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command; errors a user can mend are printed in plain words."""
    settle()  # before torch is loaded
    rest = list(sys.argv[1:] if arguments is None else arguments)
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _warn
            sys.exit(_run(rest))
    except InputError as error:
        say(f"simgrad: {error}", stderr=True)
        sys.exit(2)
    except KeyboardInterrupt:
        say("simgrad: stopped.", stderr=True)
        sys.exit(130)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(0)
    except OSError as error:  # a disk, a socket, a permission: not a mistake of the program
        where = f"{error.filename}: " if error.filename else ""
        say(f"simgrad: {where}{error.strerror or error}.", stderr=True)
        sys.exit(2)


def _warn(message: Warning | str, *_: object, **__: object) -> None:
    """What a warning says, without the line of code that it comes from."""
    say(f"simgrad: {message}", stderr=True)


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
    if rest[0] not in COMMANDS:
        import difflib

        near = difflib.get_close_matches(rest[0], COMMANDS, n=1)
        hint = f" Did you mean '{near[0]}'?" if near else ""
        raise InputError(f"there is no command '{rest[0]}'.{hint} `simgrad --help` lists them.")
    module, function, _ = COMMANDS[rest[0]]
    import tyro

    command = getattr(importlib.import_module(f"simgrad.cli.{module}"), function)
    with registry():
        tyro.cli(
            command,
            prog=f"simgrad {rest[0]}",
            args=complete_flags(command, rest[1:]),
            config=(tyro.conf.OmitArgPrefixes, tyro.conf.FlagConversionOff),
        )
    return 0


if __name__ == "__main__":
    main()
