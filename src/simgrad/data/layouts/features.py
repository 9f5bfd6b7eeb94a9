"""A folder that `simgrad features` wrote stands for the data set that its features are of."""

from dataclasses import dataclass
from pathlib import Path

from simgrad.core.errors import InputError
from simgrad.data.arrays import HEADER, attach_features, read_header
from simgrad.data.base import Dataset
from simgrad.data.layouts.base import Layout, declare, open_place
from simgrad.data.log import Log


@declare("features", paper="", description="features.json + SPLIT.npy, from `simgrad features`")
@dataclass(frozen=True)
class FeatureFolder(Layout):
    """The data set the features were computed from, with these features."""

    def parts(self, path: Path) -> dict[str, bool]:
        return {HEADER: (path / HEADER).is_file()}

    def read(self, path: Path, log: Log, published: bool) -> Dataset:
        header = read_header(path)
        data = header.get("data")
        if not isinstance(data, str) or not data:
            raise InputError(f"{path / HEADER}: does not say which 'data' the features are of.")
        if (path / data).exists():  # beside it, where both were moved together
            data = str(path / data)
        log.leave_out(header["skip"], path / HEADER)
        return attach_features(open_place(data, log, None, published), path)
