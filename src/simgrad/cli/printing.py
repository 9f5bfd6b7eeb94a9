"""What `simgrad evaluate` found: as tables for the terminal and for papers, and as data."""

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from simgrad.core.console import print_table, say
from simgrad.core.errors import InputError
from simgrad.core.named_files import write_named_csv, write_named_json, write_named_tables
from simgrad.core.tables import TEXT_SUFFIXES, Bold, TableFile
from simgrad.evaluation import (
    METRICS,
    Comparison,
    Estimate,
    Metrics,
    compare_cross_ranks,
    compare_with,
    cross_ranks,
    estimates,
    headlines,
    histogram,
    metric_of,
)
from simgrad.evaluation.differences import signed
from simgrad.evaluation.metrics import interval_text, metrics_table, p_text

OUTPUTS = (".json", ".csv", *TEXT_SUFFIXES)


@dataclass(frozen=True)
class Evaluated:
    """One system: a run, or several seeds."""

    label: str  # A, B, ...; or the name it was given
    name: str  # where it came from
    runs: tuple[Metrics, ...]
    level: float
    graded: dict[str, float] = field(default_factory=dict)  # by people, or by another truth

    @cached_property
    def estimates(self) -> dict[str, Estimate]:
        """Every metric, with its interval."""
        tables = [run.to_dict() for run in self.runs]
        return estimates(tables, [run.ranks for run in self.runs], level=self.level)

    @property
    def values(self) -> dict[str, float]:
        return {name: one.mean for name, one in self.estimates.items()}

    @property
    def bounds(self) -> dict[str, tuple[float, float]]:
        found = self.estimates.items()
        return {n: (e.low, e.high) for n, e in found if e.low is not None and e.high is not None}

    def to_dict(self) -> dict[str, Any]:
        """The metrics by name, and what else there is to know."""
        seeds = {"seeds": len(self.runs)} if len(self.runs) > 1 else {}
        about = {"name": self.name, "used": self.runs[0].used, **seeds}
        return {**self.values, **self.graded, "intervals": self.bounds, **about}


