"""A data set by its name on the Hugging Face hub: `hub(repo=nlphuji/flickr30k)`.

It is loaded by the package `datasets` into that package's own cache. Nothing from it is run: data
sets that need a program of their own are refused by the package.
"""

from dataclasses import dataclass

from simgrad.core.errors import InputError
from simgrad.core.spec import setting
from simgrad.data.array_files import package
from simgrad.data.base import Dataset
from simgrad.data.layouts.base import Layout, declare
from simgrad.data.layouts.tables import read_tables
from simgrad.data.log import Log


@declare(
    "hub",
    paper="https://huggingface.co/docs/datasets",
    description="'hub(repo=OWNER/NAME)': a data set of the Hugging Face hub",
)
@dataclass(frozen=True)
class Hub(Layout):
    """What `datasets.load_dataset(repo)` gives: a column of images, one of captions."""

    repo: str = setting("", "its name on the hub, or a local folder", shown=True)
    config: str | None = setting(None, "which of its configurations")
    revision: str | None = setting(None, "a branch, tag or commit")

    def make(self, log: Log, published: bool) -> Dataset:
        if not self.repo:
            raise InputError("hub: give the data set's name, as in 'hub(repo=nlphuji/flickr30k)'.")
        datasets = package(f"hub(repo={self.repo})")
        try:
            loaded = datasets.load_dataset(self.repo, self.config, revision=self.revision)
        except Exception as error:  # no such name, no network, a damaged file: it has many kinds
            reason = " ".join(str(error).split())[:200]
            raise InputError(f"hub(repo={self.repo}): cannot be loaded ({reason}).") from None
        return read_tables(self.repo.rpartition("/")[2], self.repo, loaded, log, published)
