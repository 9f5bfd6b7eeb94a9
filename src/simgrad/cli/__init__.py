"""The command line: one file per command; `program.py` finds the one that was asked for."""

import sys

import simgrad
from simgrad.core.lazy import needs


def main() -> None:
    """The command `simgrad`; without the packages that it needs, the line to type."""
    if sys.argv[1:] == ["--version"]:
        print(simgrad.__version__)
        return
    try:
        from simgrad.cli.program import main as run
    except ModuleNotFoundError as error:
        print(f"simgrad: {needs('the command line', error)}", file=sys.stderr)
        sys.exit(1)
    run()


__all__ = ["main"]
