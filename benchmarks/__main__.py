"""`python -m benchmarks`."""

import sys

import tyro

from benchmarks.run import bench
from simgrad.cli.options import complete_flags, registry
from simgrad.core.errors import InputError

try:
    with registry():
        tyro.cli(bench, prog="python -m benchmarks", args=complete_flags(bench, sys.argv[1:]))
except InputError as error:
    sys.exit(f"benchmarks: {error}")
