"""The commands themselves, killed with all their workers, as a power cut or a scheduler would."""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import yaml

from simgrad.studies.study import Study
from tests.hardening.jobs import outcome_of_run, recipe
from tests.hardening.kills import leftovers


def _command(kind: str, source: Path, folder: Path) -> list[str]:
    words = [
        sys.executable,
        "-m",
        "simgrad.cli",
        kind,
        str(source),
        "--output",
        str(folder),
    ]
    return [*words, "--processes", "2"] if kind == "study" else words


def _outcome(kind: str, folder: Path) -> Any:
    if kind == "train":
        return outcome_of_run(folder)
    return {path.name: outcome_of_run(path) for path, _ in Study.open(folder).jobs()}


class Commands:
    """`simgrad train` or `simgrad study`, begun and killed until it is through."""

    def __init__(self, kind: str, folder: Path, seed: int = 0) -> None:
        self.kind, self.folder, self.random = kind, folder, random.Random(seed)
        folder.mkdir(parents=True)
        self.source = folder / "source.yaml"
        values: dict[str, Any] = recipe(epochs=6).to_dict()
        if kind == "study":
            values = {"recipe": values, "grid": {"objective": ["triplet", "nt-xent"]}}
        self.source.write_text(yaml.safe_dump(values))
        started = time.monotonic()
        assert self._run(folder / "whole", None) == 0
        self.seconds = time.monotonic() - started
        self.expected = _outcome(kind, folder / "whole")
        self.kills = 0

    def __call__(self, kills: int) -> None:
        """Kill so many times; compare whenever the command comes to its end."""
        wanted, parts = self.kills + kills, self.folder / "parts"
        while self.kills < wanted:
            started = time.monotonic()
            code = self._run(parts, self.random.uniform(0.3, 1.0) * self.seconds)
            self.kills += code != 0
            if code == 0:
                # The machine is quicker than it was: else nothing would be killed any more.
                self.seconds = min(self.seconds, time.monotonic() - started)
                self._compare(parts)
        assert self._run(parts, None) == 0
        self._compare(parts)

    def _run(self, folder: Path, seconds: float | None) -> int:
        child = subprocess.Popen(
            _command(self.kind, self.source, folder),
            start_new_session=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            return child.wait(seconds)
        except subprocess.TimeoutExpired:
            if self.random.random() < 0.5:
                child.kill()  # the command alone: its workers go on, and the next one waits
            else:
                os.killpg(child.pid, signal.SIGKILL)
            return child.wait()

    def _compare(self, folder: Path) -> None:
        assert _outcome(self.kind, folder) == self.expected, f"{self.kind}: another result"
        assert not leftovers(folder), leftovers(folder)
        shutil.rmtree(folder)
