"""What `simgrad cocos` and `simgrad diagram --integrability` print, and rows as files."""

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from simgrad.analysis.closedness import Integrability
from simgrad.analysis.counting import DIRECTIONS, GENERAL, HEADINGS, general_cells
from simgrad.analysis.published import PaperCounts, PublishedRow, published_rows
from simgrad.core.console import print_table, say_wrapped
from simgrad.core.errors import InputError
from simgrad.core.files import atomic_path
from simgrad.core.named_files import refuse_foreign, write_named_csv, write_named_json
from simgrad.retriever.counting import RunCounts
from simgrad.studies.settings import unlike

Summary = dict[str, dict[str, tuple[float, float]]]
_LABEL = {"C_qv_neg": "C-", "W_qv_neg": "W-", "W_qv_pos": "W+"}
_LEGEND = (
    "C-: negatives of a query that the gradient counts; W-: the weight of all of them; W+: that of "
    "its positive. i2t: images ask, t2i: captions ask."
)
_DATASET = {"f30k": "F30k", "coco": "COCO"}
# Published figures that are not counted as the paper defines them, and how they are.
_ARTEFACTS = {
    "Triplet": (("t2i C_q", "t2i C_0"), "summed along the wrong axis"),
    "SmoothAP": (
        ("i2t C_q", "i2t C_0", "t2i C_q", "t2i C_0"),
        "without the factor 1/tau; t2i also with the wrong positives",
    ),
}


def print_counts(runs: Sequence[RunCounts], released_only: bool) -> None:
    """The paper's counts, a table per loss with the published rows, then the general counts."""
    families = {run.family.name: run.family for run in runs if run.family is not None}
    for family in families.values():
        same = [run for run in runs if run.family is family]
        _print_family(family, same, released_only)
        print()
    if not released_only:
        print_general(runs)
    elif len(families) == 0:
        raise InputError(
            "the published counting covers only triplet, triplet-sh, nt-xent and smooth-ap; leave "
            "--released out."
        )


def _print_family(family: PaperCounts, runs: Sequence[RunCounts], released_only: bool) -> None:
    columns = [(d, f) for d in DIRECTIONS for f in family.figures]
    header = [family.name, *(f"{d} {_LABEL.get(f, f)}" for d, f in columns)]
    papers = published_rows(family.name)
    apart = {run.name: {row.number: unlike(run, row) for row in papers} for run in runs}
    # On one's own data nothing that was published is beside it.
    papers = [p for p in papers if any("data" not in one[p.number] for one in apart.values())]
    rows = []
    for run in runs:
        if not released_only:
            rows.append([run.name, *_cells(run.corrected.summary(), columns)])
        name = f"{run.name}, as published" if released_only else "  as published"
        if papers or released_only:
            rows.append([name, *_cells(run.released.summary(), columns)])
    other, how = _ARTEFACTS.get(family.name, ((), ""))
    for row in papers:
        cells = _cells(row.figures, columns)
        marked = [
            cell + ("*" if f"{d} {f}" in other else "")
            for cell, (d, f) in zip(cells, columns, strict=True)
        ]
        same = any(not differing[row.number] for differing in apart.values())
        rows.append([f"{'' if same else UNLIKE}{_paper(row)}", *marked])
    print_table(header, rows, title="Counts of Bleeker & de Rijke (ECIR 2022), mean ± std")
    if "C_qv_neg" in family.figures:
        say_wrapped(_LEGEND)
    if not papers:
        return
    if other:
        say_wrapped(f"* {how}: to be compared with 'as published' alone.")
    for run in runs:
        say_wrapped(_comparable(run, papers, apart[run.name]))


UNLIKE = "\u2260 "  # before a published row of another setting than any run's


def _paper(row: PublishedRow) -> str:
    return f"paper {row.number} {row.method} {_DATASET.get(row.dataset, row.dataset)}"


def _comparable(
    run: RunCounts, papers: Sequence[PublishedRow], apart: dict[str, dict[str, str]]
) -> str:
    """Which published row a run may be compared with; if none, what the nearest one differs in."""
    nearest = min(papers, key=lambda row: len(apart[row.number]))
    if not apart[nearest.number]:
        return f"{run.name}: comparable with {_paper(nearest)}."
    told = [f"{field} {how}" for field, how in apart[nearest.number].items()]
    more = f" and {len(told) - 4} more" if len(told) > 5 else ""
    return (
        f"{UNLIKE}{run.name} is comparable with no published row. Nearest: {_paper(nearest)}, but "
        f"{', '.join(told[:4] if more else told)}{more}."
    )


def _cells(summary: Summary, columns: Iterable[tuple[str, str]]) -> list[str]:
    return [_figure(*summary.get(d, {}).get(f, (math.nan, math.nan))) for d, f in columns]


def _figure(mean: float, std: float) -> str:
    if math.isnan(mean):
        return "–"
    return f"{mean:.{1 if mean >= 100 else 2}f}±{std:.{0 if std >= 10 else 2}f}"


def print_general(runs: Sequence[RunCounts]) -> None:
    names = [name.replace(" ", "\n", 1).replace("contrib", "contrib-\n") for name in HEADINGS]
    rows = []
    for run in runs:
        summary = run.corrected.summary()
        rows += [[run.name, way, *general_cells(summary, way)] for way in DIRECTIONS]
    title = "Negatives per query that carry the gradient, for every objective"
    print_table(["run", "", *names], rows, title=title)


def print_epsilons(runs: Sequence[RunCounts]) -> None:
    """How many negatives of a query count, by the epsilon above which they do."""
    chosen = sorted({run.epsilon for run in runs})
    rows = []
    for name in dict.fromkeys(run.name for run in runs):
        same = [run for run in runs if run.name == name]
        own = {run.epsilon: run.corrected.summary() for run in same}
        family = same[0].family  # the paper's own count, where it has one
        figure = GENERAL[0] if family is None else family.figures[0]
        for way in DIRECTIONS:
            means = [own[each][way].get(figure, (math.nan, 0.0))[0] for each in chosen]
            ratio = max(means) / min(means) if all(mean > 0 for mean in means) else math.nan
            cells = ["–" if math.isnan(mean) else f"{mean:.2f}" for mean in means]
            rows.append([name, way, *cells, "–" if math.isnan(ratio) else f"{ratio:.1f}"])
    print()
    header = ["run", "queries", *(f"{each:g}" for each in chosen), "most / least"]
    print_table(header, rows, title="Negatives per query that count, by epsilon")
    print(
        "The paper: a different epsilon has little impact (section 5). The last column says how "
        "much it has here."
    )


def print_verdicts(found: Sequence[Integrability]) -> None:
    """Whether each objective's weights are a gradient."""
    rows = [
        (
            verdict.objective,
            "yes" if verdict.gradient else "no",
            f"{verdict.curl:.1g}",
            f"{verdict.loop:.1g}",
            f"{verdict.batch:.1g}",
            "; ".join(verdict.reasons),
        )
        for verdict in found
    ]
    print_table(("objective", "gradient", "curl", "loop", "batch", "where not"), rows)


def write_rows(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    """Rows as .json, .csv or .parquet."""
    if path.suffix == ".json":
        write_named_json(path, list(rows))
    elif path.suffix == ".parquet":
        import pyarrow as pa
        import pyarrow.parquet as pq

        refuse_foreign(path, *rows[0])
        with atomic_path(path) as temporary:
            pq.write_table(pa.Table.from_pylist(list(rows)), temporary)
    elif path.suffix == ".csv":
        write_named_csv(path, rows)
    else:
        raise InputError(f"{path}: data are written as .json, .csv or .parquet.")
