"""What the lab page shows: the runs and studies it was given, their data, models ready to search.

Runs are addressed by an id made from folder names, pictures by (run, split, row): no request ever
names a path.
"""

import io
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable
from pathlib import Path
from typing import Any, Generic, TypeVar

from simgrad.core.errors import InputError
from simgrad.data.base import Dataset, Split
from simgrad.lab.safety import inside
from simgrad.lab.workers import BadPicture, Decoders, UploadLimits
from simgrad.retriever.opening import open_folder
from simgrad.retriever.search import Searcher
from simgrad.runs.naming import slug
from simgrad.runs.run import RECIPE, Run
from simgrad.studies.study import PLAN, RUNS, Study

T = TypeVar("T")
SIDES = (96, 320, 800)  # pixels of a served picture's longer side
_LARGEST_FILE = 100 << 20


class NotFound(InputError):
    """There is no such thing here: 404."""


class Cache(Generic[T]):
    """Things that are costly to make: made once, even when many ask at once; the oldest go."""

    def __init__(self, most: int) -> None:
        self._most, self._lock = most, threading.Lock()
        self._values: OrderedDict[Hashable, T] = OrderedDict()
        self._making: dict[Hashable, threading.Lock] = {}

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
                return self._values[key]
            making = self._making.setdefault(key, threading.Lock())
        with making:
            with self._lock:
                if key in self._values:
                    return self._values[key]
            try:
                value = make()
                with self._lock:
                    self._values[key] = value
                    while len(self._values) > self._most:
                        self._values.popitem(last=False)
                return value
            finally:
                with self._lock:
                    self._making.pop(key, None)


def find_paths(here: Path) -> tuple[str, ...]:
    """Runs and studies in a folder, in its runs/ and in its studies/."""
    found = [
        str(child)
        for parent in (here, here / "runs", here / "studies")
        if parent.is_dir()
        for child in sorted(parent.iterdir())
        if (child / RECIPE).is_file() or (child / PLAN).is_file()
    ]
    if not found:
        raise InputError("no run or study here: name some, or train one with `simgrad train`.")
    return tuple(found)


