"""The table of a study: mean ± std over seeds, significance, published numbers beside ours."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from simgrad.core import tables
from simgrad.core.errors import InputError
from simgrad.core.files import write_json
from simgrad.core.spec import print_value
from simgrad.core.tables import Bold
from simgrad.evaluation import (
    Difference,
    Estimate,
    Ranks,
    against,
    estimates,
    metric_of,
)
from simgrad.evaluation.comparison import with_spread
from simgrad.evaluation.standing import Outcome
from simgrad.evaluation.wording import how_it_ended, looked_before
from simgrad.runs.data import tested_words
from simgrad.runs.outcome import ended_draws, outcomes_of, tested_metrics
from simgrad.studies.papers import beside_rows, timings
from simgrad.studies.space import printed as print_setting
from simgrad.studies.study import Study
from simgrad.studies.tune import Setting
from simgrad.studies.tuned import Tuning, validation_of

Published = tuple[float, float | None]  # mean, and standard deviation where it was printed
_UNKNOWN = Estimate(math.nan)


@dataclass(frozen=True)
class Found:
    """What tuning found for a row, and with which budget."""

    setting: str
    trials: int
    epochs: int
    score: float  # on validation
    edges: tuple[str, ...]  # what lies at an end of its range


@dataclass(frozen=True)
class TableRow:
    """One setting."""

    label: str
    group: str
    seeds: int
    cells: dict[str, Estimate]
    best: frozenset[str]  # metrics in which it leads its group
    baseline: bool
    difference: Difference | None  # rsum against the group's baseline
    published: dict[str, Published]
    beside: str = "published"  # what that row is called; it says where the test was another
    outcomes: tuple[Outcome, ...] = ()  # how each run ended
    tuned: Found | None = None


@dataclass(frozen=True, repr=False)
class StudyTable(tables.Tabular):
    """All settings of a study."""

    title: str
    claim: str
    metrics: tuple[str, ...]
    rows: tuple[TableRow, ...]
    tested: tuple[str, ...] = ()  # what the tests ranked: data, split, images, protocol
    deviation: str | None = None  # what ± is in the published rows
    short: bool = False  # too short a training to say who is ahead
    looked: tuple[str, ...] = ()  # with how many draws it was looked at before it got more

    def as_table(self) -> tables.TableFile:
        """As text; published numbers in a row of their own beneath."""
        return printed(self)

    def to_dict(self) -> dict[str, Any]:
        """Everything, for programs."""
        rows = [
            {
                **{k: getattr(r, k) for k in ("label", "group", "seeds", "baseline")},
                "cells": {m: (cell.mean, cell.deviation) for m, cell in r.cells.items()},
                "intervals": {m: (cell.low, cell.high) for m, cell in r.cells.items()},
                "best": sorted(r.best),
                "difference": vars(r.difference) if r.difference else None,
                "published": r.published,
                "comparable": r.beside == "published",
                "outcomes": r.outcomes,
                "tuned": vars(r.tuned) if r.tuned else None,
            }
            for r in self.rows
        ]
        return {
            "title": self.title,
            "tested": self.tested,
            "claim": self.claim,
            "metrics": self.metrics,
            "rows": rows,
        }

    def to_frame(self) -> Any:
        """A pandas DataFrame, one line for each row and metric; no columns without a number."""
        return tables.frame(records(self), "label").dropna(axis="columns", how="all")

    @property
    def head(self) -> str:
        """The title, and what was tested."""
        return " · ".join((self.title, *self.tested))

    @property
    def shown(self) -> tuple[str, ...]:
        """The metrics as they are printed, on a terminal and in files: recalls, then the rest."""
        return tuple(sorted(self.metrics, key=lambda m: not metric_of(m).label.startswith("R@")))

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader should know, beneath the table."""
        found = self._failures
        found += [f"The claim: {self.claim}"] if self.claim else []
        if self.short:
            found.append("Too short a training to say who leads: no difference is tested.")
        elif self.looked:
            found.append(looked_before(self.looked))
        if any(row.beside != "published" for row in self.rows):
            found.append(
                "Published rows marked NOT like ours are of other data or of another protocol: "
                "they show what the paper printed, not what ours should be."
            )
        if self.deviation == "population" and any(row.seeds > 1 for row in self.rows):
            found.append(
                "± of ours is the sample deviation over seeds (n - 1), of the paper the population "
                "deviation (n): with 5 seeds ours is larger by a factor of 1.12."
            )
        return tuple(found)

    @property
    def _failures(self) -> list[str]:
        """Which rows failed: with every seed, so that nothing is fair about them, or with some."""
        never: list[str] = []
        partly: list[str] = []
        for row in self.rows:
            if any(one != "trained" for one in row.outcomes):
                told = how_it_ended(row.label, row.outcomes)
                (partly if "trained" in row.outcomes else never).append(told)
        found = [f"No fair comparison: {'; '.join(never)}."] if never else []
        return found + ([f"Failed, which counts: {'; '.join(partly)}."] if partly else [])


