"""A run folder: what a training run leaves behind, and how others read it."""

import json
import math
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from simgrad.core.derived import read_checked, write_checked
from simgrad.core.errors import InputError
from simgrad.core.extras import bring_back
from simgrad.core.files import checksum, read_json, sha256, write_json
from simgrad.core.lazy import ask
from simgrad.core.text import near_path
from simgrad.core.typed import read_yaml
from simgrad.data.base import Dataset
from simgrad.evaluation import Metrics, Ranks
from simgrad.models import Checkpoint, load
from simgrad.models.checkpoint import DESCRIPTION, verify
from simgrad.pages.rendering import Shown
from simgrad.runs.data import open_data
from simgrad.runs.recipe import Recipe, from_dict

RECIPE, INFO, HISTORY, TEST, RANKS = (
    "recipe.yaml",
    "run.json",
    "metrics.jsonl",
    "test.json",
    "ranks.parquet",
)
VALIDATED = "val-ranks.parquet"  # of a trial's best weights, on the validation split
TRIPLETS, ATTENTION, WISE = "triplets.npz", "attention.jsonl", "wise.json"
ALSO = "also.json"
BEST, LAST = "best", "last"
LOCK = ".lock"  # held by whoever trains it
FORMAT = 2  # of run.json and of the state to resume from; 1 had none, up to version 0.1.0
_KINDS: dict[str, type | tuple[type, ...]] = {  # of run.json, where a damaged one would mislead
    "status": str,
    "format": int,
    "steps": int,
    "seconds": (int, float),
    "best": dict,
    "versions": dict,
    "warnings": list,
    "command": (str, type(None)),
    "dataset": dict,
    "data_fingerprint": str,
    "threads": int,
    "with": list,
    "files": dict,
}