class Lab:
    """Everything behind the pages."""

    def __init__(
        self, paths: Iterable[str | Path], device: str = "cpu", limits: UploadLimits | None = None
    ) -> None:
        self.device = device
        self.limits = limits or UploadLimits()
        self.decoders = Decoders(limits=self.limits)
        self.studies: dict[str, Study] = {}
        self._runs: dict[str, Run] = {}
        self._planned: dict[str, dict[str, Run]] = {}  # by study
        self._labels: dict[str, str] = {}  # of the runs of studies
        for path in paths:
            self._add(Path(path))
        self._datasets: Cache[Dataset] = Cache(8)
        self._searchers: Cache[Searcher] = Cache(8)
        self._pictures: Cache[bytes] = Cache(4000)

    def _add(self, path: Path) -> None:
        if (path / PLAN).is_file():
            study, name = Study.open(path), _unused(slug(path.resolve().name), self.studies)
            self._planned[name] = {}
            runs = study.plan.runs()
            for folder, row, recipe in runs:
                run = Run(study.path / RUNS / folder)
                key = f"{name}.{slug(run.name)}"
                self._planned[name][key] = run
                seed = f", seed {recipe.seed}" if len(runs) > len(study.plan.rows) else ""
                self._labels[key] = f"{row.label}{seed}"
            self.studies[name] = study
        elif (path / RECIPE).is_file():
            self._runs[_unused(slug(path.resolve().name), self._runs)] = Run.open(path)
        else:
            children = sorted(path.iterdir()) if path.is_dir() else []
            inner = [c for c in children if (c / PLAN).is_file() or (c / RECIPE).is_file()]
            if not inner:
                raise InputError(f"{path}: neither a run nor a study, nor a folder of them.")
            for child in inner:
                self._add(child)

    def runs(self) -> dict[str, Run]:
        """Every run by its id, also those that a study has begun since."""
        found = dict(self._runs)
        for name in self.studies:
            found |= self.runs_of(name)
        return found

    def runs_of(self, study: str) -> dict[str, Run]:
        """The runs of one study that have begun, by their ids."""
        self.study(study)
        planned = self._planned[study].items()
        return {key: run for key, run in planned if (run.path / RECIPE).is_file()}

    def study(self, name: str) -> Study:
        if name not in self.studies:
            raise NotFound(f"there is no study '{name[:80]}' here.")
        return self.studies[name]

    def run(self, name: str) -> Run:
        planned = self._planned.get(name.partition(".")[0], {})
        run = self._runs.get(name) or planned.get(name)
        if run is None or not (run.path / RECIPE).is_file():
            raise NotFound(f"there is no run '{name[:80]}' here.")
        return run

    def label(self, name: str) -> str:
        """What people call a run: its setting in a study, else its name."""
        return self._labels.get(name) or self.run(name).name

    def searchable(self) -> dict[str, Run]:
        """Runs that have a checkpoint, and a recipe that can be read."""
        return {key: run for key, run in self.runs().items() if _usable(run)}

    def dataset(self, run: Run) -> "Dataset":
        """A run's data; runs share them if the same data were recorded for both."""
        recipe, recorded = run.recipe, run.info.get("data_fingerprint")
        return self._datasets.get(
            (recipe.data, recipe.features, recipe.skip, recorded), run.dataset
        )

    def split(self, run_id: str, name: str) -> "Split":
        """A split of a run's data."""
        dataset = self.dataset(self.run(run_id))
        if name not in dataset.splits:
            raise NotFound(f"the data of {run_id} has no split '{name[:80]}'.")
        return dataset.splits[name]

    def searcher(self, run_id: str, split: str) -> "Searcher":
        """The best checkpoint of a run so far, ready to search a split."""

        run = self.run(run_id)
        self.split(run_id, split)
        checkpoint = run.path / "best" / "model.json"
        if not checkpoint.is_file():
            raise InputError(f"{run_id} has no checkpoint yet; the first evaluation writes one.")

        def make() -> Searcher:
            retriever = open_folder(run, device=self.device)
            assert retriever.checkpoint  # loaded now, in one thread
            return Searcher(retriever, split, dataset=self.dataset(run))

        return self._searchers.get((run_id, split, checkpoint.stat().st_mtime_ns), make)

    def picture(self, run_id: str, split_name: str, row: int, side: int) -> bytes:
        """A picture of a run's data as a JPEG."""
        run = self.run(run_id)
        split = self.split(run_id, split_name)
        if not 0 <= row < split.num_images:
            raise NotFound(f"split '{split_name}' has no picture {row}.")
        side = min((s for s in SIDES if s >= side), default=SIDES[-1])
        key = (run.recipe.data, split_name, row, side)
        return self._pictures.get(key, lambda: self._jpeg(split, row, side))

    def _jpeg(self, split: "Split", row: int, side: int) -> bytes:
        pictures = split.pictures
        if pictures is None:
            raise NotFound(f"the split '{split.name}' has features, but no pictures.")
        path = pictures.path(row)
        if path is not None:
            if pictures.root is None or not inside(path, pictures.root):
                raise NotFound("this picture lies outside the data set's folder.")
            return self._read(path, side)
        try:
            picture = pictures.picture(row)
        except InputError:
            raise NotFound("this picture cannot be read.") from None
        picture.thumbnail((side, side))
        buffer = io.BytesIO()
        picture.save(buffer, "JPEG", quality=92)
        return buffer.getvalue()

    def _read(self, path: Path, side: int) -> bytes:
        try:
            if path.stat().st_size > _LARGEST_FILE:
                raise NotFound("this picture's file is too large.")
            return self.decoders.jpeg(path.read_bytes(), side)
        except (OSError, BadPicture):
            raise NotFound("this picture cannot be read.") from None

    def close(self) -> None:
        """Stop what runs beside the server."""
        self.decoders.close()


def _usable(run: Run) -> bool:
    try:
        return (run.path / "best" / "model.json").is_file() and bool(run.recipe.data)
    except (InputError, OSError):
        return False


def _unused(name: str, taken: dict[str, Any]) -> str:
    number, free = 1, name
    while free in taken:
        number += 1
        free = f"{name}-{number}"
    return free
