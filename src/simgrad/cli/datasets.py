"""`simgrad datasets`: look at a data set and its problems."""

import shlex
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import tyro

from simgrad.cli.listing import described
from simgrad.cli.options import as_options
from simgrad.cli.tree import describe_tree, print_tree
from simgrad.core.console import console, print_table, say, say_wrapped
from simgrad.core.errors import InputError
from simgrad.core.spec import Parameter, print_value
from simgrad.core.text import counted
from simgrad.data.base import Dataset, Split
from simgrad.data.benchmarks import Tree, find_tree
from simgrad.data.check import Findings, check
from simgrad.data.layouts import layouts as declared_layouts
from simgrad.data.layouts.base import existing
from simgrad.data.log import DataProblem, Log
from simgrad.data.opening import open_logged
from simgrad.data.vocabulary import SPECIALS, Vocabulary
from simgrad.data.words import tokenize

_SHOWN = 20  # problems printed unless all are asked for


def datasets(
    path: Annotated[
        str, tyro.conf.Positional, tyro.conf.arg(metavar="[DATA]", help_behavior_hint="")
    ] = "",
    *,
    layouts: bool = False,
    fix: bool = False,
    output: Path | None = None,
    skip: Path | None = None,
    features: Path | None = None,
    layout: str | None = None,
    published: bool = False,
    thorough: bool = False,
    all: bool = False,
    recipes: Path = Path("recipes"),
) -> Any:
    """Print what a data set holds and every problem found in it.

    Args:
        path: a folder or file in a known layout, or a spec such as 'scenes(train=100)'
        layouts: list the known layouts and their parameters
        fix: write a list of items to omit (skip.json in the data's folder, or --output)
        output: the file that --fix writes
        skip: a list written by --fix; its items are omitted
        features: a folder written by `simgrad features`, to check together with the data
        layout: read the data in this layout instead of recognising it
        published: keep five captions per image in val and test, as the published evaluations do
        thorough: decode every picture and read every feature
        all: print every problem, not only the first 20
        recipes: for a folder that holds Flickr30k or COCO (docs/reproduce.md): say how many rows of
            the papers' tables in this folder of recipes are ready, and what blocks the others
    """
    if layouts or not path:
        return _list_layouts()
    tree = None if layout else _tree(path)
    if tree is not None:
        told = describe_tree(tree, recipes)
        print_tree(told, recipes)
        return told
    log = Log.read(skip)
    log.collect = True
    dataset = open_logged(path, log, features=features, layout=layout, published=published)
    found = check(dataset, thorough=thorough)
    found.problems = sorted([*log.problems, *found.problems], key=lambda p: not p.missing)
    _print(dataset, found, all, path, fix)
    if fix:
        skip = _fix(log, output, found.problems)
    if skip is not None or not found.problems:
        _say_next(dataset, f"{layout}(path={path})" if layout else path, features, skip)
    return summary(dataset, found)


def _tree(path: str) -> Tree | None:
    """A folder of several known data sets, where the path is one."""
    place = existing(path)
    tree = find_tree(place) if place is not None and place.is_dir() else None
    return tree if tree is not None and tree.several else None


def _list_layouts() -> list[dict[str, Any]]:
    rows = [(one.name, one.description) for one in declared_layouts]
    print_table(["layout", "what it looks like"], rows)
    print()
    given = ((one.name, p) for one in declared_layouts for p in one.parameters)
    print_table(
        ["layout", "parameter", "default", "what it is"],
        [(n, p.name, print_value(p.default) or "–", _meaning(p)) for n, p in given],
    )
    console().print("\nsimgrad datasets DATA recognises the layout and checks the data.")
    return [described(one) for one in declared_layouts]


def _meaning(parameter: Parameter) -> str:
    choices = f" ({', '.join(parameter.choices)})" if parameter.choices else ""
    return parameter.description + choices


def _fix(log: Log, output: Path | None, problems: list[DataProblem]) -> Path:
    target = output or log.root / "skip.json"
    try:
        count = log.write(target, problems)
    except OSError as error:
        raise InputError(
            f"{target}: cannot be written ({error.strerror}); give --output."
        ) from None
    say(
        f"{target}: leaves out {count:,} of {counted(len(problems), 'problem')}; give it as "
        "--skip to `simgrad features`, `train`, `choose` and `datasets`, or as skip= in Python.",
        stderr=True,
    )
    return target


def summary(dataset: Dataset, found: Findings) -> dict[str, Any]:
    """What `simgrad datasets --json` prints."""
    return {
        "name": dataset.name,
        "layout": dataset.layout,
        "notes": [*dataset.notes, *found.notes],
        "splits": {name: _describe(split) for name, split in dataset.splits.items()},
        "pictures": _sizes(found),
        "repeated_captions": found.repeated,
        "shared_captions": found.shared,
        "copies": found.copies.groups,
        "copies_across_splits": found.copies.across,
        "problems": [
            {"file": p.file, "place": p.place, "what": p.what, "split": p.split}
            for p in found.problems
        ],
    }