@dataclass(frozen=True)
class Run:
    """One training run on disk.

    Examples:
        >>> run = simgrad.Run.open("runs/first")  # as `simgrad.train` left it
        >>> run.recipe.objective
        'nt-xent'
        >>> metrics = simgrad.evaluation.metrics_of(run.ranks())  # of its test
        >>> metrics.rsum == run.test["rsum"]
        True
    """

    path: Path

    @staticmethod
    def open(path: "str | Path | Run") -> "Run":
        """A run folder; an error says what is missing."""
        if isinstance(path, Run):
            return path
        path = Path(path)
        if not (path / RECIPE).is_file():
            if not path.exists():
                raise InputError(f"{path}: no such folder.{near_path(path)}")
            raise InputError(f"{path}: not a run: it has no {RECIPE}.")
        return Run(path)

    def __fspath__(self) -> str:
        """A run stands for its folder wherever a path is taken."""
        return str(self.path)

    @property
    def name(self) -> str:
        return self.path.resolve().name

    @cached_property
    def recipe(self) -> Recipe:
        """What it was asked to do; the user's files that it was made with are imported again."""
        self._bring_back()
        file = self.file(RECIPE)
        return from_dict(read_yaml(file), str(file))

    def _bring_back(self) -> None:
        if files := self.info.get("with"):
            bring_back(self.path, files)

    def file(self, name: str) -> Path:
        """One of its files; of a finished run, refused where it is not what was written."""
        path = self.path / name
        kept = self.info.get("files", {}) if self.finished else {}
        if name in kept and path.is_file() and sha256(path) != kept[name]:
            raise InputError(
                f"{path}: not what the run wrote when it finished: damaged, or edited by hand. "
                "Copy it again; if you edited it, take 'sha256' and 'files' out of run.json."
            )
        return path

    @property
    def info(self) -> dict[str, Any]:
        """run.json: status, seed, versions, command and so on."""
        path = self.path / INFO
        if not path.is_file():
            return {"status": "waiting"}
        found = read_checked(path)
        if not isinstance(found, dict):
            raise InputError(f"{path}: holds no names and values, so it is not of a run.")
        if "status" not in found:
            raise InputError(
                f"{path}: does not say how far the run came, so it is not what a run writes. Copy "
                "it again; without it the run would be trained anew."
            )
        for key, kind in _KINDS.items():
            if key in found and not isinstance(found[key], kind):
                raise InputError(f"{path}: '{key}' is {found[key]!r:.40}; the file was damaged.")
        numbers = {"seconds": found.get("seconds", 0), "steps": found.get("steps", 0)}
        _require_numbers(path, numbers | found.get("best", {}))
        return found

    @property
    def finished(self) -> bool:
        return self.info.get("status") == "finished"

    @property
    def threads(self) -> int | None:
        """How many threads it began with on a CPU: sums depend on it. None: not begun there."""
        info = self.info
        return info.get("threads") if info.get("device") == "cpu" else None

    @property
    def history(self) -> list[dict[str, Any]]:
        """One entry per evaluation."""
        return read_history(self.file(HISTORY))

    @property
    def seconds_per_batch(self) -> float | None:
        """Of training alone: no evaluation, no checkpoint. Where there are several evaluations,
        from the first one on, because the first steps also warm up. None: not measured."""
        step, timed = 0, []
        for entry in self.history:
            if entry.get("batch_seconds") is not None:
                timed.append((entry["step"] - step, float(entry["batch_seconds"])))
            step = entry["step"]
        timed = timed[1:] or timed
        steps = sum(count for count, _ in timed)
        return sum(count * seconds for count, seconds in timed) / steps if steps > 0 else None

    @property
    def test(self) -> dict[str, float]:
        """Metrics of the best checkpoint on the test split; none before it was tested."""
        return read_test(self.file(TEST))

    @property
    def wise(self) -> dict[str, Any]:
        """alpha and the curve between pretrained and trained weights; empty: there is none."""
        path = self.path / WISE
        return _mapping(self.file(WISE)) if path.is_file() else {}

    @property
    def also(self) -> dict[str, Any]:
        """Other data: what they are, metrics before and after training; empty: there are none."""
        path = self.path / ALSO
        return _mapping(self.file(ALSO)) if path.is_file() else {}

    @property
    def remembered(self) -> tuple[str, float, float] | None:
        """Of other data: what was measured, before training and after it."""
        told = self.also
        name = str(told.get("metric", self.recipe.select))
        return (name, told["before"][name], told["after"][name]) if told else None

    def ranks(self) -> Ranks:
        """Per-query ranks on the test split."""
        return Ranks.load(self.file(RANKS))

    def validated(self) -> Ranks:
        """Per-query ranks of a trial on the validation split."""
        return Ranks.load(self.file(VALIDATED))

    def damage(self) -> list[str]:
        """What of a finished run is not what it wrote, by every hash there is."""
        found = []
        for name in self.info.get("files", {}) if self.finished else ():
            try:
                self.file(name)
            except InputError as error:
                found.append(str(error))
        if (self.path / BEST / DESCRIPTION).is_file():
            try:
                verify(self.path / BEST)
            except InputError as error:
                found.append(str(error))
        return found

    def missing(self) -> list[str]:
        """Which of the files that a finished run wrote are not there any more."""
        told = self.info.get("files", {}) if self.finished else {}
        return [
            f"{self.path / name}: is missing; copy it again."
            for name in told
            if not (self.path / name).is_file()
        ]

    def load(self, device: str = "cpu") -> Checkpoint:
        """The best checkpoint; its model may be one of the user's own."""
        self._bring_back()
        return load(self.path / BEST, device=device)

    def dataset(
        self, data: str | None = None, features: str | None = None, skip: str | None = None
    ) -> Dataset:
        """The data it was trained on, refused where they have changed since; or other `data`."""
        return open_data(self.recipe, self.info, self.path, data, features, skip)

    def plot(self) -> Shown:
        """How training went, drawn in a notebook: `simgrad.plot` of this run."""
        shown: Shown = ask("plot", self)
        return shown

    def show(self, query: Any, **options: Any) -> Shown:
        """What it finds for a sentence or a picture: `simgrad.show` of this run."""
        shown: Shown = ask("show", self, query, **options)
        return shown

    def __repr__(self) -> str:
        status = self.info.get("status")
        return f"<run {self.name}: {self.recipe.objective}, seed {self.recipe.seed}, {status}>"