def build_table(study: Study) -> StudyTable:
    """The table of what is finished; rows of a group are compared with its baseline in rsum."""
    plan, groups = study.plan, study.ended
    published, timed = beside_rows(plan.published, plan.rows), timings(study)
    tested = {label: [run for run in runs if run.test] for label, runs in groups.items()}
    (_, ranks), cells = ended_draws(study.draws, apart=study.new_splits), {}
    for label, draws in study.draws.items():
        asked, like = [], [run for draw in ranks[label] for run in draw]
        for runs in draws:
            metrics = tested_metrics(runs, like)
            tables = [{**one, **timed.get(run.path, {})} for run, one in metrics]
            asked += [_among(plan.metrics, _mean_of(tables))] if tables else []
        found = estimates(asked, [] if study.new_splits else ranks[label])
        cells[label] = {m: found.get(m, _UNKNOWN) for m in plan.metrics if asked}
    peers: dict[str, list[str]] = {}
    baselines: dict[str, str] = {}
    for row in plan.rows:
        peers.setdefault(row.group, []).append(row.label)
        if row.baseline:
            baselines.setdefault(row.group, row.label)
    differences: dict[str, Difference] = {}
    outcomes = {x: outcomes_of(runs) for x, runs in groups.items()}
    for group, base in ({} if plan.short else baselines).items():
        # Nothing is fair about a row none of whose runs trained: no difference and no p.
        some = {p: ranks[p] for p in peers[group] if "trained" in outcomes[p]}
        differences |= _differences(some, base, study.new_splits)
    tuned = {row.name: _found(study.tunings_of(row)) for row in plan.rows}
    rows = tuple(
        TableRow(
            row.label,
            row.group,
            len(groups[row.label]),
            cells[row.label],
            _leads(row.label, peers[row.group], cells),
            row.baseline,
            differences.get(row.label),
            published[row.label].cells,
            published[row.label].name(plan.recipe(row, 0)),
            outcomes[row.label],
            tuned.get(row.name),
        )
        for row in plan.rows
    )
    ended = [run.info.get("tested") for runs in tested.values() for run in runs]
    told = tuple(tested_words([one for one in ended if one]))
    if len(plan.replicates) > 1:
        where = "each on a new split" if study.new_splits else "all on the same split"
        told += (f"{len(plan.replicates)} replicates, {where}",)
    deviation = plan.published.get("deviation")
    return StudyTable(
        plan.title, plan.claim, plan.metrics, rows, told, deviation, plan.short, study.looked
    )


def _among(metrics: Sequence[str], values: dict[str, float]) -> dict[str, float]:
    """What the table shows; intervals of medians, which no table shows unasked, take long."""
    return {metric: values[metric] for metric in metrics if metric in values}


def _found(tunings: Sequence[Tuning]) -> Found | None:
    """What the searches of a row found: with replicates, what their settings lie between."""
    records = [record for t in tunings if (record := t.record) is not None and record["chosen"]]
    if not records:
        return None
    several = len(tunings) > 1
    return Found(
        _between([record["chosen"]["setting"] for record in records]),
        sum(record["budget"]["trials"] for record in records),
        sum(int(record["budget"]["epochs"]) for record in records),
        math.fsum(validation_of(record["chosen"]) for record in records) / len(records),
        tuple(
            f"replicate {record['row'].rpartition('-r')[2]}: {edge}" if several else edge
            for record in records
            for edge in record["edges"]
        ),
    )


def _between(settings: Sequence[Setting]) -> str:
    """One setting, or what several lie between: lr=0.001 to 0.003, tau=0.07"""
    if len(settings) == 1:
        return print_setting(settings[0])
    shown = {}
    for key in settings[0]:
        values = list({repr(one[key]): one[key] for one in settings}.values())
        numbers = all(isinstance(value, int | float) for value in values)
        ends = [min(values), max(values)] if numbers and len(values) > 1 else values
        shown[key] = (" to " if numbers else " or ").join(map(print_value, ends))
    return print_setting(shown)


def _leads(label: str, peers: list[str], cells: dict[str, dict[str, Estimate]]) -> frozenset[str]:
    """Metrics in which a row is the best of its group."""
    found = set()
    for metric, cell in cells[label].items():
        others = [cells[p][metric].mean for p in peers if metric in cells[p]]
        if len(others) > 1 and cell.mean == metric_of(metric).best(others):
            found.add(metric)
    return frozenset(found)


