"""Runs and studies in figures, read again only when their files have changed."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from simgrad.core.errors import InputError
from simgrad.core.files import held
from simgrad.core.tables import TableFile
from simgrad.evaluation import intervals
from simgrad.evaluation.metrics import metrics_table
from simgrad.lab import schemas
from simgrad.lab.lab import Lab
from simgrad.runs.outcome import outcome_of
from simgrad.runs.run import HISTORY, INFO, LOCK, RANKS, TEST, Run
from simgrad.studies.study import Study
from simgrad.studies.table import StudyTable, build_table, significance
from simgrad.studies.verdict import sentences

_MOST_POINTS = 500  # evaluations of a curve
ENDS = {"plateau": "on the plateau"}  # where the word alone does not say it
Stamp = tuple[tuple[int, int], ...]


def stamp(paths: Iterable[Path]) -> Stamp:
    """Changes when one of the files does."""
    found = []
    for path in paths:
        try:
            stat = path.stat()
            found.append((stat.st_mtime_ns, stat.st_size))
        except OSError:
            found.append((0, 0))
    return tuple(found)


def overview(lab: Lab) -> schemas.Overview:
    """Everything, newest state."""
    return schemas.Overview(
        studies=[study_summary(lab, name) for name in lab.studies],
        runs=[run_summary(lab, name, run) for name, run in lab.runs().items()],
    )


def run_summary(lab: Lab, name: str, run: Run) -> schemas.RunSummary:
    """A run as lists show it; one that cannot be read says so instead of spoiling the list."""
    files = [run.path / INFO, run.path / HISTORY, run.path / TEST, run.path / "best/model.json"]
    study = name.partition(".")[0] if name.partition(".")[0] in lab.studies else None
    summary = _summary(name, lab.label(name), study, run.path, stamp(files))
    if summary.status == "running" and not held(run.path / LOCK):  # its process was killed
        return summary.model_copy(update={"status": "stopped"})
    return summary


@lru_cache(maxsize=4096)
def _summary(name: str, label: str, study: str | None, path: Path, _: Stamp) -> schemas.RunSummary:
    run = Run(path)
    blank: dict[str, Any] = {
        "id": name, "study": study, "name": run.name, "label": label, "status": "unreadable",
        "outcome": None, "objective": "", "model": "", "data": "", "seed": 0, "progress": 0.0,
        "epoch": 0.0, "epochs": 0, "loss": None, "rsum": None, "on": None, "seconds": None,
        "searchable": False, "warnings": [],
    }  # fmt: skip
    try:
        recipe, info, history, test = run.recipe, run.info, run.history, run.test
        last: dict[str, Any] = history[-1] if history else {}
        epochs = recipe.epochs + recipe.finetune_epochs
        epoch = float(last.get("epoch", 0))
        done = info.get("status") == "finished"
        rsum = test.get("rsum", last.get("val", {}).get("rsum"))
        known = {
            "status": str(info.get("status", "waiting")),
            "outcome": outcome_of(run),
            "objective": recipe.objective,
            "model": recipe.model,
            "data": recipe.data,
            "seed": recipe.seed,
            "progress": 1.0 if done else min(1.0, epoch / max(1, epochs)),
            "epoch": epoch,
            "epochs": epochs,
            "loss": number(last.get("loss")),
            "rsum": number(rsum),
            "on": None if number(rsum) is None else "test" if "rsum" in test else "val",
            "seconds": number(info.get("seconds") or last.get("seconds")),
            "searchable": (path / "best" / "model.json").is_file(),
            "warnings": [warning(w)[:500] for w in [*info.get("warnings", []), *_error(info)]],
        }
        return schemas.RunSummary(**clean({**blank, **known}))
    except (InputError, OSError, TypeError, ValueError, KeyError, AttributeError) as error:
        return schemas.RunSummary(**{**blank, "warnings": [f"cannot be read: {error}"[:500]]})


def _error(info: dict[str, Any]) -> list[str]:
    """Why a run failed: the last line of what was noted."""
    lines = str(info.get("error") or "").strip().splitlines()
    return lines[-1:] if info.get("status") == "failed" else []


def warning(told: Any) -> str:
    """What a run warned of while it trained."""
    if isinstance(told, dict) and "text" in told:
        return f"step {told.get('step', '?')}: {told['text']}"
    return str(told)


def run_detail(lab: Lab, name: str) -> schemas.RunDetail:
    """A run with its history."""
    run = lab.run(name)
    summary = run_summary(lab, name, run)
    if summary.status == "unreadable":
        raise InputError(summary.warnings[0])
    return schemas.RunDetail(
        **summary.model_dump(),
        recipe={k: v for k, v in run.recipe.to_dict().items() if v is not None},
        history=[clean(entry) for entry in thinned(run.history)],
        test={key: number(value) for key, value in run.test.items()},
        splits=splits(lab, run),
    )


def tested(run: Run) -> TableFile | None:
    """The test metrics with intervals; None before the run has been tested."""
    return _tested(run.path, stamp([run.path / TEST, run.path / RANKS]))


@lru_cache(maxsize=64)
def _tested(path: Path, _: Stamp) -> TableFile | None:
    run = Run(path)
    if not run.test:
        return None
    kept = (path / RANKS).is_file()
    return metrics_table(run.test, intervals(run.ranks()) if kept else None)


def splits(lab: Lab, run: Run) -> list[str]:
    """The splits of a run's data; none where the data is no longer there."""
    try:
        return list(lab.dataset(run).splits)
    except (InputError, OSError):
        return []


