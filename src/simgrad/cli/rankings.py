"""`simgrad evaluate --qrels`: rankings of others, and TREC files of our own."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from simgrad.core.console import print_table, say, say_wrapped
from simgrad.core.errors import InputError
from simgrad.core.named_files import write_named_csv, write_named_json, write_named_tables
from simgrad.evaluation import Rankings, evaluate_rankings
from simgrad.evaluation.rankings.files import model_name
from simgrad.evaluation.rankings.tasks import task_name
from simgrad.evaluation.rankings.writing import write_scores, write_trec
from simgrad.retriever.similarities import Similarities


@dataclass(frozen=True)
class Asked:
    """What the command line named."""

    systems: Sequence[str]
    qrels: Sequence[str]
    names: Sequence[str]
    groups: Path | None
    split: str
    trec: Path | None
    output: Path | None


def show_rankings(asked: Asked, **settings: Any) -> dict[str, Any]:
    """Compare rankings, print the standings, write what was asked for."""
    systems = {
        name: [one.strip() for one in given.split(",")]
        for name, given in zip(_names(asked), asked.systems, strict=True)
    }
    found = evaluate_rankings(
        systems, asked.qrels, groups=asked.groups, split=asked.split, **settings
    )
    if asked.trec is not None:
        first = {name: runs[0] for name, runs in systems.items()}
        write_trec(asked.trec, first, asked.qrels, asked.groups, asked.split)
    if asked.output is not None:
        _write(asked.output, found)
    for number, table in enumerate(found.tables()):
        if number:
            say("")
        print_table(table.columns, table.rows, title=table.title)
        for note in table.notes:
            say_wrapped(note)
    for path in filter(None, (asked.trec, asked.output)):
        say(f"\n{path}: written.")
    return found.to_dict()


def _names(asked: Asked) -> list[str]:
    """As given; else the model that MTEB names, or what the file or folder is called."""
    if not asked.systems:
        raise InputError("evaluate which rankings? Give a file or folder for each system.")
    if asked.names:
        if len(set(asked.names)) != len(asked.systems) or len(asked.names) != len(asked.systems):
            raise InputError(
                f"--names: {len(asked.systems)} different names are needed, not "
                f"{', '.join(asked.names)}."
            )
        return list(asked.names)
    for choose in (_by_model, _by_file):
        found = [choose(Path(given.split(",")[0]).expanduser()) for given in asked.systems]
        if all(found) and len(set(found)) == len(found):
            return found
    return list(asked.systems)


def _by_model(path: Path) -> str:
    inside = sorted(path.glob("*_predictions.json")) if path.is_dir() else [path]
    named = inside and inside[0].name.endswith("_predictions.json") and inside[0].is_file()
    return (model_name(inside[0]) or "") if named else ""


def _by_file(path: Path) -> str:
    return path.resolve().name if path.is_dir() else task_name(path)


def _write(path: Path, found: Rankings) -> None:
    if path.suffix == ".json":
        write_named_json(path, found.to_dict())
    elif path.suffix == ".csv":
        write_named_csv(path, found.records())
    else:
        write_named_tables(path, found.tables())


def write_own(folder: Path, systems: Mapping[str, Similarities]) -> None:
    """The rankings of our own systems as TREC files: tasks i2t and t2i."""
    for label, found in systems.items():
        images, captions = found.split.image_names, found.split.caption_ids
        numbered = [f"caption{row}" for row in range(found.split.num_captions)]
        write_scores(
            folder, label, found.scores, found.split.image_of_caption, images, captions or numbered
        )
    say(f"{folder}: written.")
