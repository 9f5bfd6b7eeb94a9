"""Published settings and where each is from: published/settings.csv, one line per setting.

    system,dataset,objective,round,field,value,source
    bleeker-vsrn,f30k,,,decay_every,10,Bleeker authors' code (as reported): jobs (section 3 says 15)

An empty column holds for all. A row of a study names one system or several (`source: "aoq-bfan
aoq-bfan-equal"`); a later one wins, and within one the line that says more of when it holds. Fields
are those of a recipe, `model.NAME` and `objective.NAME` are parameters of its model and objective.
"""

import csv
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import yaml

from simgrad.core.errors import InputError
from simgrad.objectives import objective
from simgrad.runs.recipe import Recipe


@dataclass(frozen=True)
class Setting:
    """One published setting."""

    field: str
    value: Any
    source: str
    system: str  # "": of all
    when: str = ""  # the objective or round that it is of; "": every one of its system


@cache
def _lines() -> tuple[dict[str, str], ...]:
    path = files("simgrad.studies") / "published" / "settings.csv"
    return tuple(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))


def published_settings(
    source: str, dataset: str | None, recipe: Recipe, round: int = 1
) -> dict[str, Setting]:
    """field -> its published value, for a run of this recipe; `source` names the systems."""
    systems = ["", *source.split()]
    known = {line["system"] for line in _lines()}
    for name in systems:
        if name not in known:
            raise InputError(f"source: settings.csv has no system '{name[:60]}'.")
    when = {"dataset": dataset or "", "objective": objective(recipe.objective).name}
    when["round"] = str(round)
    lines = [
        line
        for line in _lines()
        if line["system"] in systems and all(line[k] in ("", v) for k, v in when.items())
    ]

    def weight(line: dict[str, str]) -> tuple[int, bool, bool, bool]:
        told = (bool(line[key]) for key in ("round", "objective", "dataset"))
        return systems.index(line["system"]), *told  # type: ignore[return-value]

    return {
        line["field"]: Setting(
            line["field"],
            yaml.safe_load(line["value"]),
            line["source"],
            line["system"],
            " ".join(filter(None, (line["objective"], line["round"] and f"round {line['round']}"))),
        )
        for line in sorted(lines, key=weight)
    }
