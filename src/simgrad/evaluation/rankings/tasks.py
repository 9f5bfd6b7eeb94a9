"""Tasks, and which file of a system belongs to which: judgments, groups of queries, rankings.

A task is judgments: a file, or a BEIR folder (qrels/SPLIT.tsv beside corpus.jsonl). A folder of
several of them is several tasks, called as the files are. A system is a file, where there is one
task; or a folder with a file for each: TASK_predictions.json (MTEB), TASK.trec, TASK.json, ...
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from simgrad.core.errors import InputError
from simgrad.core.files import require_file
from simgrad.core.text import one_line
from simgrad.evaluation.rankings.files import (
    NUMBERS,
    Folds,
    Table,
    check_table,
    line_of,
    read_qrels,
    read_run,
)
from simgrad.evaluation.ranks import Integers

_PREDICTIONS = "_predictions.json"
_SUFFIXES = (".json", ".trec", ".txt", ".run", ".tsv", ".qrels", ".qrel", ".gz", ".parquet",
             ".parq")  # fmt: skip
_LARGEST_CORPUS = 1 << 30  # bytes; of a larger one documents are not looked for

Place = str | Path
Given = Place | Mapping[str, Mapping[str, float]]  # a file or folder, or {query: {document: score}}


@dataclass(frozen=True)
class Task:
    """Queries with judgments; the folds are MTEB's subsets and splits, and mostly one."""

    name: str
    folds: Folds  # only queries with judgments
    source: Path | None = None  # the file of the judgments
    corpus: frozenset[str] | None = None  # documents, where they are known
    groups: dict[str, str] = field(default_factory=dict)  # query -> group
    notes: tuple[str, ...] = ()

    def units(self) -> list[tuple[Integers, int]]:
        """Of each fold: the group of each query, numbered from 0, and how many there are."""
        found = []
        for table in self.folds.values():
            names = [self.groups.get(query, f"\0{query}") for query in table]
            _, numbers = np.unique(names, return_inverse=True)
            found.append((numbers.astype(np.int64), int(numbers.max()) + 1))
        return found


def open_tasks(
    given: Mapping[str, Given] | Sequence[Place] | Place,
    groups: Mapping[str, Any] | Place | None = None,
    split: str = "test",
) -> list[Task]:
    """The tasks that judgments describe."""
    named: Iterable[tuple[str | None, Given]]
    if isinstance(given, Mapping):
        named = given.items()
    else:
        places = [given] if isinstance(given, str | Path) else list(given)
        named = [_named(str(place)) for place in places]
    tasks = [task for name, one in named for task in _tasks(name, one, split)]
    if not tasks:
        raise InputError("there are no judgments: give a file or folder of qrels.")
    names = [task.name for task in tasks]
    twice = next((name for i, name in enumerate(names) if name in names[:i]), None)
    if twice is not None:
        raise InputError(f"two tasks are called {twice}: give them as NAME=FILE.")
    return tasks if groups is None else [_grouped(task, groups, len(tasks)) for task in tasks]


def _named(text: str) -> tuple[str | None, Path]:
    """NAME=PATH, or a path."""
    name, mark, path = text.partition("=")
    plain = Path(text).expanduser()
    return (name, Path(path).expanduser()) if mark and not plain.exists() else (None, plain)


def _tasks(name: str | None, given: Given, split: str) -> list[Task]:
    if isinstance(given, Mapping):
        table = check_table(dict(given), NUMBERS["grade"], f"judgments of {name}")
        return [_task(str(name), {"": table})]
    path = Path(given).expanduser()
    if not path.is_dir():
        folds = read_qrels(require_file(path))
        return [_task(name or task_name(path), folds, path)]
    if (path / "qrels").is_dir():
        return [_beir(name or path.name, path, split)]
    inside = [child for child in sorted(path.iterdir()) if _is_one(child)]
    if not inside:
        raise InputError(f"{path}: neither a BEIR folder nor a folder of judgments.")
    return [task for child in inside for task in _tasks(None, child, split)]


def _is_one(path: Path) -> bool:
    if path.name.startswith("."):
        return False
    return (path / "qrels").is_dir() if path.is_dir() else path.suffix in _SUFFIXES


def task_name(path: Path) -> str:
    """What a file is called, without its endings."""
    name = path.name.removesuffix(_PREDICTIONS)
    while (stem := Path(name)).suffix in _SUFFIXES:
        name = stem.stem
    return name


def _beir(name: str, folder: Path, split: str) -> Task:
    there = {path.stem: path for path in sorted((folder / "qrels").glob("*.tsv"))}
    if split not in there and len(there) != 1:
        has = ", ".join(there) or "no .tsv file"
        raise InputError(f"{folder / 'qrels'}: there is no split '{split}' (it has: {has}).")
    source = there.get(split) or next(iter(there.values()))
    corpus, notes = _documents(folder / "corpus.jsonl")
    task = _task(name, read_qrels(source), source, corpus, notes)
    for table in task.folds.values():
        _check_documents(table, corpus, source)
    _check_queries(task, folder / "queries.jsonl")
    return task


