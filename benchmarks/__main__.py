"""`python -m benchmarks`."""

import sys

import tyro

from benchmarks.run import bench
from simgrad.cli.options import complete_flags, registry
from simgrad.core.errors import InputError

try:
    with registry():
        words = complete_flags(bench, sys.argv[1:])
        off = (tyro.conf.FlagConversionOff,)
        tyro.cli(bench, prog="python -m benchmarks", args=words, config=off)
except InputError as error:
    sys.exit(f"benchmarks: {error}")