def thinned(history: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Few enough entries for a curve, the last among them."""
    step = max(1, math.ceil(len(history) / _MOST_POINTS))
    return history[::-1][::step][::-1]


def study_summary(lab: Lab, name: str) -> schemas.StudySummary:
    """A study as lists show it."""
    study = lab.study(name)
    runs = [run_summary(lab, key, run) for key, run in lab.runs_of(name).items()]
    return schemas.StudySummary(
        id=name,
        title=study.title,
        claim=study.plan.claim,
        runs=len(study.jobs()),
        started=len(runs),
        finished=sum(run.status == "finished" or run.outcome is not None for run in runs),
        failed=_failed(runs),
    )


def _failed(runs: Sequence[schemas.RunSummary]) -> str:
    """3 collapsed, 1 diverged"""
    ends = Counter(run.outcome for run in runs if run.outcome not in (None, "trained"))
    return ", ".join(f"{count} {ENDS.get(str(end), end)}" for end, count in ends.most_common())


def verdict(study: Study) -> list[str]:
    """What the study says, the most important first: what failed, who leads, how sure that is."""
    return _verdict(study.path, _ended(study))


@lru_cache(maxsize=32)
def _verdict(path: Path, _: Stamp) -> list[str]:
    return sentences(Study.open(path))


def table(study: Study) -> StudyTable:
    """The study's table, computed when a run has finished since."""
    return _table(study.path, _ended(study))


def _ended(study: Study) -> Stamp:
    return stamp([path / name for path, _ in study.jobs() for name in (INFO, TEST)])


@lru_cache(maxsize=32)
def _table(path: Path, _: Stamp) -> StudyTable:
    return build_table(Study.open(path))


def study_detail(lab: Lab, name: str) -> schemas.StudyDetail:
    """A study's table."""
    study = lab.study(name)
    made = table(study)

    def cells(found: dict[str, Any]) -> dict[str, tuple[float | None, float | None]]:
        return {m: (number(a), number(b)) for m, (a, b) in found.items()}

    rows = [
        schemas.StudyRow(
            label=row.label,
            seeds=row.seeds,
            baseline=row.baseline,
            cells=cells({m: (c.mean, c.deviation) for m, c in row.cells.items()}),
            published=cells(row.published),
            against_baseline=significance(row.difference),
        )
        for row in made.rows
    ]
    return schemas.StudyDetail(
        **study_summary(lab, name).model_dump(),
        metrics=list(made.metrics),
        rows=rows,
        run_ids=list(lab.runs_of(name)),
    )


def number(value: Any) -> float | None:
    """A finite number, or None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:  # a whole number of hundreds of digits
        return None


def clean(value: Any) -> Any:
    """JSON values without NaN, infinity and halves of characters."""
    if isinstance(value, dict):
        return {clean(str(key)): clean(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [clean(inner) for inner in value]
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    return number(value) if isinstance(value, float) else value
