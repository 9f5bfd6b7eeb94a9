"""A plan over an earlier one in the same folder: what may change, and what makes way for it.

What has been trained is never changed. Rows, seeds and replicates may be added, and settings of
runs that failed or have not begun may be corrected.
"""

import dataclasses
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simgrad.core.errors import InputError
from simgrad.core.files import lock
from simgrad.runs.recipe import Recipe, differing
from simgrad.runs.run import LOCK, Run
from simgrad.studies.plan import Plan
from simgrad.studies.tune import plain
from simgrad.studies.tuned import TRIALS

if TYPE_CHECKING:
    from simgrad.studies.study import Study

RUNS = "runs"


def corrected(study: "Study", plan: Plan) -> Plan:
    """The plan to write over the one that is there; refused if it changes what was trained."""
    old = study.plan
    plan = _with_old_names(_with_old_threads(study, plan, old), old)
    _keep_search(study, old, plan)
    _make_way(study, old, plan)
    return plan


def _keep_search(study: "Study", old: Plan, new: Plan) -> None:
    """More replicates are welcome, and more trials before a run of the table has begun; nothing
    else may change."""
    before, now = _search_of(old), _search_of(new)
    spaces = {row.name: _plain(row.space) for row in old.rows}
    alike = all(spaces.get(row.name, _plain(row.space)) == _plain(row.space) for row in new.rows)
    if min(one.get("replicates", 1) for one in (before, now)) > 1:
        now["replicates"] = before["replicates"]
    if before == now and alike:
        return
    only_longer = (
        alike
        and {**now, "trials": None} == {**before, "trials": None}
        and now["trials"] >= before["trials"]
        and not now["extend"]  # what was added to an earlier search would stand in the way
    )
    begun = any(path.is_dir() for path, _ in study.jobs())
    if begun or (not only_longer and (study.path / TRIALS).is_dir()):
        raise InputError(
            f"{study.path} holds a study whose search settings differ from these and whose "
            f"{'runs' if begun else 'trials'} have begun: choose another folder."
        )
    for tuning in study.tunings:
        tuning.path.unlink(missing_ok=True)  # to be chosen anew, with the trials to come


def _search_of(plan: Plan) -> dict[str, Any]:
    return {} if plan.tune is None else plan.tune.to_dict()


def _plain(space: dict[str, Any]) -> dict[str, Any]:
    return {key: plain(where) for key, where in space.items()}


def _with_old_threads(study: "Study", plan: Plan, old: Plan) -> Plan:
    """What was decided about threads stays; another number is refused once it was used."""
    asked, before = plan.base.threads, old.base.threads
    if asked is None:
        return plan.with_threads(before)
    used = bool(study.runs) or (study.path / TRIALS).is_dir()
    if before not in (None, asked) and used:
        raise InputError(
            f"{study.path} holds a study that has begun with `threads={before}`, and sums depend "
            "on it: leave the number as it was, or choose another folder."
        )
    return plan


def _with_old_names(plan: Plan, old: Plan) -> Plan:
    """Rows that were there before keep the names of their folders."""
    known = {_key(old.recipe(row, 0)): row.name for row in old.rows if not row.ensemble}
    rows = [
        row if row.ensemble else row.renamed(known.get(_key(plan.recipe(row, 0)), row.name))
        for row in plan.rows
    ]
    return dataclasses.replace(plan, rows=tuple(rows))


def _key(recipe: Recipe) -> str:
    return repr(recipe.to_dict())


def _make_way(study: "Study", old: Plan, new: Plan) -> None:
    """Remove failed runs whose settings were corrected; refuse to change what was trained."""
    before = {name: recipe for name, _, recipe in old.runs()}
    gone = [study.path / RUNS / name for name in before.keys() - {n for n, _, _ in new.runs()}]
    stale, kept = [folder for folder in gone if _never_began(folder)], {}
    for name, _, recipe in new.runs():
        changed = differing(before.get(name, recipe), recipe)
        folder = study.path / RUNS / name
        if not changed or not folder.exists():
            continue
        if Run(folder).info.get("status") in ("waiting", "failed"):
            stale.append(folder)
        else:
            kept[name] = changed
    if kept:
        fields = ", ".join(sorted({field for changed in kept.values() for field in changed}))
        raise InputError(
            f"{study.path} holds a study in which {', '.join(kept)} were trained with another "
            f"recipe ({fields} differ): give another folder, or remove their folders."
        )
    for folder in stale:
        if folder.is_symlink():
            raise InputError(
                f"{folder}: a link to another folder, from which nothing is removed. Its run has "
                "other settings now: remove the link, or choose another folder."
            )
        with lock(folder / LOCK, wait=False, what=f"the run {folder}"):
            for part in folder.iterdir():
                if part.name != LOCK:
                    linked = part.is_symlink()
                    shutil.rmtree(part) if part.is_dir() and not linked else part.unlink()
    for folder in set(stale) & set(gone):
        shutil.rmtree(folder, ignore_errors=True)


def _never_began(folder: Path) -> bool:
    """A run that failed before its first step: nothing of it is worth keeping."""
    info = Run(folder).info
    return info.get("status") == "failed" and "steps" not in info
