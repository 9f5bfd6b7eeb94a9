"""Every number of a finished study, computed again from what lies beneath it.

Each run must be its row's own. Test metrics come from the ranks of each run; the table, with its
intervals and p values, from those; of a tuned study, validation scores from the ranks of each
trial, and what was chosen from the journal. What was changed, by hand or by a disk, is named.
"""

import csv
import math
import re
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from simgrad.core.errors import InputError
from simgrad.core.files import read_json
from simgrad.data.found import read_found
from simgrad.evaluation import metric_of
from simgrad.evaluation.metrics import metrics_of
from simgrad.runs.recipe import Recipe
from simgrad.runs.run import RANKS, Run
from simgrad.studies.belonging import own_run
from simgrad.studies.engine import only_diverged
from simgrad.studies.journal import JOURNAL
from simgrad.studies.study import Study
from simgrad.studies.table import build_table, write_tables
from simgrad.studies.tuned import Tuning

_TABLES = ("table.json", "table.csv", "table.md", "table.tex")


@dataclass
class Checked:
    """How a check went."""

    compared: int = 0  # numbers and texts
    runs: int = 0
    problems: list[str] = field(default_factory=list)

    def same(self, told: Any, found: Any, where: str) -> None:
        """Compare what stands there with what it should be."""
        if isinstance(told, dict) and isinstance(found, dict):
            for key in {**found, **told}:
                self.same(told.get(key), found.get(key), f"{where}: {key}")
        elif isinstance(told, list) and isinstance(found, list) and len(told) == len(found):
            for place, (one, other) in enumerate(zip(told, found, strict=True), 1):
                self.same(one, other, f"{where}: {place}")
        else:
            self.compared += 1
            if not _equal(told, found):
                self.problems.append(f"{where} is {told!r:.60}, and should be {found!r:.60}")


def _equal(one: Any, other: Any) -> bool:
    numbers = all(isinstance(x, (int, float)) and not isinstance(x, bool) for x in (one, other))
    if not numbers:
        return bool(one == other)
    if math.isnan(one) or math.isnan(other):
        return math.isnan(one) and math.isnan(other)
    return math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-9)


def check_study(study: Study) -> Checked:
    """Compute everything again; an unfinished study is refused, unless all that is missing
    diverged."""
    done = Checked()
    for job in study.jobs():
        _guarded(done, _check_run, job)
    if not done.problems and not study.complete and not only_diverged(study):
        raise InputError(
            f"{study.path}: the study is not finished; run its command again to resume."
        )
    for tuning in study.tunings:
        _guarded(done, _check_search, tuning)
    if not done.problems:  # else the table is wrong because of them, or cannot be made
        _guarded(done, _check_table, study)
    return done


def _guarded(done: Checked, look: Any, at: Any) -> None:
    """What is damaged so that it cannot be read is a problem like another."""
    try:
        look(done, at)
    except InputError as error:
        done.compared += 1
        done.problems.append(str(error))


def _check_run(done: Checked, job: tuple[Path, Recipe]) -> None:
    """Whether a run is its row's own; its test, from its ranks."""
    run = own_run(*job)
    if not run.finished:
        return
    done.runs += 1
    _check_files(done, run)
    if run.test or (run.path / RANKS).is_file():
        done.same(run.test, metrics_of(run.ranks()).to_dict(), str(run.path / "test.json"))


def _check_files(done: Checked, run: Run) -> None:
    """The recipe, history, ranks, weights, found pairs: whatever has a hash is what was written."""
    done.compared += 1
    done.problems += [*run.damage(), *run.missing()]
    pairs = run.recipe.found_pairs
    if pairs is not None and Path(pairs).exists():
        read_found(pairs)


def _check_search(done: Checked, tuning: Tuning) -> None:
    """The trials of a row, from their ranks; what was chosen, from the trials."""
    trials = tuning.search.trials()
    for trial in trials:
        if trial.score is None:
            continue
        found = _check_trial(done, *tuning.run_of(trial))
        place = f"{tuning.folder / JOURNAL}: {tuning.name}, trial {trial.number}"
        done.same(trial.score, found, place)
    for runs in tuning.repeats(trials).values():
        for folder, recipe in runs:
            if Run(folder).finished:
                _check_trial(done, folder, recipe)
    done.same(tuning.record, tuning.summary(trials), str(tuning.path))


def _check_trial(done: Checked, folder: Path, recipe: Recipe) -> float:
    """The score of one trial's run, from its ranks."""
    done.runs += 1
    run = own_run(folder, recipe)
    _check_files(done, run)
    ranks = run.validated()
    select = run.recipe.select
    found = round(metrics_of(ranks)[select], 4)
    best = metric_of(select).best(entry["val"][select] for entry in run.history)
    done.same(best, found, f"{folder}: best {select} of metrics.jsonl")
    done.same(run.info["best"][select], found, f"{folder / 'run.json'}: best {select}")
    return found


def _check_table(done: Checked, study: Study) -> None:
    """The table's files, from the runs."""
    with tempfile.TemporaryDirectory() as fresh:
        write_tables(build_table(study), Path(fresh))
        for name in _TABLES:
            path = study.path / name
            if not path.is_file():
                raise InputError(f"{path}: there is no such file; the study's command writes it.")
            done.same(_read(path), _read(Path(fresh) / name), str(path))


def _read(path: Path) -> Any:
    if path.suffix == ".json":
        return read_json(path)
    text = path.read_text(encoding="utf-8", errors="replace")
    if path.suffix == ".csv":
        rows = csv.reader(text.splitlines())
        return [[_number(cell) for cell in row] for row in rows]
    return [re.split(r"[|&]", line) for line in text.splitlines()]  # cells, in Markdown or LaTeX


def _number(text: str) -> Any:
    try:
        return float(text)
    except ValueError:
        return text
