"""A study on somebody's data: which of its data sets they are, and where each row reads.

`--data` names one data set in any layout, or a tree of them (docs/reproduce.md). Files that a study
names relative to the tree, vocabularies and checkpoints, are found there.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from simgrad.core.errors import InputError
from simgrad.data.benchmarks import BENCHMARKS, Benchmark, Tree, benchmark_of, find_tree
from simgrad.data.layouts.base import is_spec
from simgrad.data.opening import open_dataset
from simgrad.studies.plan import Plan, read_plan
from simgrad.studies.study_file import Row

# What makes a test comparable with a published one; other data have none of it.
_OTHER_DATA = {"protocol": "all", "test_split": None}


@dataclass(frozen=True)
class Place:
    """Where a study's data are."""

    data: str
    features: str | None = None
    regions: str | None = None
    settings: str | None = None  # the data set whose settings are wanted
    known: Benchmark | None = None  # None: data that no paper of ours reports on
    roots: tuple[Path, ...] = ()  # where files that a study names may lie


def places(
    offers: tuple[str, ...],
    data: str,
    features: str | None = None,
    regions: str | None = None,
    only: str | None = None,
) -> list[Place]:
    """The data to run a study on: one place, or one for each data set of a tree that it is about.

    `offers` are the data sets that the study is about, `only` the one that is wanted.
    """
    if only is not None and only not in BENCHMARKS:
        raise InputError(f"`only`: there is no data set '{only[:40]}'; {', '.join(BENCHMARKS)}.")
    tree = find_tree(data) if Path(data).expanduser().is_dir() else Tree(Path(data))
    if offers and tree.several:
        return _in_tree(tree, offers, features, regions, only)
    known = benchmark_of(open_dataset(data)) if offers and not is_spec(data) else None
    if only is not None and known is not None and known.name != only:
        raise InputError(f"`only={only}`: {data} is {known.title}.")
    if only is not None and offers and only not in offers:
        raise InputError(f"`only={only}`: the study is about {', '.join(offers)}.")
    path = Path(data).expanduser()
    settings = known.name if known is not None else only
    roots = (path, path.parent, path.parent.parent)
    return [Place(data, features, regions, settings, known, roots)]


def _in_tree(
    tree: Tree,
    offers: tuple[str, ...],
    features: str | None,
    regions: str | None,
    only: str | None,
) -> list[Place]:
    wanted = [only] if only else [name for name in offers or tree.names if name in tree.names]
    missing = [name for name in wanted if name not in tree.names or (offers and name not in offers)]
    if missing or not wanted:
        has = ", ".join(BENCHMARKS[name].title for name in tree.names)
        needs = ", ".join(BENCHMARKS[name].title for name in offers) or "a known data set"
        raise InputError(f"{tree.root}: the study is about {needs}; the folder holds {has}.")
    if features is not None and len(wanted) > 1:
        raise InputError("`features` are of one data set: name it with `only`.")
    return [
        Place(
            str(tree.expected(name, "pictures")),
            features,
            regions or str(tree.expected(name, "regions")),
            name,
            BENCHMARKS[name],
            (tree.root,),
        )
        for name in wanted
    ]


def placed(path: Path, place: Place) -> Plan:
    """A study file on some data: settings for them, files found, tests that fit them."""
    return on_place(read_plan(path, place.settings), place)


def on_place(plan: Plan, place: Place) -> Plan:
    """A study on some data."""
    plan = plan.on_data(place.data, place.features, place.regions)
    # A file that is about no data set in particular says itself how it is tested.
    same = plan.dataset is None or (place.known is not None and plan.dataset == place.known.name)
    rows = []
    for row in plan.rows:
        changes: dict[str, Any] = {} if same else dict(_OTHER_DATA)
        changes |= _found(plan, row, place.roots)
        rows.append(row.with_changes(**changes))
    return dataclasses.replace(plan, rows=tuple(rows))


def _found(plan: Plan, row: Row, roots: tuple[Path, ...]) -> dict[str, Any]:
    """Vocabulary and checkpoint of a row, looked for where the data are.

    A vocabulary that is not there is built from the training captions instead; the dry run says
    which. A checkpoint that is not there is an error when it is opened.
    """
    both = {**plan.base.to_dict(), **row.changes}
    found: dict[str, Any] = {}
    for field in ("vocabulary", "start_from"):
        path = _under(both, field, roots)
        if path is not None:
            found[field] = str(path)
        elif field == "vocabulary" and both.get(field) and not Path(both[field]).exists():
            found[field] = None
        elif field == "start_from" and both.get(field) and roots:
            found[field] = str(roots[0] / both[field])  # named in full where it is missed
    return found


def _under(fields: Mapping[str, Any], field: str, roots: tuple[Path, ...]) -> Path | None:
    named = fields.get(field)
    if not named or Path(named).exists():
        return None
    return next((root / named for root in roots if (root / named).exists()), None)
