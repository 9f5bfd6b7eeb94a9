"""How settings were chosen: what each budget buys, what was chosen, and what mattered.

From the files that a search leaves behind (`simgrad.studies.tuned`); the search itself is not
needed.

The expected best of so many trials: Dodge, Gururangan, Card, Schwartz, Smith: Show your work:
improved reporting of experimental results, EMNLP 2019. Of V independent trials with scores
v_1 <= ... <= v_V, the best of n has the expectation
sum over i of v_i ((i / V)^n - ((i - 1) / V)^n).
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from simgrad.core.spec import Range, print_value
from simgrad.evaluation import metric_of
from simgrad.pages.blocks import (
    Block,
    BodyRow,
    Callout,
    Cell,
    Column,
    Details,
    Figure,
    Figures,
    Key,
    Paragraph,
    Section,
    Table,
)
from simgrad.pages.charts import Curve, line_chart
from simgrad.pages.glossary import explained
from simgrad.report.material import Material, System
from simgrad.studies.tuned import validation_of

Record = dict[str, Any]
_FEWEST = 4  # trials of a row; of fewer, the line of what to expect is a dot or two


def tuning(material: Material) -> Section | None:
    """Nothing where nothing was tuned."""
    shown = [(s, one) for s in material.systems for one in s.tuned if one["chosen"]]
    if not shown:
        return None
    select = metric_of(shown[0][1]["select"]).title
    words = (
        "Every row was tuned with the same number of trials. Its setting was chosen on the "
        f"{{validation}} split by {select}; no trial was tested. Where lines cross, which row is "
        "best depends on how much one searches."
    )
    if any("repeats" in record["chosen"] for _, record in shown):
        words += (
            " The best few settings of each row were trained with more seeds, and the one with the "
            "best mean was chosen: one trial may be luck."
        )
    if len({len(record["tried"]) for _, record in shown}) > 1:
        words += " Where the best lay at the end of a range, a few more looked beyond."
    if any(len(system.tuned) > 1 for system, _ in shown):
        words += " All of it was done several times, each time with other settings and seeds."
    keys = [Key(s.label, material.colour(s)) for s in material.systems if s.tuned]
    charts = [
        _chart(
            material, shown, "best-so-far", f"best {select} so far", _scores, best_so_far,
            "What this search had found by then; a line that still rises might rise further.",
        ),
    ]  # fmt: skip
    if min(len(record["tried"]) for _, record in shown) >= _FEWEST:
        expected = _chart(
            material, shown, "expected-best", f"expected best {select}", _independent,
            expected_best, "The best score to expect after trying N random settings.",
        )  # fmt: skip
        charts.insert(0, expected)
    blocks: list[Block] = [Paragraph(explained(words)), Figures(charts, keys)]
    edges = [f"{_name(system, one)}: {edge}." for system, one in shown for edge in one["edges"]]
    if edges:
        blocks.append(Callout("Chosen at the end of a range: a better one may lie beyond", edges))
    blocks.append(_chosen(material, shown))
    if any(record["importance"] for _, record in shown):
        blocks.append(_mattered(material, shown))
    blocks.append(Details("Every trial", [_trials(material, shown)]))
    return Section("tuning", "How settings were chosen", "Settings", blocks)


def _scores(record: Record) -> list[float]:
    return [one["score"] for one in record["tried"] if one["score"] is not None]


def _independent(record: Record) -> list[float]:
    """Scores of trials that learned nothing from others."""
    return [
        one["score"]
        for one in record["tried"]
        if one["score"] is not None and one["how"] == "quasi-random"
    ]


def _chart(
    material: Material,
    shown: Sequence[tuple[System, Record]],
    name: str,
    title: str,
    scores: Callable[[Record], list[float]],
    curve: Callable[[list[float]], list[float]],
    see: str,
) -> Figure:
    curves, ends = [], []
    for system in material.systems:
        lines = []
        for record in (one for other, one in shown if other is system):
            values = curve(scores(record))
            lines.append([(float(n), value) for n, value in enumerate(values, 1)])
            if values:
                ends.append(f"{_name(system, record, system.label)} has {values[0]:.4g} after 1 "
                            f"and {values[-1]:.4g} after {len(values)}")  # fmt: skip
        if lines:
            curves.append(Curve.of(system.label, material.colour(system), lines))
    told = f"{title} by number of trials. " + "; ".join(ends)
    return Figure(name, title, line_chart(curves, title, "trials", from_zero=False), told, see)


def _chosen(material: Material, shown: Sequence[tuple[System, Record]]) -> Table:
    keys = list(dict.fromkeys(key for _, record in shown for key in record["space"]))
    columns = [Column("", numeric=False), *(Column(_bare(key)) for key in keys)]
    columns += [Column("validation"), Column("trials"), Column("epochs"), Column("minutes")]
    rows = []
    for system, record in shown:
        best, budget = record["chosen"], record["budget"]
        cells = [Cell(_name(system, record), key=True, colour=material.colour(system))]
        for key in keys:
            where = record["space"].get(key)
            value = print_value(best["setting"][key]) if key in best["setting"] else "–"
            cells.append(Cell(value, "" if where is None else _printed(where)))
        cells += [Cell(f"{validation_of(best):.1f}", _each(best)), Cell(str(budget["trials"]))]
        cells += [Cell(f"{budget['epochs']:,.0f}"), Cell(f"{budget['seconds'] / 60:.1f}")]
        rows.append(BodyRow(cells))
    caption = "Beneath each value: where it was searched. Minutes of all trials together."
    if any("repeats" in record["chosen"] for _, record in shown):
        caption += " Beneath the validation score: its seeds, of which it is the mean."
    return Table("Settings that were chosen", columns, rows, caption)


def _mattered(material: Material, shown: Sequence[tuple[System, Record]]) -> Table:
    keys = list(dict.fromkeys(key for _, record in shown for key in record["importance"]))
    columns = [Column("", numeric=False), *(Column(_bare(key)) for key in keys)]
    rows = []
    for system, record in shown:
        shares = record["importance"]
        cells = [Cell(_name(system, record), key=True, colour=material.colour(system))]
        top = max(shares.values(), default=0.0)
        for key in keys:
            share = shares.get(key)
            text = "–" if share is None else f"{100 * share:.0f}%"
            cells.append(Cell(text, strong=share is not None and share == top))
        rows.append(BodyRow(cells))
    caption = (
        "Share of what tells the better trials from the others (PED-ANOVA). From few trials it is "
        "a hint, no more."
    )
    return Table("Which settings mattered", columns, rows, caption)


def _trials(material: Material, shown: Sequence[tuple[System, Record]]) -> Table:
    columns = [Column("", numeric=False), Column("trial"), Column("found by", numeric=False)]
    columns += [Column("setting", numeric=False), Column("validation")]
    rows = []
    for system, record in shown:
        for one in record["tried"]:
            score = "diverged"
            if one["score"] is not None:
                score = _each(one) or f"{one['score']:.1f}"
            setting = ", ".join(f"{_bare(k)}={print_value(v)}" for k, v in one["setting"].items())
            best = one["number"] == record["chosen"]["number"]
            first = Cell(_name(system, record), key=True, colour=material.colour(system))
            cells = [first, Cell(str(one["number"])), Cell(one["how"])]
            rows.append(BodyRow([*cells, Cell(setting), Cell(score, strong=best)]))
    return Table("Trials", columns, rows, "In the order in which they were asked for.")


def _name(system: System, record: Record, label: str = "") -> str:
    """The row; with replicates, which one."""
    label = label or system.label
    number = record["row"].rpartition("-r")[2]
    return f"{label}, replicate {number}" if len(system.tuned) > 1 else label


def _each(one: Record) -> str:
    """The scores of a setting that was tried with several seeds."""
    scores = [one["score"], *one["repeats"]] if "repeats" in one else []
    return " · ".join(f"{score:.1f}" for score in scores)


def _bare(key: str) -> str:
    return key.partition(".")[2] or key


def _printed(where: Any) -> str:
    if isinstance(where, dict) and "crossed" in where:
        where = where["crossed"]
    if isinstance(where, dict):
        return str(Range(where["low"], where["high"], where["log"]))
    return " · ".join(map(print_value, where))


def expected_best(scores: Sequence[float]) -> list[float]:
    """Of 1, 2, ..., all trials."""
    ordered = np.sort(np.asarray(scores, dtype=np.float64))
    count = len(ordered)
    share = np.arange(count + 1) / max(1, count)
    return [float(ordered @ np.diff(share**n)) for n in range(1, count + 1)]


def best_so_far(scores: Sequence[float]) -> list[float]:
    """In the order in which they were tried."""
    return np.maximum.accumulate(np.asarray(scores, dtype=np.float64)).tolist() if scores else []
