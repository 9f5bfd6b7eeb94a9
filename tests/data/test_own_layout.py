"""A layout of one's own, from one file outside: recognised, listed, read (trained on in
../test_contributing.py)."""

from pathlib import Path

import numpy as np

from tests.processes import Told, simgrad

# What docs/data.md shows, with features instead of pictures so that training is quick.
NOTES = '''
from dataclasses import dataclass, replace
from simgrad.core.files import open_array
from simgrad.core.spec import setting
from simgrad.data import Growth
from simgrad.data.arrays import ArrayFeatures
from simgrad.data.layouts import Layout, declare

@declare("notes", paper="", description="SPLIT.notes + SPLIT.npy, a note per line")
@dataclass(frozen=True)
class Notes(Layout):
    """Notes by line, features by row."""
    ending: str = setting(".notes", "what the files end in")

    def parts(self, path):
        return {f"train{self.ending}": (path / f"train{self.ending}").is_file()}

    def read(self, path, log, published):
        growth = Growth(path.name, pattern="line {}")
        for split in ("train", "val", "test"):
            growth.files.append(path / f"{split}{self.ending}")
            for number, line in enumerate(growth.files[-1].read_text().splitlines()):
                row = growth.split(split).image(f"{split}-{number // 2}")
                growth.split(split).caption(row, line, at=(len(growth.files) - 1, number + 1, 0))
        dataset = growth.build({}, published)
        arrays = {n: ArrayFeatures(path / f"{n}.npy", open_array(path / f"{n}.npy"))
                  for n in dataset.splits}
        splits = {n: replace(s, features=arrays[n]) for n, s in dataset.splits.items()}
        return replace(dataset, splits=splits)
'''


def _write(folder: Path, ending: str = ".notes") -> Path:
    folder.mkdir()
    for seed, split in enumerate(("train", "val", "test")):
        lines = [f"thing {i} of {split}" for i in range(24)]
        (folder / f"{split}{ending}").write_text("\n".join(lines) + "\n")
        array = np.random.default_rng(seed).normal(size=(12, 5)).astype(np.float32)
        np.save(folder / f"{split}.npy", array)
    return folder


def _simgrad(tmp_path: Path, *words: str) -> Told:
    (tmp_path / "notes.py").write_text(NOTES)
    return simgrad("--with", str(tmp_path / "notes.py"), *words)


def test_it_is_listed_recognised_and_checked(tmp_path: Path) -> None:
    told = _simgrad(tmp_path, "datasets", "--layouts")
    assert "SPLIT.notes + SPLIT.npy" in told.stdout, told.stderr
    assert "what the files end in" in told.stdout
    told = _simgrad(tmp_path, "datasets", str(_write(tmp_path / "data")))
    assert "layout notes" in told.stdout, told.stderr
    assert "problems    none" in told.stdout


def test_its_parameters_are_given_with_the_layout(tmp_path: Path) -> None:
    folder = str(_write(tmp_path / "data", ".words"))
    told = _simgrad(tmp_path, "datasets", folder)
    assert told.returncode == 2
    told = _simgrad(tmp_path, "datasets", folder, "--layout", "notes(ending=.words)")
    assert "layout notes" in told.stdout, told.stderr
    told = _simgrad(tmp_path, "datasets", f"notes(path={folder}, ending=.words)")
    assert "layout notes" in told.stdout, told.stderr
