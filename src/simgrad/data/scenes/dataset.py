"""`scenes`: the embedded data set, made on the fly, so that everything runs with no download.

A spec says which world: `scenes(train=4000, seed=0, features=global)`. Scenes, captions, pictures
and features depend on the seed and the scene's index alone, never on the size of a split; the
meaning of every caption is known, so `truth` says which captions fit which pictures, exactly.
"""

import dataclasses
import functools
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar, overload

import numpy as np
import numpy.typing as npt
from PIL import Image

from simgrad.core.errors import InputError
from simgrad.core.files import atomic_path, lock, new_array, open_array, sha256
from simgrad.core.spec import Registry, print_spec, setting
from simgrad.data.base import Dataset, Rows, Split
from simgrad.data.scenes.captions import CAPTIONS_PER_SCENE, make_captions
from simgrad.data.scenes.features import (
    GLOBAL_DIMENSION,
    REGION_DIMENSION,
    REGIONS,
    global_features,
    region_boxes,
    region_features,
)
from simgrad.data.scenes.render import render
from simgrad.data.scenes.truth import Truth, describes
from simgrad.data.scenes.world import Scene, Thing, make_scene

__all__ = ["Scene", "Scenes", "Thing", "describes", "make_captions", "make_scene", "open_scenes"]

T = TypeVar("T")
# The index of each split's first scene: far apart, so that splits grow without meeting.
FIRST = {"train": 0, "val": 1_000_000_000, "test": 2_000_000_000}
_VERSION = 2  # goes up when the same spec would give other scenes, captions or features
_GRAIN = 0.02  # a picture's noise, as a share of full brightness
_BLOCK = 500  # scenes whose feature noise is drawn together

worlds: Registry["Scenes"] = Registry("data set", "simgrad datasets")


@worlds.declare("scenes", paper="", description="things on a ground, drawn and told by a generator")
@dataclass(frozen=True)
class Scenes:
    """A world of scenes."""

    train: int = setting(4000, "scenes in the train split")
    val: int = setting(500, "scenes in the val split")
    test: int = setting(500, "scenes in the test split")
    seed: int = setting(0, "which world")
    size: int = setting(64, "pixels a side of a picture")
    features: str = setting(
        "pixels", "what models see of a scene", choices=("pixels", "global", "regions")
    )
    noise: float = setting(1.0, "times the usual noise of pictures and features")
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


def open_scenes(spec: str = "scenes") -> Dataset:
    """The data set of a spec such as `scenes(train=100, features=regions)`."""
    world = worlds.parse(spec)
    splits = {name: _split(world, name) for name in FIRST if getattr(world, name)}
    identity = f"{_VERSION} {dataclasses.asdict(world)}"
    return Dataset(name=str(world), layout="scenes", splits=splits, identity=identity)