def _describe(split: Split) -> dict[str, Any]:

    lengths, words = [], set()
    for caption in split.captions:
        found = tokenize(caption)
        lengths.append(len(found))
        words.update(found)
    each = split.captions_per_image
    return {
        "images": split.num_images,
        "captions": split.num_captions,
        "captions_per_image": [
            int(each.min(initial=each.max(initial=0))),
            int(each.max(initial=0)),
        ],
        "words_per_caption": round(float(np.mean(lengths)), 1) if lengths else 0.0,
        "longest_caption": max(lengths, default=0),
        "distinct_words": len(words),
        "pictures": split.pictures is not None,
        "features": None if split.features is None else list(split.features.shape),
    }


def _sizes(found: Findings) -> dict[str, Any] | None:
    if not found.sizes:
        return None
    table = np.array([(w, h) for (w, h), n in found.sizes.items() for _ in range(n)])
    low, middle, high = (np.quantile(table, q, axis=0).astype(int) for q in (0, 0.5, 1))
    return {
        "looked_at": len(table),
        "smallest": low.tolist(),
        "median": middle.tolist(),
        "largest": high.tolist(),
    }


def _print(dataset: Dataset, found: Findings, everything: bool, path: str, fixed: bool) -> None:
    out = console()
    out.print(dataset.name, style="bold", end="")
    out.print(f": layout {dataset.layout}\n")
    rows = []
    for name, split in dataset.splits.items():
        facts = _describe(split)
        low, high = facts["captions_per_image"]
        rows.append(
            [
                name,
                f"{split.num_images:,}",
                f"{split.num_captions:,}",
                f"{low}" if low == high else f"{low}-{high}",
                f"{facts['words_per_caption']}",
                f"{facts['longest_caption']:,}",
                f"{facts['distinct_words']:,}",
                _holds(split),
            ]
        )
    columns = ["split", "images", "captions", "per image", "words", "longest", "distinct", "holds"]
    print_table(columns, rows)
    if "train" in dataset.splits:
        out.print(f"\nvocabulary  {_vocabulary(dataset.splits['train'])}")
    sizes = _sizes(found)
    if sizes:
        (low, short), (high, tall) = sizes["smallest"], sizes["largest"]
        shown = f"median {sizes['median'][0]} x {sizes['median'][1]}, "
        shown += f"width {low}-{high}, height {short}-{tall}"
        out.print(f"pictures    {shown} ({sizes['looked_at']:,} looked at)")
    for note in (*dataset.notes, *found.notes):
        say_wrapped(f"note        {as_options(note, datasets)}")
    repeated = ", ".join(f"{n:,} in {split}" for split, n in found.repeated.items() if n)
    if repeated:
        out.print(f"note        captions that repeat another of their image: {repeated}")
    shared = ", ".join(f"{n:,} in {split}" for split, n in found.shared.items() if n)
    if shared:
        out.print(
            f"note        captions that stand on more than one image: {shared}; in a batch they "
            "are false negatives (docs/negatives.md)"
        )
    _print_problems(found.problems, everything, path)
    if not fixed and any(problem.skippable for problem in found.problems):
        say_wrapped(
            "\n--fix writes a list of what to leave out, to give as --skip; `simgrad choose` "
            "leaves up to 2 % out by itself."
        )


def _say_next(dataset: Dataset, data: str, features: Path | None, skip: Path | None) -> None:
    """The command that most people want now."""
    train = dataset.splits.get("train")
    if train is None or (train.features is None and train.pictures is None):
        return
    whole = {"train", "val", "test"} <= dataset.splits.keys()
    begin = ["features"] if train.features is None else ["train", "--data"]
    begin = ["choose"] if whole else begin
    more = ["--features", str(features)] if features else []
    more += ["--skip", str(skip)] if skip else []
    say(f"next        {shlex.join(['simgrad', *begin, data, *more])}")


def _holds(split: Split) -> str:
    parts = ["pictures"] if split.pictures is not None else []
    if split.features is not None:
        parts.append("x".join(str(n) for n in split.features.shape))
    return ", ".join(parts) or "only captions"


def _vocabulary(train: Split) -> str:

    words = len(Vocabulary.build(train.captions)) - len(SPECIALS)
    return f"{words:,} words that occur 4 times or more in train, and {len(SPECIALS)} special ones"


def _print_problems(problems: list[DataProblem], everything: bool, path: str) -> None:
    out = console()
    if not problems:
        out.print("problems    none")
        return
    shown = problems if everything else problems[:_SHOWN]
    missing = sum(problem.missing for problem in problems)
    first = f" (missing pictures first: {missing:,})" if missing else ""
    out.print(f"problems    {len(problems):,}{first}")
    for problem in shown:
        # The data's own folder is known to whoever named it; without it lines fit.
        text = str(problem).replace(path.rstrip("/") + "/", "")
        out.print(f"  {text}")
    if len(shown) < len(problems):
        out.print(f"  ... and {len(problems) - len(shown):,} more; --all prints them.")
