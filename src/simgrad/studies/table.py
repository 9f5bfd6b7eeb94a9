"""The table of a study: mean ± std over seeds, significance, published numbers beside ours."""

import csv
import io
import json
import math
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from simgrad.core.errors import InputError
from simgrad.core.files import atomic_write
from simgrad.evaluation.uncertainty import Difference, compare_many
from simgrad.studies.study import Study

FORMATS = ("csv", "md", "tex", "json")
Cell = tuple[float, float | None]  # mean, standard deviation over seeds (None: one seed)


@dataclass(frozen=True)
class TableRow:
    """One setting."""

    label: str
    group: str
    seeds: int
    cells: dict[str, Cell]
    best: frozenset[str]  # metrics in which it leads its group
    baseline: bool
    difference: Difference | None  # rsum against the group's baseline
    published: dict[str, Cell]


@dataclass(frozen=True)
class Table:
    """All settings of a study."""

    title: str
    claim: str
    metrics: tuple[str, ...]
    rows: tuple[TableRow, ...]
    published: str = "published"  # what rows of published numbers are called


def build_table(study: Study, metric: str = "rsum") -> Table:
    """The table of what is finished."""
    plan, groups, published = study.plan, study.groups, study.published
    cells: dict[str, dict[str, Cell]] = {}
    for label, runs in groups.items():
        tests = [run.test for run in runs if run.test]
        cells[label] = {m: _cell([t[m] for t in tests if m in t]) for m in plan.metrics if tests}
    rows = []
    for row in plan.rows:
        peers = [r for r in plan.rows if r.group == row.group]
        base = next((r.label for r in peers if r.baseline), None)
        rows.append(
            TableRow(
                row.label,
                row.group,
                len(groups[row.label]),
                cells[row.label],
                _leads(row.label, [r.label for r in peers], cells),
                row.baseline,
                _differences(groups, [r.label for r in peers], base, metric).get(row.label),
                published[row.label],
            )
        )
    dataset = plan.published.get("where", {}).get("dataset")
    name = f"published ({dataset})" if dataset else "published"  # ours may be on other data
    return Table(plan.title, plan.claim, plan.metrics, tuple(rows), name)


def _cell(values: list[float]) -> Cell:
    if not values:
        return math.nan, None
    return fmean(values), stdev(values) if len(values) > 1 else None


def _leads(label: str, peers: list[str], cells: dict[str, dict[str, Cell]]) -> frozenset[str]:
    """Metrics in which a row is the best of its group."""
    found = set()
    for metric, (mean, _) in cells[label].items():
        others = [cells[p][metric][0] for p in peers if metric in cells[p]]
        low_is_good = metric.endswith(("medr", "meanr"))
        if len(others) > 1 and mean == (min(others) if low_is_good else max(others)):
            found.add(metric)
    return frozenset(found)


def _differences(
    groups: dict[str, list[Any]], peers: list[str], base: str | None, metric: str
) -> dict[str, Difference]:
    """Each row of a group against its baseline, corrected for their number."""
    done = {p: [r.ranks() for r in groups[p] if r.test] for p in peers}
    done = {p: ranks for p, ranks in done.items() if ranks}
    if base is None or base not in done or len(done) < 2:
        return {}
    most = min(len(ranks) for ranks in done.values())
    if most == 1:  # not enough seeds to tell systems from seeds: compare single runs
        done = {p: ranks[:1] for p, ranks in done.items()}
    try:
        return compare_many(done, base, metric)
    except InputError:  # runs on different queries: nothing to pair
        return {}


def decimals(metric: str) -> int:
    """Three for what lies between 0 and 1; one for percent, ranks and sums."""
    return 3 if any(part in metric for part in ("map", "mrr", "precision")) else 1


def number(cell: Cell, metric: str) -> str:
    """12.3 ± 0.4"""
    mean, std = cell
    if math.isnan(mean):
        return "–"
    digits = decimals(metric)
    return f"{mean:.{digits}f}" + (f" ± {std:.{digits}f}" if std is not None else "")


