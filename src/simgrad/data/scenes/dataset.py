"""The splits of a world of scenes: captions, pictures, features and truth, made when asked for.

All depend on the seed and the scene's index alone, never on the size of a split. The meaning of
every caption is known, so `truth` says which captions fit which pictures, exactly.
"""

import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt
from PIL import Image

from simgrad.core.derived import cache_folder, kept_array
from simgrad.core.files import atomic_path, new_array, sha256
from simgrad.data.base import Lazy, Rows, Split
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
from simgrad.data.scenes.truth import SceneTruth
from simgrad.data.scenes.world import Scene, make_scene

if TYPE_CHECKING:
    from simgrad.data.layouts.scenes import Scenes

T = TypeVar("T")
# The index of each split's first scene: far apart, so that splits grow without meeting.
FIRST = {"train": 0, "val": 1_000_000_000, "test": 2_000_000_000}
VERSION = 2  # goes up when the same spec would give other scenes, captions or features
_GRAIN = 0.02  # a picture's noise, as a share of full brightness
_BLOCK = 500  # scenes whose feature noise is drawn together


def scene_split(world: "Scenes", name: str) -> Split:
    """One split of a world."""
    count, first = getattr(world, name), FIRST[name]
    scene, captions_of = _told(world.seed, world.duplicates, world.shapes, first)

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
        truth=SceneTruth(scenes, captions),
    )


@functools.lru_cache(maxsize=6)  # two worlds; whoever opens one again need not draw it again
def _told(
    seed: int, duplicates: float, shapes: str, first: int
) -> tuple[Callable[[int], Scene], Callable[[int], tuple[str, ...]]]:
    """What is in each scene of a split, and its captions."""

    @functools.lru_cache(maxsize=1 << 16)
    def scene(row: int) -> Scene:
        return make_scene(seed, first + row, duplicates, first, shapes)

    @functools.lru_cache(maxsize=1 << 16)
    def captions_of(row: int) -> tuple[str, ...]:
        return make_captions(scene(row))

    return scene, captions_of


class ScenePictures:
    """Pictures of a split, drawn when they are asked for; and what is in them."""

    def __init__(self, world: "Scenes", name: str, scenes: Sequence[Scene]) -> None:
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

    def content(self, verify: bool = False) -> str:
        """The world's spec says it all."""
        return sha256(f"{VERSION} {self._name} {self._world}")

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
    world: "Scenes", name: str, scenes: Sequence[Scene], block: int
) -> tuple[list[Scene], np.random.Generator]:
    """Scenes of one block, always a whole one, and the generator of their noise."""
    start = block * _BLOCK
    rows = range(start, start + _BLOCK)
    first = FIRST[name]
    whole = [
        scenes[r]
        if r < len(scenes)
        else make_scene(world.seed, first + r, world.duplicates, first, world.shapes)
        for r in rows
    ]
    return whole, np.random.default_rng([world.seed % (1 << 63), first, block])


class SceneFeatures:
    """Features of a split, computed once and kept as a memory-mapped file in the cache."""

    def __init__(self, world: "Scenes", name: str, scenes: Sequence[Scene]) -> None:
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
            f"scenes {VERSION} {world.features} seed={world.seed} noise={world.noise} "
            f"duplicates={world.duplicates} {self._name} {len(self)}"
            + ("" if world.shapes == "all" else f" shapes={world.shapes}")
        )

    def content(self, verify: bool = False) -> str:
        """The spec says it all; a kept file that is not what was computed is not used."""
        return sha256(self.header)

    def rows(self, indices: Rows) -> npt.NDArray[np.float32]:
        """The features of these scenes."""
        return self._array[np.asarray(indices, dtype=np.int64)].astype(np.float32)

    @functools.cached_property
    def _array(self) -> npt.NDArray[Any]:
        path = cache_folder() / "scenes" / f"{sha256(self.header)[:24]}.npy"
        try:
            return kept_array(path, {"scenes": self.header}, self._write)
        except OSError:  # no place to keep them: make them each time
            return np.concatenate([self._compute(b) for b in range(self._blocks)])[: len(self)]

    @property
    def _blocks(self) -> int:
        return -(-len(self) // _BLOCK)

    def _write(self, path: Path) -> None:
        with atomic_path(path) as temporary:
            array = new_array(temporary, (len(self), *self.shape), np.float16)
            for block in range(self._blocks):
                start = block * _BLOCK
                array[start : start + _BLOCK] = self._compute(block)[: len(self) - start]
            array.flush()
            del array  # Windows renames no file that is mapped

    def _compute(self, block: int) -> npt.NDArray[np.float16]:
        scenes, rng = _block(self._world, self._name, self._scenes, block)
        make = region_features if self._world.features == "regions" else global_features
        return make(scenes, rng, self._world.noise).astype(np.float16)
