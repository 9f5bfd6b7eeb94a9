"""Reading files that are pickles inside, as tensors and plain data only.

torch's own restricted unpickler does the work: it builds tensors, containers, numbers and
texts, and refuses everything else before it could run. What published checkpoints carry beside
that, the options of a command line and numpy numbers, is let through by name.
"""

import argparse
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import torch

from simgrad.core.errors import InputError

_UNREADABLE = "{}: not a readable checkpoint: it is damaged, or not a file that torch.save wrote."


def _plain_types() -> list[Any]:
    scalar: Any = np.float64(0).__reduce__()[0]
    # numpy moved the function that makes its numbers; old files use the old name.
    old_name = (scalar, "numpy.core.multiarray.scalar")
    types = [np.float64, np.float32, np.int64, np.bool_]
    dtypes = [type(np.dtype(kind)) for kind in types]
    return [argparse.Namespace, scalar, old_name, np.dtype, *types, *dtypes]


def read_tensors(path: str | Path) -> Any:
    """The contents of a `.pth`, `.pth.tar`, `.pt` or `.bin` file, on the CPU."""
    path = Path(path)
    if not path.is_file():
        raise InputError(f"{path}: there is no such file.")
    try:
        with torch.serialization.safe_globals(_plain_types()):
            return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise InputError(_refusal(path, str(error))) from None
    except Exception:  # a damaged file makes the unpickler raise nearly anything
        raise InputError(_UNREADABLE.format(path)) from None


def _refusal(path: Path, reason: str) -> str:
    marker = "GLOBAL "
    if marker in reason:
        named = reason.split(marker, 1)[1].split()[0]
        return (
            f"{path}: refused. Beside tensors and plain data it asks for '{named}', which could "
            "run code; a published checkpoint needs nothing of the kind."
        )
    return _UNREADABLE.format(path)