def header(metric: str) -> str:
    """i2t_r1 -> i2t R@1"""
    way, _, rest = metric.partition("_")
    if rest.startswith("r") and rest[1:].isdigit():
        return f"{way} R@{rest[1:]}"
    return metric.replace("_", " ")


def significance(difference: Difference | None) -> str:
    """+4.1 [1.2, 7.0] p=0.003"""
    if difference is None:
        return ""
    p = difference.p_holm if difference.p_holm is not None else difference.p
    shown = "p<0.001" if p < 0.001 else f"p={p:.3f}"
    d = difference
    return f"{d.difference:+.1f} [{d.low:.1f}, {d.high:.1f}] {shown}"


def lines(table: Table, bold: tuple[str, str] = ("", "")) -> list[list[str]]:
    """Header and rows as text; published numbers in a row of their own beneath."""
    out = [["", *map(header, table.metrics), "against baseline", "seeds"]]
    for row in table.rows:
        cells = []
        for metric in table.metrics:
            text = number(row.cells.get(metric, (math.nan, None)), metric)
            cells.append(f"{bold[0]}{text}{bold[1]}" if metric in row.best else text)
        versus = "baseline" if row.baseline else significance(row.difference)
        out.append([row.label, *cells, versus, str(row.seeds)])
        if row.published:
            there = [number(row.published.get(m, (math.nan, None)), m) for m in table.metrics]
            out.append([f"  {table.published}", *there, "", ""])
    return out


def markdown(table: Table) -> str:
    """GitHub's table format."""
    head, *rest = lines(table, ("**", "**"))
    text = [f"### {table.title}", ""]
    if table.claim:
        text += [f"The paper: {table.claim}", ""]
    text += ["| " + " | ".join(head) + " |", "|---" + "|---:" * (len(head) - 1) + "|"]
    text += ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rest]
    return "\n".join(text) + "\n"


def latex(table: Table) -> str:
    """A booktabs table."""
    head, *rest = lines(table, ("\\textbf{", "}"))

    def escape(row: list[str]) -> str:
        cells = (c.replace("%", "\\%").replace("_", "\\_").replace("±", "$\\pm$") for c in row)
        return " & ".join(cells) + " \\\\"

    body = "\n".join(escape(row) for row in rest)
    return (
        f"\\begin{{tabular}}{{l{'r' * (len(head) - 1)}}}\n\\toprule\n{escape(head)}\n\\midrule\n"
        f"{body}\n\\bottomrule\n\\end{{tabular}}\n"
    )


def comma_separated(table: Table) -> str:
    """One line per number: the format of the published tables."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(
        ["label", "group", "metric", "mean", "std", "seeds", "published", "published_std"]
    )
    for row in table.rows:
        for metric in table.metrics:
            mean, std = row.cells.get(metric, (math.nan, None))
            there = row.published.get(metric, (None, None))
            values = [row.label, row.group, metric, mean, std, row.seeds, *there]
            writer.writerow(["" if v is None else v for v in values])
    return out.getvalue()


def as_json(table: Table) -> str:
    """Everything, for programs."""
    rows = [
        {
            **{k: getattr(r, k) for k in ("label", "group", "seeds", "cells", "baseline")},
            "best": sorted(r.best),
            "difference": vars(r.difference) if r.difference else None,
            "published": r.published,
        }
        for r in table.rows
    ]
    whole = {"title": table.title, "claim": table.claim, "metrics": table.metrics, "rows": rows}
    return json.dumps(whole, indent=1, ensure_ascii=False) + "\n"


def write_tables(table: Table, folder: Path) -> None:
    """table.csv, .md, .tex and .json."""
    makers = {"csv": comma_separated, "md": markdown, "tex": latex, "json": as_json}
    for kind in FORMATS:
        with atomic_write(folder / f"table.{kind}") as file:
            file.write(makers[kind](table))
