"""One flipped bit in any file of a run, a study, an index, candidates or features.

It must be noticed (an error that names what is wrong, or made anew), or be harmless: what all of it
says stays as it was. `Flips` makes a small one of each and uses all of it after every flip.
"""

import random
import shutil
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from simgrad.cli.features import features as compute_features
from simgrad.core.errors import InputError
from simgrad.data import open_dataset
from simgrad.data.arrays import HEADER
from simgrad.data.candidates import Candidates
from simgrad.retriever.opening import open_folder
from simgrad.retriever.search import Searcher
from simgrad.studies.plan import plan_from_dict
from simgrad.studies.study import Study
from simgrad.studies.table import build_table
from simgrad.studies.worker import work as work_on
from simgrad.training import Run, train
from simgrad.training.rounds import mine_run
from tests.hardening.jobs import recipe

_QUESTION = "a red circle"


class Flips:
    """Counts of what was noticed, and what was harmless."""

    def __init__(self, folder: Path, seed: int = 0) -> None:
        self.random = random.Random(seed)
        self.place, self.whole = folder / "used", folder / "whole"
        self.noticed = self.harmless = 0
        self._make()
        self.expected = self._used()
        shutil.copytree(self.place, self.whole)
        self.files = sorted(
            p.relative_to(self.whole)
            for p in self.whole.rglob("*")
            if p.is_file() and p.stat().st_size and p.suffix != ".lock"
        )

    def _make(self) -> None:
        self.place.mkdir(parents=True)
        data, features = "scenes(train=40, val=12, test=12, size=16)", self.place / "features"
        compute_features(data, output=features, size=32, workers=1)
        trained = recipe(data=data, features=str(features), epochs=1)
        train(trained, self.place / "run", quiet=True)
        mine_run(Run.open(self.place / "run"), self.place / "candidates", 10)
        values = {
            "title": "flipped",
            "recipe": trained.to_dict(),
            "grid": {"objective": ["triplet", "nt-xent"]},
            "baseline": "triplet",
        }
        work_on(Study.create(plan_from_dict(values, "flipped"), self.place / "study"))

    def _used(self) -> dict[str, Any]:
        """What each thing says when it is used; an error where it is refused."""
        parts = {
            "run": self._run,
            "study": self._study,
            "search": self._search,
            "candidates": self._candidates,
            "features": self._features,
        }
        found: dict[str, Any] = {}
        for name, part in parts.items():
            try:
                found[name] = part()
            except InputError as error:
                found[name] = error
        return found

    def _run(self) -> Any:
        run = Run.open(self.place / "run")
        anew = open_folder(run.path).similarities()
        block = anew.scores.compute(0, anew.scores.num_images)
        entries = [{k: v for k, v in e.items() if "second" not in k} for e in run.history]
        return run.recipe.to_dict(), entries, run.test, run.ranks().i2t.tolist(), block.tolist()

    def _study(self) -> Any:
        study = Study.open(self.place / "study")
        return repr(build_table(study)), [run.history[-1]["val"] for run in study.runs]

    def _search(self) -> Any:
        searcher = Searcher(open_folder(self.place / "run"))
        return [(hit.name, round(hit.score, 6)) for hit in searcher.sentence(_QUESTION, 5).images]

    def _candidates(self) -> Any:
        found = Candidates.load(self.place / "candidates")
        return found.i2t.tolist(), found.t2i.tolist()

    def _features(self) -> Any:
        run = Run.open(self.place / "run")
        dataset = open_dataset(run.recipe.data, features=run.recipe.features)
        arrays = (split.features for split in dataset.splits.values())
        read = [a.rows(np.arange(12)).tolist() for a in arrays if a is not None]
        recorded = run.info["data_fingerprint"]
        if dataset.fingerprint() != recorded:
            raise InputError(f"{HEADER}: changed")
        return read

    def flip(self) -> None:
        """One bit of one file; every file as likely."""
        name = self.random.choice(self.files)
        content = bytearray((self.whole / name).read_bytes())
        bit = self.random.randrange(8 * len(content))
        content[bit // 8] ^= 1 << bit % 8
        (self.place / name).write_bytes(content)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = self._used()
        refused = [part for part in found if isinstance(found[part], InputError)]
        for part, value in found.items():
            if part not in refused:
                assert value == self.expected[part], f"bit {bit} of {name}: {part} has changed"
        if refused:
            self.noticed += 1
        else:
            self.harmless += 1
        shutil.rmtree(self.place)
        shutil.copytree(self.whole, self.place)

    def __call__(self, count: int) -> None:
        for _ in range(count):
            self.flip()
