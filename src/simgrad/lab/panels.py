"""What the pages of a run, of a study and of found pairs show: tables, charts, triplet diagrams.

Found pairs are those of RUN/false-negatives, which `simgrad false-negatives RUN` writes. They are
asked one at a time: is this caption true of this picture? Every answer is kept at once.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from simgrad.core.errors import InputError
from simgrad.data.found import (
    FOLDER,
    FOUND,
    Pair,
    add_answer,
    places_of,
    read_found,
    split_name,
)
from simgrad.evaluation import Estimate, metric_of
from simgrad.evaluation.declared import DIRECTIONS
from simgrad.lab import diagrams, facts
from simgrad.lab.lab import Lab, NotFound
from simgrad.lab.service import picture_address
from simgrad.pages.blocks import BodyRow, Cell, Column, Figure, Figures, Key, Table
from simgrad.pages.charts import Curve, Points, line_chart
from simgrad.pages.glossary import explain
from simgrad.pages.svg import LIGHT
from simgrad.runs.run import Run
from simgrad.studies.table import Published, TableRow, significance

_TESTED = ("r1", "r5", "r10", "medr", "mrr", "map_at_r")
_MOST_DIAGRAMS = 12
_HIGHER = "Higher is better; a line that still rises at its end may gain from longer training."
_SHARED = "How many negatives share a query's push; 1: only the hardest counts."


def of_run(lab: Lab, name: str) -> dict[str, Any]:
    """A run's page."""
    detail = facts.run_detail(lab, name)
    history = detail.history
    recalls = [
        Curve.of(metric_of(f"{way}_r{k}").title, i, [points(history, "val", f"{way}_r{k}")])
        for i, (way, k) in enumerate((way, k) for way in DIRECTIONS for k in (1, 5, 10))
    ]
    pushes = [
        Curve.of(text, i, [points(history, "attention", way, "effective")])
        for i, (way, text) in enumerate(DIRECTIONS.items())
    ]
    rsum = [Curve.of("rsum", 0, [points(history, "val", "rsum")])]
    loss = [Curve.of("loss", 0, [points(history, "loss")])]
    made = [
        _chart("rsum", "validation: rsum", rsum, _HIGHER),
        _chart("recall", "validation: recall, %", recalls, _HIGHER),
        _chart("loss", "loss", loss, "A loss should fall and level off."),
        _chart("negatives", "negatives that count", pushes, _SHARED),
    ]
    return {
        "run": detail,
        "charts": Figures([figure for figure in made if figure is not None]),
        "diagrams": Figures([_diagram(lab.run(name), name, "push of the negative")]),
        "table": _tested(detail.test),
        "found": unanswered(lab, name),
    }


def of_study(lab: Lab, name: str) -> dict[str, Any]:
    """A study's page."""
    study, found = lab.study(name), lab.runs_of(name)
    ids = {run.path: key for key, run in found.items()}
    colours = {row.label: i if i < len(LIGHT) else None for i, row in enumerate(study.plan.rows)}
    labels = {folder: row.label for folder, row, _ in study.plan.runs()}
    validated, pushed = [], []
    drawn: list[Figure] = []
    for label, colour in colours.items():
        runs = [run for run in study.runs if labels.get(run.path.name) == label]
        histories = [facts.thinned(run.history) for run in runs]
        validated.append(Curve.of(label, colour, [points(h, "val", "rsum") for h in histories]))
        effective = [points(h, "attention", "i2t", "effective") for h in histories]
        pushed.append(Curve.of(label, colour, effective))
        if runs and len(drawn) < _MOST_DIAGRAMS:
            drawn.append(_diagram(runs[0], ids[runs[0].path], label))
    made = [
        _chart("rsum", "validation: rsum", validated, _HIGHER),
        _chart("negatives", "negatives that count, image queries", pushed, _SHARED),
    ]
    return {
        "study": facts.study_summary(lab, name),
        "verdict": facts.verdict(study),
        "table": _compared(facts.table(study).rows, study.plan.metrics, colours),
        "charts": Figures(
            [figure for figure in made if figure is not None],
            [Key(label, colour) for label, colour in colours.items()],
        ),
        "diagrams": Figures(drawn),
        "runs": [facts.run_summary(lab, key, run) for key, run in found.items()],
    }


def points(history: Sequence[dict[str, Any]], *keys: str) -> Points:
    """The value under nested keys over epochs."""
    found = []
    for entry in history:
        value: Any = entry
        for key in keys:
            value = value.get(key) if isinstance(value, dict) else None
        x = entry.get("epoch")
        if isinstance(value, int | float) and isinstance(x, int | float) and math.isfinite(value):
            found.append((float(x), float(value)))
    return found


def _chart(name: str, title: str, curves: Sequence[Curve], see: str) -> Figure | None:
    shown = [curve for curve in curves if curve.mean]
    if not shown:
        return None
    ends = "; ".join(f"{c.label} ends at {c.mean[-1][1]:.4g}" for c in shown[:12])
    svg = line_chart(shown, title, values=True)
    return Figure(f"chart-{name}", title, svg, f"{title} over epochs: {ends}.", see)


def _diagram(run: Run, name: str, title: str) -> Figure:
    return diagrams.figure(run, f"triplets-{name}", title, f"/api/runs/{quote(name)}/diagram")


