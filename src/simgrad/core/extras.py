"""Files of a user's own (`--with FILE.py`), imported here and in every worker process."""

import os
import runpy
from pathlib import Path

from simgrad.core.errors import InputError

_NAMES = "SIMGRAD_WITH"


def import_file(path: Path) -> None:
    """Run a file that declares objectives, models, layouts or metrics."""
    if not path.is_file():
        raise InputError(f"--with {path}: there is no such file.")
    runpy.run_path(str(path))
    earlier = os.environ.get(_NAMES)
    os.environ[_NAMES] = os.pathsep.join(filter(None, [earlier, str(path.resolve())]))


def import_extras() -> None:
    """In a worker: import the files that the command was given."""
    names = os.environ.pop(_NAMES, "")
    for name in filter(None, names.split(os.pathsep)):
        import_file(Path(name))
