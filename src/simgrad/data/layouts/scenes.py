"""`scenes`: the embedded data set, made on the fly, so that everything runs with no download.

A spec says which world: `scenes(train=4000, seed=0, features=global)`.
"""

import dataclasses
from dataclasses import dataclass

from simgrad.core.errors import InputError
from simgrad.core.spec import print_spec, setting
from simgrad.data.base import Dataset
from simgrad.data.layouts.base import Layout, declare
from simgrad.data.log import Log
from simgrad.data.scenes.dataset import FIRST, VERSION, scene_split


@declare(
    "scenes",
    paper="",
    description="'scenes(train=1000)': drawn pictures that come with simgrad",
)
@dataclass(frozen=True)
class Scenes(Layout):
    """A world of scenes."""

    train: int = setting(4000, "scenes in the train split")
    val: int = setting(500, "scenes in the val split")
    test: int = setting(500, "scenes in the test split")
    seed: int = setting(0, "which world")
    size: int = setting(64, "pixels a side of a picture")
    features: str = setting("pixels", "what models see", choices=("pixels", "global", "regions"))
    noise: float = setting(1.0, "times the usual noise of pictures and features")
    # new: each scene has one of four kinds of things that old has not
    shapes: str = setting("all", "kinds of things", choices=("all", "old", "new"))
    duplicates: float = setting(0.0, "share of scenes that nearly repeat an earlier one")

    def __post_init__(self) -> None:
        for name in FIRST:
            if not 0 <= getattr(self, name) <= 100_000_000:
                raise InputError(f"scenes: {name} is a number of scenes from 0 to 100,000,000.")
        if not 8 <= self.size <= 2048:
            raise InputError(f"scenes: size is 8 to 2048 pixels, not {self.size}.")
        if not 0 <= self.duplicates < 1:
            raise InputError(f"scenes: duplicates is a share from 0 to 1, not {self.duplicates}.")
        if not 0 <= self.noise <= 100:
            raise InputError(f"scenes: noise is a factor from 0 to 100, not {self.noise}.")

    def __str__(self) -> str:
        return print_spec(self)

    def make(self, log: Log, published: bool) -> Dataset:
        splits = {name: scene_split(self, name) for name in FIRST if getattr(self, name)}
        settings = dataclasses.asdict(self)
        if self.shapes == "all":  # as it was called before there were others
            del settings["shapes"]
        identity = f"{VERSION} {settings}"
        return Dataset(name=str(self), layout=self.name, splits=splits, identity=identity)
