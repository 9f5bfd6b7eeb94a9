"""A data set that Hugging Face's `save_to_disk` wrote; needs the extra `huggingface`."""

from dataclasses import dataclass
from pathlib import Path

from simgrad.core.errors import InputError
from simgrad.data.array_files import package
from simgrad.data.base import Dataset
from simgrad.data.layouts.base import Layout, declare
from simgrad.data.layouts.tables import read_tables
from simgrad.data.log import Log


@declare(
    "huggingface",
    paper="https://huggingface.co/docs/datasets",
    description="a data set saved by Hugging Face's save_to_disk",
)
@dataclass(frozen=True)
class Saved(Layout):
    """A column of images, and one of captions: a text or a list of texts."""

    def parts(self, path: Path) -> dict[str, bool]:
        told = "dataset_dict.json, or state.json and dataset_info.json, from save_to_disk"
        one = (path / "state.json").is_file() and (path / "dataset_info.json").is_file()
        return {told: one or (path / "dataset_dict.json").is_file()}

    def read(self, path: Path, log: Log, published: bool) -> Dataset:
        datasets = package(str(path))
        try:
            saved = datasets.load_from_disk(str(path))
        except Exception as error:  # arrow, JSON and OS errors of a damaged folder
            raise InputError(f"{path}: cannot be read ({str(error)[:120]}).") from None
        return read_tables(path.name, str(path), saved, log, published)
