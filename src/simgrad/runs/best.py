"""Which run of a folder is its best: of a study by validation, of `choose` the model it kept."""

import re
from pathlib import Path

from simgrad.core.errors import InputError
from simgrad.core.text import near_path
from simgrad.evaluation import metric_of
from simgrad.models.checkpoint import DESCRIPTION
from simgrad.runs.naming import label_of
from simgrad.runs.run import BEST, RECIPE, Run

MODEL = "model"  # the run that `simgrad choose` recommends
CHOICE = "choose.json"  # its plan, in the same folder


def best_run(folder: Path) -> Path:
    """The folder of the best run; an error says what the folder is instead.

    Of a study: the finished run with the best validation score, of those with weights. Runs on
    different data, or selected by different metrics, have no best.
    """
    if not folder.exists():
        raise InputError(f"{folder}: there is no such folder.{near_path(folder)}")
    kept = folder / MODEL
    if (kept / RECIPE).is_file() or (kept / DESCRIPTION).is_file():
        return kept
    found = [Run.open(place.parent) for place in sorted(folder.glob(f"runs/*/{RECIPE}"))]
    if not found:
        inside = sorted(folder.glob(f"*/{MODEL}/{RECIPE}")) + sorted(folder.glob(f"*/{RECIPE}"))
        near = f" Did you mean {folder / inside[0].relative_to(folder).parts[0]}?" if inside else ""
        raise InputError(f"{folder}: neither a run nor a checkpoint, nor a study of runs.{near}")
    usable = [r for r in found if r.finished and (r.path / BEST / DESCRIPTION).is_file()]
    if not usable:
        raise InputError(f"{folder}: none of its {len(found)} runs is finished and has weights.")
    if len({(run.recipe.data, run.recipe.select) for run in usable}) > 1:
        raise InputError(
            f"{folder}: its runs are on different data or selected by different metrics, so none "
            f"is best; give one of them, e.g. {usable[0].path}."
        )
    metric = metric_of(usable[0].recipe.select)
    scores = [float(run.info["best"][run.recipe.select]) for run in usable]
    return usable[scores.index(metric.best(scores))].path


def what_is_best(run: Run) -> str:
    """Of the model that `choose` keeps, in brackets: its objective and seed, the best of how many;
    nothing of runs whose names say it."""
    folder = run.path.parent
    if run.path.name != MODEL or not (folder / CHOICE).is_file():
        return ""
    rows = {p.parent: _row(p.parent.name) for p in folder.glob(f"runs/*/{RECIPE}")}
    own = next((row for path, row in rows.items() if Run(path).recipe == run.recipe), "")
    count = list(rows.values()).count(own)  # of all its searches, whose settings differ
    best = f", the best of {count}" if count > 1 else ""
    return f" ({label_of(run.recipe.objective)}, seed {run.recipe.seed}{best})"


def _row(name: str) -> str:
    """The row of a study of which a folder holds a run: `nt-xent` of `nt-xent-r2-s10000`."""
    return re.sub(r"(-r\d+)?-s\d+$", "", name)