@dataclass(frozen=True)
class Evaluation:
    """All systems; the others are compared with the first."""

    systems: tuple[Evaluated, ...]
    level: float

    @cached_property
    def comparisons(self) -> dict[str, Comparison]:
        """By label."""
        if len(self.systems) < 2:
            return {}
        runs = {system.label: list(system.runs) for system in self.systems}
        return compare_with(runs, self.systems[0].label, level=self.level)

    def tables(self, named: bool = True) -> list[TableFile]:
        """What is printed, and written to .md, .tex and .html files."""
        if len(self.systems) == 1:
            one = self.systems[0]
            title = one.name if len(one.runs) == 1 else f"{one.name}: mean of {len(one.runs)} seeds"
            found = [metrics_table(one.values, one.bounds, level=self.level, title=title)]
        else:
            found = [self._overview(named), *(c.table() for c in self.comparisons.values())]
        return [*found, *self._cross_ranks(), *self._graded()]

    def _overview(self, named: bool) -> TableFile:
        """A row for each system, as papers print them, and how its rsum differs from the first."""
        names = [n for n in headlines() if all(n in s.estimates for s in self.systems)]
        first = self.systems[0].label
        percent = f"{100 * self.level:g}%"
        columns = ("", *(metric_of(n).heading for n in names), f"rsum - {first}", percent, "p")
        best = {n: metric_of(n).best(s.values[n] for s in self.systems) for n in names}
        rows = []
        for system in self.systems:
            alone = system.label == system.name or not named
            row = [system.label if alone else f"{system.label}: {system.name}"]
            for n in names:
                text = metric_of(n).format(system.values[n])
                row.append(Bold(text) if system.values[n] == best[n] else text)
            if system.label in self.comparisons:
                gap = self.comparisons[system.label]["rsum"]
                interval = interval_text(metric_of("rsum"), (gap.low, gap.high))
                row += [signed(gap), interval, p_text(gap.corrected)]
            rows.append((*row, *[""] * (len(columns) - len(row))))
        corrected = len(self.systems) > 2
        notes = ("p after Holm's correction for the number of systems.",) if corrected else ()
        return TableFile(columns, tuple(rows), self.systems[0].runs[0].used, notes)

    def _cross_ranks(self) -> list[TableFile]:
        """The histogram of cross-retrieval ranks, where there is one run of each."""
        ranks = [system.runs[0].ranks for system in self.systems if len(system.runs) == 1]
        title = "cross-retrieval rank of the true pairs"
        if len(self.systems) == len(ranks) == 1:
            counts = histogram(cross_ranks(ranks[0]))
            row = ("pairs", *(f"{count:,}" for count in counts.values()))
            return [TableFile(("rank", *counts), (row,), title)]
        if len(self.systems) == len(ranks) == 2:
            a, b = (system.label for system in self.systems)
            found = compare_cross_ranks(ranks[0], ranks[1])
            names = tuple(found.first)
            rows = (
                (a, *(f"{found.first[n]:,}" for n in names)),
                (b, *(f"{found.second[n]:,}" for n in names)),
                (f"{b} - {a}", *(f"{found.second[n] - found.first[n]:+,}" for n in names)),
            )
            note = (
                f"{b} ranks {found.better:,} pairs better, {found.worse:,} worse, "
                f"{found.same:,} the same."
            )
            return [TableFile(("rank", *names), rows, title, (note,))]
        return []

    def _graded(self) -> list[TableFile]:
        names = list(dict.fromkeys(name for system in self.systems for name in system.graded))
        if not names:
            return []
        rows = tuple(
            (n, *(metric_of(n).format(s.graded.get(n, float("nan"))) for s in self.systems))
            for n in names
        )
        heads = [system.label for system in self.systems] if len(self.systems) > 1 else ["value"]
        return [TableFile(("graded truth", *heads), rows)]

    def to_dict(self) -> dict[str, Any]:
        """For programs: one system's metrics; or all systems, and the others against the first."""
        if len(self.systems) == 1:
            return self.systems[0].to_dict()
        return {
            "systems": {system.label: system.to_dict() for system in self.systems},
            "comparisons": [
                {"first": one.names[0], "second": one.names[1], "level": one.level,
                 "method": one.method, "metrics": one.to_dict()}
                for one in self.comparisons.values()
            ],
        }  # fmt: skip

    def records(self) -> list[dict[str, Any]]:
        """For spreadsheets: one record for each system and metric."""
        found = []
        for system in self.systems:
            versus = self.comparisons.get(system.label)
            for name, one in system.estimates.items():
                gap = None if versus is None else versus.get(name)
                against = self.systems[0].label if gap is not None else None
                difference = {
                    "difference": getattr(gap, "difference", None),
                    "difference_low": getattr(gap, "low", None),
                    "difference_high": getattr(gap, "high", None),
                    "p": getattr(gap, "p", None),
                    "p_holm": getattr(gap, "p_holm", None),
                }
                found.append(
                    {"system": system.label, "name": system.name, "seeds": len(system.runs),
                     "metric": name, "value": one.mean, "std": one.deviation, "low": one.low,
                     "high": one.high, "against": against, **difference}
                )  # fmt: skip
        return found

    def print(self) -> None:
        """On the terminal."""
        for system in self.systems:
            if len(self.systems) > 1 and system.label != system.name:
                say(f"{system.label}: {system.name}")
        if len(self.systems) == 1:
            say(self.systems[0].runs[0].used)
        for table in self.tables(named=False):
            say("")
            print_table(table.columns, table.rows, title=table.title or None)
            say(*table.notes)

    def write(self, path: Path) -> None:
        """By the suffix: .json, .csv, .md, .tex or .html."""
        if path.suffix == ".json":
            write_named_json(path, self.to_dict())
        elif path.suffix == ".csv":
            write_named_csv(path, self.records())
        else:
            write_named_tables(path, self.tables())


def check_output(path: Path) -> None:
    """Before anything is computed."""
    if path.suffix not in OUTPUTS:
        raise InputError(f"{path}: results are written as {', '.join(OUTPUTS)}; name one of these.")


def list_metrics() -> list[dict[str, Any]]:
    """Every declared metric, yours among them."""
    ranked, others, told = [], [], []
    for declared in METRICS:
        at = declared.parameters[0].default if declared.parameters else (None,)
        one = declared.factory(at[0])
        name = declared.name.replace("{k}", "K")
        ways = [f"i2t_{name}", f"t2i_{name}"] if one.directions and one.each else []
        ways += [name] if one.both or one.each is None else []
        told.append({"names": ways, "better": one.better, "description": declared.description})
        ks = f" (K = {', '.join(map(str, at))})" if declared.parameters and one.each else ""
        if one.each is None:
            others.append((name, declared.description))
        else:
            ranked.append((", ".join(ways), one.better, f"{declared.description}{ks}"))
    print_table(("metric", "better", "what it is"), ranked)
    say("")
    print_table(("from other sources", "what it is"), others)
    say(
        "",
        "i2t_: an image looks for its captions; t2i_: a caption looks for its image. Names without "
        "a direction combine both. --recalls adds more K of R@K.",
        "To add a metric, declare it in a file and use `simgrad --with FILE.py`: docs/own.md.",
    )
    return told