def _tested(test: dict[str, float | None]) -> Table | None:
    """Test metrics, a row for each direction."""
    if not test:
        return None
    shown = [metric_of(f"i2t_{bare}") for bare in _TESTED]
    columns = [Column("", numeric=False)]
    columns += [Column(each.label, meaning=each.description) for each in shown]
    rows = []
    for way, text in DIRECTIONS.items():
        values = [(test.get(f"{way}_{bare}"), metric_of(f"{way}_{bare}")) for bare in _TESTED]
        cells = [Cell("–" if v is None else metric.format(v)) for v, metric in values]
        rows.append(BodyRow([Cell(text), *cells]))
    return Table("On the test split", columns, rows)


def _compared(
    rows: Sequence[TableRow], metrics: Sequence[str], colours: dict[str, int | None]
) -> Table:
    shown = [metric_of(metric) for metric in metrics]
    columns = [Column("", numeric=False)]
    columns += [
        Column(each.label, over=DIRECTIONS.get(each.direction, ""), meaning=each.description)
        for each in shown
    ]
    failures = any(end != "trained" for row in rows for end in row.outcomes)
    columns += [Column("against the baseline", numeric=False), Column("seeds")]
    columns += [Column("failed", meaning=explain("failed").meaning)] if failures else []
    made = []
    for row in _best_first(rows):
        name = Cell(row.label, key=True, colour=colours[row.label])
        cells = [_number(row.cells.get(m), m, m in row.best) for m in metrics]
        versus = Cell("baseline" if row.baseline else significance(row.difference))
        ended = [_failed(row)] if failures else []
        made.append(BodyRow([name, *cells, versus, Cell(str(row.seeds)), *ended]))
        if row.published:
            theirs = [_number(row.published.get(m), m, False) for m in metrics]
            theirs_are = Cell(row.beside.replace("published", "in the paper"))
            blank = [Cell("")] * (len(columns) - 1 - len(theirs))
            made.append(BodyRow([theirs_are, *theirs, *blank], "aside"))
    return Table("Comparison", columns, made, "Mean over seeds; beneath: standard deviation.")


def _best_first(rows: Sequence[TableRow]) -> list[TableRow]:
    """By rsum within each group; last what has none yet."""
    groups = list(dict.fromkeys(row.group for row in rows))

    def place(row: TableRow) -> tuple[int, float]:
        rsum = row.cells["rsum"].mean if "rsum" in row.cells else math.nan
        return groups.index(row.group), math.inf if math.isnan(rsum) else -rsum

    return sorted(rows, key=place)


def _failed(row: TableRow) -> Cell:
    """How many of its runs did not train, and how they ended."""
    failed = [facts.ENDS.get(end, end) for end in row.outcomes if end != "trained"]
    told = f"{len(failed)} of {len(row.outcomes)}"
    return Cell(told, "\n".join(dict.fromkeys(failed)), badge="bad" if failed else "")


def _number(value: Estimate | Published | None, metric: str, strong: bool) -> Cell:
    if value is None:
        return Cell("–")
    told = (value.mean, value.deviation) if isinstance(value, Estimate) else value
    (mean, deviation), record = told, metric_of(metric)
    if math.isnan(mean):
        return Cell("–")
    note = "" if deviation is None else f"± {record.format(deviation)}"
    return Cell(record.format(mean), note, strong)


def _folder(lab: Lab, run: str) -> Path:
    return lab.run(run).path / FOLDER


def unanswered(lab: Lab, run: str) -> int:
    """How many pairs wait for an answer."""
    if not (_folder(lab, run) / FOUND).is_file():
        return 0
    try:
        return sum(pair.answer is None for pair in read_found(_folder(lab, run)))
    except InputError:
        return 0  # the page of the pairs says what is wrong


def _pairs(lab: Lab, run: str) -> list[Pair]:
    folder = _folder(lab, run)
    if not (folder / FOUND).is_file():
        raise NotFound(f"no pairs to judge: run `simgrad false-negatives` on {run} first.")
    return read_found(folder)


def question(lab: Lab, run: str, place: int | None) -> dict[str, Any]:
    """The pair at a place, or the first that nobody has answered."""
    pairs = _pairs(lab, run)
    waiting = [i for i, pair in enumerate(pairs) if pair.answer is None]
    answered = {said: sum(p.answer == said for p in pairs) for said in ("yes", "no", "unsure")}
    known: dict[str, Any] = {
        "run": run,
        "label": lab.label(run),
        "total": len(pairs),
        "waiting": len(waiting),
        "answered": answered,
        "pair": None,
    }
    if place is None:
        place = waiting[0] if waiting else None
    if place is None:
        return known
    if place >= len(pairs):
        raise NotFound(f"there are {len(pairs):,} pairs; none at place {place}.")
    pair = pairs[place]
    split = lab.split(run, split_name(_folder(lab, run)))
    image, caption = places_of(split, pair)
    return known | {
        "pair": pair,
        "place": place,
        "picture": picture_address(run, split.name, image),
        "own": [split.captions[i] for i in split.captions_of(image)],
        "other": picture_address(run, split.name, int(split.image_of_caption[caption])),
        "pictures": split.pictures is not None,
    }


def answer(lab: Lab, run: str, image: str, caption: str, said: str) -> None:
    """Keep an answer."""
    if not any((p.image, p.caption) == (image, caption) for p in _pairs(lab, run)):
        raise NotFound(f"there is no such pair to judge in {run}.")
    add_answer(_folder(lab, run), image, caption, said)