def write_info(folder: Path, info: dict[str, Any]) -> None:
    """run.json, which carries a hash of itself and, once finished, of the files beside it."""
    kept = {}
    if info.get("status") == "finished":
        names = [RECIPE, HISTORY, ATTENTION, TRIPLETS, WISE, ALSO, TEST, RANKS, VALIDATED]
        if not info.get("trial"):  # a trial's weights go when it has finished
            names.append(f"{BEST}/{DESCRIPTION}")  # which has the hash of the weights
        kept = {name: sha256(folder / name) for name in names if (folder / name).is_file()}
    write_checked(folder / INFO, {"format": FORMAT, **info, "files": kept})


def write_test(folder: Path, metrics: Metrics) -> None:
    """Keep what a test found: the ranks, and the metrics with a checksum."""
    metrics.ranks.save(folder / RANKS)
    values = metrics.to_dict()
    write_json(folder / TEST, {**values, _CHECKSUM: checksum(values)})


def read_test(path: Path) -> dict[str, float]:
    """The metrics of a test; those of earlier versions have no checksum."""
    if not path.is_file():
        return {}
    found = _mapping(path)
    _require_numbers(path, found)
    expected = found.pop(_CHECKSUM, None)
    told = [found.get(name, -1.0) for name in _TOLD]
    if not all(0 <= value <= most for value, most in zip(told, _TOLD.values(), strict=True)):
        problem = f"not what a test writes: it needs {', '.join(_TOLD)}, recalls in percent"
    elif expected is not None and expected != checksum(found):
        problem = "damaged: its numbers are not those that were written"
    else:
        return found
    raise InputError(
        f"{path}: {problem}. Copy it again; `simgrad evaluate {path.parent} --protocol all` tests "
        "the run again."
    )


_CHECKSUM = "checksum"
_RECALLS = [f"{way}_r{k}" for way in ("i2t", "t2i") for k in (1, 5, 10)]
_TOLD = {**dict.fromkeys(_RECALLS, 100.0), "rsum": 600.001}  # what each is at most, and rounding


def _mapping(path: Path) -> dict[str, Any]:
    value = read_json(path)
    if not isinstance(value, dict):
        raise InputError(f"{path}: holds no names and values, so it is not of a run.")
    return value


def _require_numbers(path: Path, values: dict[str, Any]) -> None:
    for name, value in values.items():
        if not _is_number(value):
            raise InputError(f"{path}: '{name}' is {value!r:.40}, not a number.")


def read_history(path: Path) -> list[dict[str, Any]]:
    """The lines of metrics.jsonl; a last line cut off by a kill is left out."""
    if not path.is_file():
        return []
    entries = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError):
            break
        if not _is_entry(entry):
            break
        for counted in entry.get("attention", {}).values():
            if counted.get("effective") == 0:  # earlier versions noted 0 where it is 0/0
                for name in ("contributing", "effective", "hardest_share"):
                    counted.pop(name, None)
        entries.append(entry)
    return entries


def _is_entry(value: Any) -> bool:
    """Whether a line can be what an evaluation wrote."""
    if not isinstance(value, dict) or not {"step", "epoch", "loss", "val"} <= value.keys():
        return False
    attention = value.get("attention", {})
    if not isinstance(value["val"], dict) or not isinstance(attention, dict):
        return False
    tables = [value["val"], *attention.values()]
    plain = {key: n for key, n in value.items() if key not in ("val", "attention")}
    return (
        all(isinstance(t, dict) and all(map(_is_number, t.values())) for t in [plain, *tables])
        and math.isfinite(value["step"])
        and math.isfinite(value["epoch"])
    )


def _is_number(value: Any) -> bool:
    """JSON also has whole numbers that no float holds."""
    return isinstance(value, float) or (isinstance(value, int) and abs(value) < 1 << 63)
