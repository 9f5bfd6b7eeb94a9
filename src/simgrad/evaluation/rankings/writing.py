"""TREC files, for the tools of others: rankings, and judgments."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import quote

import torch

from simgrad.core.files import atomic_write
from simgrad.evaluation.rankings.tasks import Place, find_rankings, open_tasks, read_ranking
from simgrad.evaluation.ranks import Integers
from simgrad.evaluation.scores import Scores

DEPTH = 1000  # documents of a query that are written

Numbers = Mapping[str, Mapping[str, float]]


def write_run(path: str | Path, ranking: Numbers, tag: str = "simgrad") -> None:
    """A TREC run: query Q0 document rank score tag, the best first.

    Examples:
        >>> simgrad.evaluation.rankings.write_run("a.trec", {"q1": {"cat": 0.5, "dog": 0.75}}, "a")
        >>> print(open("a.trec").read(), end="")
        q1 Q0 dog 1 0.75 a
        q1 Q0 cat 2 0.5 a
    """
    with atomic_write(path) as file:
        for query, documents in ranking.items():
            order = sorted(documents.items(), key=lambda item: (item[1], item[0]), reverse=True)
            for rank, (document, score) in enumerate(order, 1):
                line = (_word(query), "Q0", _word(document), rank, float(score), _word(tag))
                file.write(" ".join(map(str, line)) + "\n")


def write_qrels(path: str | Path, judgments: Numbers) -> None:
    """TREC judgments: query 0 document grade.

    Examples:
        >>> simgrad.evaluation.rankings.write_qrels("qrels.txt", {"q1": {"my cat": 2}})
        >>> print(open("qrels.txt").read(), end="")
        q1 0 my%20cat 2
    """
    with atomic_write(path) as file:
        for query, documents in judgments.items():
            for document, grade in documents.items():
                file.write(f"{_word(query)} 0 {_word(document)} {int(grade)}\n")


def write_groups(path: str | Path, groups: Mapping[str, str]) -> None:
    """The group of each query, with a tab between."""
    with atomic_write(path) as file:
        for query, group in groups.items():
            file.write(f"{_word(query)}\t{_word(group)}\n")


def write_scores(
    folder: Path,
    system: str,
    scores: Scores,
    image_of_caption: Integers,
    images: Sequence[str],
    captions: Sequence[str],
) -> None:
    """Both directions of a system as TREC files: SYSTEM/i2t.trec, qrels/i2t.qrels and t2i.

    groups/t2i.tsv says which captions belong to one image; DEPTH candidates of a query are written.
    """
    owners = image_of_caption.tolist()
    pairs = [(images[row], name) for row, name in zip(owners, captions, strict=True)]
    judged: dict[str, dict[str, float]] = {name: {} for name in images}
    for image, caption in pairs:
        judged[image][caption] = 1
    write_qrels(folder / "qrels" / "i2t.qrels", judged)
    write_qrels(folder / "qrels" / "t2i.qrels", {caption: {image: 1} for image, caption in pairs})
    write_groups(folder / "groups" / "i2t.tsv", {name: name for name in images})
    write_groups(folder / "groups" / "t2i.tsv", {caption: image for image, caption in pairs})
    place = folder / _file_name(system)
    write_run(place / "i2t.trec", _ranked(scores, images, captions), system)
    write_run(place / "t2i.trec", _ranked(scores.transposed(), captions, images), system)


def _ranked(
    scores: Scores, queries: Sequence[str], candidates: Sequence[str]
) -> dict[str, dict[str, float]]:
    found = {}
    for start, _, block in scores.blocks():
        values, columns = torch.topk(block, min(DEPTH, block.shape[1]), dim=1)
        for row, (score, column) in enumerate(zip(values.tolist(), columns.tolist(), strict=True)):
            names = [candidates[i] for i in column]
            found[queries[start + row]] = dict(zip(names, score, strict=True))
    return found


def write_trec(
    folder: Path,
    systems: Mapping[str, Place],
    qrels: Sequence[Place],
    groups: Place | None = None,
    split: str = "test",
) -> None:
    """Rankings and judgments of any format as TREC files: SYSTEM/TASK.trec, qrels/TASK.qrels."""
    tasks = open_tasks(qrels, groups, split)
    for task in tasks:
        for fold, table in task.folds.items():
            name = _file_name(f"{task.name}_{fold}" if len(task.folds) > 1 else task.name)
            write_qrels(folder / "qrels" / f"{name}.qrels", table)
            if task.groups:
                write_groups(folder / "groups" / f"{name}.tsv", {q: task.groups[q] for q in table})
        for system, place in systems.items():
            for fold, ranking in read_ranking(find_rankings(place, tasks)[task.name], task).items():
                name = _file_name(f"{task.name}_{fold}" if len(task.folds) > 1 else task.name)
                write_run(folder / _file_name(system) / f"{name}.trec", ranking, system)


def _file_name(text: str) -> str:
    return re.sub(r"[^\w.+-]+", "_", text).strip(".") or "system"


def _word(text: str) -> str:
    """Columns are parted by blanks: a name that has any is written with %20, and % with %25."""
    return re.sub(r"[\s%]", lambda found: quote(found[0]), text) or "%00"