def _mean_of(tables: Sequence[dict[str, float]]) -> dict[str, float]:
    """The mean of each number over the runs of one draw."""
    names = dict.fromkeys(name for table in tables for name in table)
    return {n: fmean(table[n] for table in tables if n in table) for n in names}


def _differences(
    ranks: dict[str, list[list[Ranks]]], base: str, new_images: bool
) -> dict[str, Difference]:
    """Each row of a group minus its baseline."""
    done = with_spread(ranks)
    if base not in done or len(done) < 2:
        return {}
    try:
        return against(done, base, new_images=new_images)
    except InputError:  # runs on different queries: nothing to pair
        return {}


def number(cell: Estimate | Published, metric: str) -> str:
    """12.3 ± 0.4"""
    mean, std = (cell.mean, cell.deviation) if isinstance(cell, Estimate) else cell
    record = metric_of(metric)
    return record.format(mean) + (f" ± {record.format(std)}" if std is not None else "")


def header(metric: str) -> str:
    """i2t_r1 -> i2t R@1"""
    return metric_of(metric).heading


def significance(difference: Difference | None) -> str:
    """+4.1 [1.2, 7.0] p=0.003"""
    return "" if difference is None else str(difference)


def printed(table: StudyTable) -> tables.TableFile:
    """As text; published numbers in a row of their own beneath."""
    rows = []
    for row in table.rows:
        cells = []
        for metric in table.shown:
            text = number(row.cells.get(metric, _UNKNOWN), metric)
            cells.append(Bold(text) if metric in row.best else text)
        versus = "baseline" if row.baseline else significance(row.difference)
        rows.append((row.label, *cells, versus, str(row.seeds)))
        if row.published:
            there = [number(row.published.get(m, (math.nan, None)), m) for m in table.shown]
            rows.append((f"  {row.beside}", *there, "", ""))
    columns = ("", *map(header, table.shown), "against baseline", "seeds")
    return tables.TableFile(columns, tuple(rows), table.head, table.notes)


def printed_tuning(table: StudyTable) -> tables.TableFile | None:
    """The setting that validation chose for each row, its budget, and what came of it."""
    if not any(row.tuned for row in table.rows):
        return None
    rows, notes = [], []
    for row in table.rows:
        versus = "baseline" if row.baseline else significance(row.difference) or "–"
        if row.tuned is None:
            rows.append((row.label, "–", "–", "–", "–", versus))
            continue
        budget = f"{row.tuned.trials} trials, {row.tuned.epochs:,} epochs"
        cell, rsum = row.cells.get("rsum", _UNKNOWN), metric_of("rsum")
        score = rsum.format(cell.mean)
        if cell.low is not None and cell.high is not None:
            score += f" [{rsum.format(cell.low)}, {rsum.format(cell.high)}]"
        cells = (row.tuned.setting, budget, f"{row.tuned.score:.1f}", score, versus)
        rows.append((row.label, *cells))
        notes += [f"{row.label}: {edge}: a better one may lie beyond." for edge in row.tuned.edges]
    columns = (
        "", "setting", "budget", "validation", "test rsum [95%]", "against baseline",
    )  # fmt: skip
    title = "Chosen by validation, with the same number of trials for each"
    if len({row.tuned.trials for row in table.rows if row.tuned}) > 1:
        title += ", and more where a range was extended"
    return tables.TableFile(columns, tuple(rows), title, tuple(notes))


def records(table: StudyTable) -> list[dict[str, Any]]:
    """One record for each number: the format of the published tables, and an interval."""
    found = []
    for row in table.rows:
        for metric in table.metrics:
            cell = row.cells.get(metric, _UNKNOWN)
            mean, std = row.published.get(metric, (None, None))
            found.append(
                {"label": row.label, "group": row.group, "metric": metric, "mean": cell.mean,
                 "std": cell.deviation, "low": cell.low, "high": cell.high, "seeds": row.seeds,
                 "published": mean, "published_std": std,
                 "comparable": None if mean is None else row.beside == "published"}
            )  # fmt: skip
    return found


def write_tables(table: StudyTable, folder: Path) -> None:
    """table.csv, .md, .tex and .json."""
    tables.write_csv(folder / "table.csv", records(table))
    shown = [printed(table), printed_tuning(table)]
    for suffix in (".md", ".tex"):
        tables.write_tables(folder / f"table{suffix}", [one for one in shown if one is not None])
    write_json(folder / "table.json", table.to_dict())
