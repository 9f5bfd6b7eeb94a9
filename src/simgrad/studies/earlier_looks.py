"""Looking again: a study that was looked at, got more seeds or searches, and is looked at anew.

Whoever goes on until somebody is told apart tells more apart by luck than each p says. So a folder
keeps at which numbers of draws its runs could be compared before it was extended, and every page
says it.
"""

from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

from simgrad.core.derived import read_checked, write_checked
from simgrad.studies.plan import Plan

if TYPE_CHECKING:
    from simgrad.studies.study import Study

LOOKS = "looks.json"


def looks_of(folder: Path) -> tuple[str, ...]:
    """Earlier looks in words: 3 seeds (2026-11-18)"""
    path = folder / LOOKS
    return tuple(read_checked(path)["looks"]) if path.is_file() else ()


def note_look(study: "Study", new: Plan) -> None:
    """Before a study becomes a larger one: what could be compared until now."""
    counts = [len(draws) for draws in study.draws.values() if draws]
    if len(counts) < 2 or _draws(new) <= _draws(study.plan):
        return
    unit = "searches" if len(study.plan.replicates) > 1 else "seeds"
    told = f"{max(counts)} {unit} ({date.today().isoformat()})"
    looks = dict.fromkeys([*looks_of(study.path), told])  # once, where a kill came before the plan
    write_checked(study.path / LOOKS, {"looks": list(looks)})


def _draws(plan: Plan) -> int:
    return len(plan.replicates) if len(plan.replicates) > 1 else len(plan.seeds)
