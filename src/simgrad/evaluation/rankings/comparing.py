"""Any number of systems on any number of tasks: what each query found, and who leads.

A task's score is the mean over its queries (of MTEB's subsets, the mean over their means). The unit
of chance within a task is the query, or the group of queries that belong together. Over tasks it is
the task: the standing then says what to expect of other tasks like these, not of these alone.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from simgrad.core.errors import InputError
from simgrad.core.text import one_line
from simgrad.evaluation.crossed import Crossed
from simgrad.evaluation.declared import Floats
from simgrad.evaluation.rankings.measures import Measure
from simgrad.evaluation.rankings.results import POINT, RankedTask, Rankings
from simgrad.evaluation.rankings.tasks import (
    Given,
    Place,
    Task,
    find_rankings,
    open_tasks,
    read_ranking,
)
from simgrad.evaluation.ranks import Integers
from simgrad.evaluation.uncertainty import LEVEL, check_level


def evaluate_rankings(
    systems: Mapping[str, Place | Mapping[str, Given] | Sequence[Place]],
    qrels: Mapping[str, Given] | Sequence[Place] | Place,
    measures: Sequence[str] = ("nDCG@10",),
    *,
    groups: Mapping[str, str] | Place | None = None,
    split: str = "test",
    margin: float = POINT,
    level: float = LEVEL,
    missing: Literal["error", "zero"] = "error",
    ignore_identical_ids: bool = False,
) -> Rankings:
    """Compare systems by rankings that lie in files: TREC, BEIR, ranx, MTEB, MIEB.

    `systems`: of each name a file or folder, {task: file or {query: {document: score}}}, or a list
    of files or folders, one for each seed. `qrels`: judgments, a file, a BEIR folder (`split` says
    which), a folder of several, or {task: one of these or a dict}. Standings are by the first
    measure. `groups`: queries that belong together, a file of `query<TAB>group` lines or a dict.
    `margin`: a difference below it does not matter, in points. `missing`: what a query that a
    system did not rank means. `ignore_identical_ids`: leave out documents that have the query's id.

    Examples:
        >>> qrels = {"pets": {"q1": {"cat": 1}, "q2": {"dog": 2}}}
        >>> good = {"pets": {"q1": {"cat": 0.9, "dog": 0.1}, "q2": {"cat": 0.2, "dog": 0.7}}}
        >>> poor = {"pets": {"q1": {"cat": 0.1, "dog": 0.9}, "q2": {"cat": 0.2, "dog": 0.7}}}
        >>> found = simgrad.evaluate_rankings({"good": good, "poor": poor}, qrels, ["P@1"])
        >>> found.tasks["pets"].scores["poor"], found.tasks["pets"].standing.leader
        ({'P@1': 50.0}, 'good')
    """
    check_level(level)
    if not systems:
        raise InputError("evaluate which rankings? Give a file or folder for each system.")
    if not measures or margin <= 0:
        raise InputError("at least one measure and a margin above 0 are needed.")
    chosen = [Measure.parse(text) for text in measures]
    tasks = open_tasks(qrels, groups, split)
    settings = _Settings(tuple(chosen), missing == "zero", ignore_identical_ids)
    places = {name: _places(given, tasks) for name, given in systems.items()}
    ranked = []
    for task in tasks:
        found = {
            name: [_measured(name, run[task.name], task, settings) for run in runs]
            for name, runs in places.items()
        }
        ranked.append(_ranked_task(task, found, chosen, margin, level))
    return Rankings({task.name: task for task in ranked}, level)


@dataclass(frozen=True)
class _Settings:
    measures: tuple[Measure, ...]
    zero: bool  # for queries that were not ranked
    ignore_identical: bool


@dataclass(frozen=True)
class _Measured:
    """One run on one task."""

    values: list[Floats]  # of each fold (queries, measures)
    ties: int  # queries whose order of relevant documents a tie decided
    own: int  # queries that rank a document of their own id


def _places(given: object, tasks: Sequence[Task]) -> list[Mapping[str, Given]]:
    """Of each run of a system, where its ranking of each task is."""
    if isinstance(given, str | Path):
        return [find_rankings(given, tasks)]
    if isinstance(given, Mapping):
        lost = next((task.name for task in tasks if task.name not in given), None)
        if lost is not None:
            raise InputError(f"a system has no ranking of the task {lost}.")
        return [given]
    if not isinstance(given, Sequence) or not given:
        raise InputError("a system is a file, a folder, a dict by task, or a list of files.")
    return [find_rankings(one, tasks) for one in given]


def _measured(system: str, given: Given, task: Task, settings: _Settings) -> _Measured:
    folds, values, ties, own = read_ranking(given, task), [], 0, 0
    where = f"{given}" if isinstance(given, str | Path) else f"{system}, task {task.name}"
    for fold, judgments in task.folds.items():
        ranking = folds[fold]
        lost = [query for query in judgments if query not in ranking]
        if lost and (not settings.zero or len(lost) == len(judgments)):
            source = f" ({task.source})" if task.source is not None else ""
            raise InputError(
                f"{where}: no ranking of query {one_line(lost[0])}, which has judgments{source}; "
                f"{len(lost):,} of {len(judgments):,} are missing. If nothing was found for them, "
                "`missing=zero` counts them with 0."
            )
        table = np.zeros((len(judgments), len(settings.measures)))
        for row, (query, judged) in enumerate(judgments.items()):
            documents = dict(ranking.get(query, {}))
            own += query in documents
            if settings.ignore_identical:
                documents.pop(query, None)
            grades, tied = _grades(documents, judged)
            every = np.array(list(judged.values()), dtype=np.int64)
            table[row] = [measure.of(grades, every) for measure in settings.measures]
            ties += tied
        values.append(table)
    return _Measured(values, ties, 0 if settings.ignore_identical else own)


def _grades(documents: Mapping[str, float], judged: Mapping[str, float]) -> tuple[Integers, bool]:
    """Grades in trec_eval's order, and whether a tie decided where a relevant document stands.

    Scores count in single precision there, and of equal ones the id that is later in the alphabet
    comes first.
    """
    with np.errstate(over="ignore"):
        scores = np.fromiter(documents.values(), np.float64).astype(np.float32).tolist()
    order = sorted(zip(scores, documents, strict=True), reverse=True)
    grades = np.array([judged.get(name, 0) for _, name in order], dtype=np.int64)
    ordered = np.array([score for score, _ in order])
    tied = (ordered[1:] == ordered[:-1]) & (np.maximum(grades[1:], 0) != np.maximum(grades[:-1], 0))
    return grades, bool(tied.any())


def _ranked_task(
    task: Task,
    found: Mapping[str, Sequence[_Measured]],
    measures: Sequence[Measure],
    margin: float,
    level: float,
) -> RankedTask:
    """Shares of the units, and what a reader should know."""
    units = task.units()
    crossed = {
        name: Crossed(
            tuple(map(str, measures)),
            np.stack([_shares(run.values, units) for run in runs]),
            np.repeat(np.arange(len(units)), [count for _, count in units]),
        )
        for name, runs in found.items()
    }
    queries = sum(map(len, task.folds.values()))
    notes = list(task.notes)
    ties = {name: max(run.ties for run in runs) for name, runs in found.items()}
    if any(ties.values()):
        most = max(ties, key=lambda name: ties[name])
        notes.append(
            f"ties decide the order of relevant documents in up to {ties[most]:,} queries "
            f"({most}); broken by id, as trec_eval does"
        )
    own = max(run.own for runs in found.values() for run in runs)
    if own:
        notes.append(
            f"{own:,} queries rank a document of their own id; where documents are the queries, "
            "MTEB leaves these out: `ignore_identical_ids`"
        )
    return RankedTask(task.name, crossed, queries, bool(task.groups), margin, level, tuple(notes))


def _shares(values: Sequence[Floats], units: Sequence[tuple[Integers, int]]) -> Floats:
    """(units, measures) what each query, or group of queries, adds to the task's score.

    As for images with several captions: a draw of groups may hold more queries than there were, and
    to first order this is in the share.
    """
    parts = []
    for table, (group, count) in zip(values, units, strict=True):
        sizes = np.bincount(group, minlength=count) / len(group)
        part = np.stack(
            [np.bincount(group, column, minlength=count) for column in table.T], axis=1
        ) / len(group)
        parts.append((part - table.mean(axis=0) * (sizes - 1 / count)[:, None]) / len(values))
    return np.concatenate(parts)
