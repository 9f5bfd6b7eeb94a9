"""The command line: one file per command; `program.py` finds the one that was asked for."""

from simgrad.cli.program import main

__all__ = ["main"]
