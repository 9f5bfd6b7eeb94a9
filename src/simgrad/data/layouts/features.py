"""A folder that `simgrad features` wrote stands for the data set that its features are of."""

from pathlib import Path

from simgrad.core.errors import InputError
from simgrad.data.base import Dataset
from simgrad.data.feature_folder import HEADER, attach_features, read_header
from simgrad.data.log import Log
from simgrad.data.opening import open_logged


def recognises(path: Path) -> bool:
    return (path / HEADER).is_file()


def read(path: Path, log: Log, published: bool) -> Dataset:
    """The data set the features were computed from, with these features."""
    data = read_header(path).get("data")
    if not isinstance(data, str) or not data:
        raise InputError(f"{path / HEADER}: does not say which 'data' the features are of.")
    if not data.startswith("scenes") and not Path(data).exists() and (path / data).exists():
        data = str(path / data)
    return attach_features(open_logged(data, log, published=published), path)
