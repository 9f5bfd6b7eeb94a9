"""What systems found on tasks: scores with intervals, a standing for each task and over tasks."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from simgrad.core.tables import Bold, TableFile, html_table, plain_text
from simgrad.evaluation.crossed import Crossed, sureness
from simgrad.evaluation.metrics import p_text
from simgrad.evaluation.standing import SURE, Rival, Standing, stand_crossed
from simgrad.evaluation.wording import basis, lead

POINT = 1.0  # the margin of rankings: a smaller difference does not matter


@dataclass(frozen=True)
class RankedTask:
    """All systems on one task; or over tasks, each of which then is a unit of chance."""

    name: str
    crossed: Mapping[str, Crossed]  # of each system: runs, units, measures
    queries: int
    grouped: bool
    margin: float
    level: float
    notes: tuple[str, ...] = ()
    tasks: int = 0  # over so many; 0: of one

    @property
    def measures(self) -> tuple[str, ...]:
        """The first is the one of the standing."""
        return next(iter(self.crossed.values())).names

    @property
    def scores(self) -> dict[str, dict[str, float]]:
        """Of each system each measure, in points."""
        return {
            name: dict(zip(one.names, one.mean.tolist(), strict=True))
            for name, one in self.crossed.items()
        }

    @cached_property
    def intervals(self) -> dict[str, tuple[float, float]]:
        """Of each system's first measure, on its own; none of a single unit."""
        found = {}
        for name, one in self._first.items():
            mean, reach = one.mean[0], sureness(one).reach(self.level)[0]
            found[name] = (float(max(0, mean - reach)), float(min(100, mean + reach)))
        return found

    @cached_property
    def standing(self) -> Standing:
        """Who leads in the first measure, and how sure that is."""
        units = "tasks" if self.tasks else "groups of queries" if self.grouped else "queries"
        return stand_crossed(self._first, margin=self.margin, units=units)

    @property
    def _first(self) -> dict[str, Crossed]:
        return {
            name: Crossed(one.names[:1], one.values[:, :, :1], one.fold)
            for name, one in self.crossed.items()
        }

    def table(self) -> TableFile:
        """A row for each system, the best first."""
        standing, measures = self.standing, self.measures
        behind = {rival.label: rival for rival in standing.rivals}
        order = sorted(self.scores, key=lambda name: -standing.scores[name].mean)
        best = {m: max(one[m] for one in self.scores.values()) for m in measures}
        columns = ("", measures[0], f"{100 * self.level:g}%", *measures[1:], "gap to the leader")
        rows = []
        for name in order:
            scores, (low, high) = self.scores[name], self.intervals[name]
            cells = [_cell(scores[m], best[m]) for m in measures]
            interval = f"[{low:.1f}, {high:.1f}]"
            rows.append((name, cells[0], interval, *cells[1:], *_gap(behind.get(name), standing)))
        notes = (lead(standing), basis(standing), *(f"{note}." for note in self.notes))
        return TableFile((*columns, "p", ""), tuple(rows), self._title, notes)

    @property
    def _title(self) -> str:
        if self.tasks:
            return f"{self.name}: {self.measures[0]} in points, mean over {self.tasks} tasks"
        groups = f" in {self.standing.images:,} groups" if self.grouped else ""
        return f"{self.name}: {self.measures[0]} in points, {self.queries:,} queries{groups}"

    def to_dict(self) -> dict[str, Any]:
        """Everything, for programs; nothing is rounded."""
        standing = self.standing
        about = {"tasks": self.tasks} if self.tasks else {"queries": self.queries}
        return {
            **about,
            "units": standing.images,
            "scores": self.scores,
            "intervals": self.intervals,
            "leader": standing.leader,
            "margin": self.margin,
            "rivals": [dict(vars(rival)) for rival in standing.rivals],
            "notes": list(self.notes),
        }


def _cell(value: float, best: float) -> str:
    return Bold(f"{value:.1f}") if value == best else f"{value:.1f}"


def _gap(rival: Rival | None, standing: Standing) -> tuple[str, str, str]:
    """Of the leader, whether it is told apart from all others."""
    if rival is not None:
        return rival.gap, p_text(rival.p), rival.word
    told = len(standing.worded("behind")) == len(standing.rivals) > 0
    return "", "", "leads" if told else "highest"


@dataclass(frozen=True)
class Rankings:
    """Systems on tasks, from rankings that somebody made; printed, the tables.

    Examples:
        >>> qrels = {"pets": {"q1": {"cat": 1}, "q2": {"dog": 1}}}
        >>> run = {"pets": {"q1": {"cat": 0.9, "dog": 0.1}, "q2": {"cat": 0.7, "dog": 0.2}}}
        >>> found = simgrad.evaluate_rankings({"mine": run}, qrels, ["RR@10"])
        >>> found.tasks["pets"].scores["mine"]["RR@10"], found.over_tasks
        (75.0, None)
    """

    tasks: Mapping[str, RankedTask]
    level: float

    @cached_property
    def over_tasks(self) -> RankedTask | None:
        """The mean over tasks, with tasks as the unit of chance; None of one task."""
        if len(self.tasks) < 2:
            return None
        each = list(self.tasks.values())
        crossed = {
            name: Crossed(
                one.names,
                np.stack([task.crossed[name].totals for task in each], axis=1) / len(each),
                np.zeros(len(each), dtype=np.int64),
            )
            for name, one in each[0].crossed.items()
        }
        queries = sum(task.queries for task in each)
        notes = ["Tasks as random: what to expect of other tasks like these"]
        least = 2.0 ** (1 - len(each))
        if least > SURE and all(len(one) == 1 for one in crossed.values()):
            notes.append(
                f"Of {len(each)} tasks no test gives p below {least:g}, so nobody is told apart; "
                "six are needed at least"
            )
        return RankedTask(
            "Over tasks",
            crossed,
            queries,
            False,
            each[0].margin,
            self.level,
            tuple(notes),
            len(each),
        )

    def tables(self) -> list[TableFile]:
        """One for each task, and one over tasks."""
        return [task.table() for task in self._every]

    @property
    def _every(self) -> list[RankedTask]:
        over = self.over_tasks
        return [*self.tasks.values(), *([over] if over is not None else [])]

    def to_dict(self) -> dict[str, Any]:
        """Everything, for programs."""
        over = self.over_tasks
        return {
            "level": self.level,
            "tasks": {name: task.to_dict() for name, task in self.tasks.items()},
            "over_tasks": None if over is None else over.to_dict(),
        }

    def records(self) -> list[dict[str, Any]]:
        """For spreadsheets: one record for each task, system and measure."""
        found = []
        for task in self._every:
            rivals = {rival.label: rival for rival in task.standing.rivals}
            for system, scores in task.scores.items():
                for measure, value in scores.items():
                    first = measure == task.measures[0]
                    rival, bounds = rivals.get(system), task.intervals[system]
                    gap = vars(rival) if rival is not None and first else {}
                    found.append(
                        {"task": task.name, "system": system, "measure": measure, "value": value,
                         "low": bounds[0] if first else None,
                         "high": bounds[1] if first else None,
                         **{name: gap.get(key) for name, key in _GAP.items()}}
                    )  # fmt: skip
        return found

    def __str__(self) -> str:
        return "\n\n".join(plain_text(table) for table in self.tables())

    __repr__ = __str__  # what a prompt shows

    def _repr_html_(self) -> str:
        return "\n".join(html_table(table) for table in self.tables())


_GAP = {"gap": "behind", "gap_low": "low", "gap_high": "high", "p": "p",
        "p_equivalent": "p_equivalent", "word": "word"}  # fmt: skip
