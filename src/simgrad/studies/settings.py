"""Published settings and where each is from: published/settings.csv, one line per setting.

    system,dataset,objective,round,field,value,source
    bleeker-vsrn,f30k,,,decay_every,10,Bleeker authors' code (as reported): jobs (section 3 says 15)

An empty column holds for all. A row of a study names one system or several (`source: "aoq-bfan
aoq-bfan-equal"`); a later one wins, and within one the line that says more of when it holds. Fields
are those of a recipe, `model.NAME` and `objective.NAME` are parameters of its model and objective.
They also say whether a run's COCOS may be compared with Bleeker & de Rijke's tables 2 to 4.
"""

import csv
from dataclasses import dataclass, fields
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml

from simgrad.analysis.published import PublishedRow
from simgrad.core.errors import InputError
from simgrad.core.spec import print_value, split_spec
from simgrad.models import models
from simgrad.objectives import objective, objectives
from simgrad.retriever.counting import RunCounts
from simgrad.runs.recipe import Recipe

# What decides where and how a run is computed, or what a row is about; the rest is a setting.
NOT_SETTINGS = {
    "data", "features", "skip", "seed", "objective", "model", "second_round", "device", "workers",
    "threads", "graphs", "checkpoint_seconds", "attention_every", "log",
}  # fmt: skip


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


def departures(
    source: str, dataset: str | None, recipe: Recipe, round: int = 1, *, varied: bool = True
) -> dict[str, tuple[Any, Setting | None]]:
    """field -> its value in a recipe and the published one, where they differ.

    `varied`: what a row says of its objective is what its table varies, so it is compared only
    where its own system has a line for it.
    """
    expected = published_settings(source, dataset, recipe, round)
    wrong: dict[str, tuple[Any, Setting | None]] = {}
    for field, value in _settings_of(recipe).items():
        known = expected.get(field)
        if known is None or _plain(field, known.value) != _plain(field, value):
            wrong[field] = value, known
    _, given = split_spec(recipe.objective, "objective")
    for key, text in given.items():
        known, value = expected.get(f"objective.{key}"), yaml.safe_load(text)
        if known is not None and (known.system or not varied) and known.value != value:
            wrong[f"objective.{key}"] = value, known
    return wrong


def _settings_of(recipe: Recipe) -> dict[str, Any]:
    """Every setting of a recipe, with those of its model and the defaults of its objective."""
    found = {k: v for k, v in recipe.to_dict().items() if k not in NOT_SETTINGS}
    config = models.parse(recipe.model)
    found["model"] = config.name
    found |= {f"model.{each.name}": getattr(config, each.name) for each in fields(config)}
    name, given = split_spec(recipe.objective, "objective")
    for parameter in objectives[name].parameters:
        if parameter.name not in given:
            found[f"objective.{parameter.name}"] = parameter.default
    return found


def _plain(field: str, value: Any) -> Any:
    """A vocabulary is known by its name, wherever it lies."""
    return Path(value).name if field == "vocabulary" and value else value


_EPSILON = 0.01  # the paper's


def unlike(run: RunCounts, row: PublishedRow) -> dict[str, str]:
    """What is not as in the published row, in words; empty: both count the same thing.

    Data, model, objective and every setting of training (published/settings.csv), and what was
    counted: the whole training set, with the paper's epsilon.
    """
    found = {}
    if run.dataset != row.dataset:
        found["data"] = f"{run.dataset or 'other'} (paper {row.dataset})"
    source = f"bleeker-{row.method.lower()}"
    for field, (value, known) in departures(source, row.dataset, run.recipe, varied=False).items():
        paper = "not set" if known is None else print_value(known.value)
        found[field] = f"{print_value(value)} (paper {paper})"
    if run.epsilon != _EPSILON:
        found["counted"] = f"above {run.epsilon:g} (paper {_EPSILON:g})"
    if not run.whole:
        found["counted on"] = "a part (paper: the training set)"
    return found