def _task(
    name: str,
    folds: Folds,
    source: Path | None = None,
    corpus: frozenset[str] | None = None,
    notes: tuple[str, ...] = (),
) -> Task:
    """With the queries that have judgments; where none is positive, every measure is 0."""
    kept = {fold: {q: one for q, one in table.items() if one} for fold, table in folds.items()}
    kept = {fold: table for fold, table in kept.items() if table}
    best = [max(judged.values()) for table in kept.values() for judged in table.values()]
    if max(best, default=0) <= 0:
        raise InputError(f"{source or name}: no document is relevant to any query.")
    without = sum(grade <= 0 for grade in best)
    if without:
        have = "query has" if without == 1 else "queries have"
        notes += (f"{without:,} {have} no relevant document: 0 in every mean, as MTEB counts",)
    return Task(name, kept, source, corpus, notes=notes)


def _documents(path: Path) -> tuple[frozenset[str] | None, tuple[str, ...]]:
    if not path.is_file():
        return None, ()
    if path.stat().st_size > _LARGEST_CORPUS:
        return None, (f"{path.name} is over 1 GiB: documents were not looked for in it",)
    return frozenset(_ids(path)), ()


def _ids(path: Path) -> Iterable[str]:
    with open(require_file(path), "rb") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                found = json.loads(line)["_id"]
            except (ValueError, TypeError, KeyError, RecursionError):
                raise InputError(f"{path}, line {number}: not a JSON object with '_id'.") from None
            yield str(found)


def _check_documents(table: Table, corpus: frozenset[str] | None, source: Path) -> None:
    if corpus is None:
        return
    for query, documents in table.items():
        unknown = next((one for one in documents if one not in corpus), None)
        if unknown is not None:
            raise InputError(
                f"{line_of(source, query, unknown)}: there is no document {one_line(unknown)} in "
                "corpus.jsonl."
            )


def _check_queries(task: Task, path: Path) -> None:
    known = set(_ids(path)) if path.is_file() else None
    for query, judged in next(iter(task.folds.values())).items():
        if known is not None and query not in known:
            place = line_of(task.source or path, query, next(iter(judged)))
            raise InputError(f"{place}: there is no query {one_line(query)} in {path.name}.")


def _grouped(task: Task, groups: Mapping[str, Any] | Place, tasks: int) -> Task:
    """With the group of every query, from `query<TAB>group` lines or a dict."""
    if isinstance(groups, Mapping):
        where, found = "groups", groups.get(task.name, groups)
    else:
        path = Path(groups).expanduser()
        if path.is_dir():
            path = next(
                (p for p in sorted(path.iterdir()) if task_name(p) == task.name), path / task.name
            )
        elif tasks > 1:
            raise InputError(f"{path}: of several tasks, groups are a folder with a file for each.")
        where, found = str(path), _read_groups(require_file(path))
    for table in task.folds.values():
        lost = next((query for query in table if query not in found), None)
        if lost is not None:
            raise InputError(f"{where}: query {one_line(lost)} of {task.name} is in no group.")
    kept = {query: str(found[query]) for table in task.folds.values() for query in table}
    return Task(task.name, task.folds, task.source, task.corpus, kept, task.notes)


def _read_groups(path: Path) -> dict[str, str]:
    found: dict[str, str] = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        fields = line.split("\t") if "\t" in line else line.split()
        if line.strip() and len(fields) != 2:
            raise InputError(f"{path}, line {number}: a line is a query and its group.")
        if line.strip() and found.setdefault(fields[0], fields[1]) != fields[1]:
            raise InputError(f"{path}, line {number}: query {fields[0]} is in two groups.")
    return found


# -- systems


def find_rankings(system: Place, tasks: Sequence[Task]) -> dict[str, Path]:
    """The file of a system for each task."""
    path = Path(system).expanduser()
    if not path.exists():
        raise InputError(f"{path}: there is no such file or folder.")
    if path.is_file():
        if len(tasks) > 1:
            raise InputError(
                f"{path}: one file, but {len(tasks)} tasks; give a folder with a file for each, "
                f"called {tasks[0].name}{_PREDICTIONS}, {tasks[0].name}.trec or alike."
            )
        return {tasks[0].name: path}
    there = [child for child in sorted(path.iterdir()) if child.suffix in _SUFFIXES]
    return {task.name: _ranking(path, task.name, there) for task in tasks}


def _ranking(folder: Path, task: str, there: Sequence[Path]) -> Path:
    found = [path for path in there if task_name(path) == task]
    # MTEB 1 names the subset as well: TASK_default_predictions.json.
    found = found or [p for p in there if p.name == f"{task}_default{_PREDICTIONS}"]
    if len(found) == 1:
        return found[0]
    if found:
        both = " and ".join(path.name for path in found[:2])
        raise InputError(f"{folder}: both {both} are rankings of {task}; keep one.")
    has = ", ".join(path.name for path in there[:6]) or "nothing of the kind"
    raise InputError(f"{folder}: there is no ranking of the task {task} (it has: {has}).")


def read_ranking(given: Given, task: Task) -> Folds:
    """A ranking, in the folds of its task; documents are looked for in the corpus, if known."""
    if isinstance(given, Mapping):
        found = {"": check_table(dict(given), NUMBERS["score"], f"the ranking of {task.name}")}
        where: Path | None = None
    else:
        where = Path(given)
        found = read_run(where)
    if len(found) == len(task.folds) == 1:
        found = dict(zip(task.folds, found.values(), strict=True))
    lost = next((fold for fold in task.folds if fold not in found), None)
    if lost is not None:
        raise InputError(
            f"{where or task.name}: it has the parts {', '.join(found)}, but the judgments are of "
            f"{', '.join(task.folds) if lost else 'one part without a name'}."
        )
    for fold in task.folds:
        if where is not None:
            _check_documents(found[fold], task.corpus, where)
    return {fold: found[fold] for fold in task.folds}