def _split(world: Scenes, name: str) -> Split:
    count, first = getattr(world, name), FIRST[name]

    @functools.lru_cache(maxsize=1 << 16)
    def scene(row: int) -> Scene:
        return make_scene(world.seed, first + row, world.duplicates, first)

    @functools.lru_cache(maxsize=1 << 16)
    def captions_of(row: int) -> tuple[str, ...]:
        return make_captions(scene(row))

    def caption(row: int) -> str:
        return captions_of(row // CAPTIONS_PER_SCENE)[row % CAPTIONS_PER_SCENE]

    def image_name(row: int) -> str:
        return f"scene-{world.seed}-{first + row}"

    scenes = Lazy(count, scene)
    captions = Lazy(count * CAPTIONS_PER_SCENE, caption)
    return Split(
        dataset=str(world),
        name=name,
        captions=captions,
        image_of_caption=np.repeat(np.arange(count, dtype=np.int64), CAPTIONS_PER_SCENE),
        image_names=Lazy(count, image_name),
        pictures=ScenePictures(world, name, scenes),
        features=None if world.features == "pixels" else SceneFeatures(world, name, scenes),
        truth=Truth(scenes, captions),
    )


class Lazy(Sequence[T], Generic[T]):
    """A sequence whose items are made when they are asked for."""

    def __init__(self, length: int, make: Callable[[int], T]) -> None:
        self._length, self._make = length, make

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> list[T]: ...
    def __getitem__(self, index: int | slice) -> T | list[T]:
        if isinstance(index, slice):
            return [self._make(i) for i in range(*index.indices(self._length))]
        if not -self._length <= index < self._length:
            raise IndexError(index)
        return self._make(int(index) % self._length)


class ScenePictures:
    """Pictures of a split, drawn when they are asked for; and what is in them."""

    def __init__(self, world: Scenes, name: str, scenes: Sequence[Scene]) -> None:
        self._world, self._name, self._scenes = world, name, scenes
        self._boxes_of = functools.lru_cache(maxsize=16)(self._boxes)

    def __len__(self) -> int:
        return len(self._scenes)

    def picture(self, row: int) -> Image.Image:
        """The picture of one scene."""
        return render(self._scenes[row], self._world.size, self._world.noise * _GRAIN)

    def path(self, row: int) -> Path | None:
        """Scenes have no files."""
        return None

    @property
    def root(self) -> Path | None:
        return None

    def scene(self, row: int) -> Scene:
        """What is in a picture."""
        return self._scenes[row]

    def boxes(self, row: int) -> npt.NDArray[np.float32]:
        """(36, 4): the boxes whose features `features=regions` gives, as shares of the picture."""
        boxes: npt.NDArray[np.float32] = self._boxes_of(row // _BLOCK)[row % _BLOCK]
        return boxes

    def _boxes(self, block: int) -> npt.NDArray[np.float32]:
        return region_boxes(*_block(self._world, self._name, self._scenes, block))


def _block(
    world: Scenes, name: str, scenes: Sequence[Scene], block: int
) -> tuple[list[Scene], np.random.Generator]:
    """Scenes of one block, always a whole one, and the generator of their noise."""
    start = block * _BLOCK
    rows = range(start, start + _BLOCK)
    first = FIRST[name]
    whole = [
        scenes[r] if r < len(scenes) else make_scene(world.seed, first + r, world.duplicates, first)
        for r in rows
    ]
    return whole, np.random.default_rng([world.seed % (1 << 63), first, block])


class SceneFeatures:
    """Features of a split, computed once and kept as a memory-mapped file in the cache."""

    def __init__(self, world: Scenes, name: str, scenes: Sequence[Scene]) -> None:
        self._world, self._name, self._scenes = world, name, scenes

    def __len__(self) -> int:
        return len(self._scenes)

    @property
    def shape(self) -> tuple[int, ...]:
        if self._world.features == "regions":
            return (REGIONS, REGION_DIMENSION)
        return (GLOBAL_DIMENSION,)

    @property
    def header(self) -> str:
        world = self._world
        return (
            f"scenes {_VERSION} {world.features} seed={world.seed} noise={world.noise} "
            f"duplicates={world.duplicates} {self._name} {len(self)}"
        )

    def rows(self, indices: Rows) -> npt.NDArray[np.float32]:
        """The features of these scenes."""
        return self._array[np.asarray(indices, dtype=np.int64)].astype(np.float32)

    @functools.cached_property
    def _array(self) -> npt.NDArray[Any]:
        path = cache_folder() / "scenes" / f"{sha256(self.header)[:24]}.npy"
        if not path.exists():
            try:
                with lock(path.with_suffix(".lock"), what=str(path)):
                    if not path.exists():
                        with atomic_path(path) as temporary:
                            self._write(temporary)
            except OSError:  # no place to keep them: make them each time
                return np.concatenate([self._compute(b) for b in range(self._blocks)])[: len(self)]
        return open_array(path)

    @property
    def _blocks(self) -> int:
        return -(-len(self) // _BLOCK)

    def _write(self, path: Path) -> None:
        array = new_array(path, (len(self), *self.shape), np.float16)
        for block in range(self._blocks):
            start = block * _BLOCK
            array[start : start + _BLOCK] = self._compute(block)[: len(self) - start]
        array.flush()

    def _compute(self, block: int) -> npt.NDArray[np.float16]:
        scenes, rng = _block(self._world, self._name, self._scenes, block)
        make = region_features if self._world.features == "regions" else global_features
        return make(scenes, rng, self._world.noise).astype(np.float16)


def cache_folder() -> Path:
    """Where things that can be made again are kept: $SIMGRAD_CACHE or ~/.cache/simgrad."""
    return Path(os.environ.get("SIMGRAD_CACHE") or Path.home() / ".cache" / "simgrad")
