"""How `simgrad evaluate` prints what it found."""

from collections.abc import Mapping, Sequence

from simgrad.core.console import print_table
from simgrad.evaluation.crossrank import compare_cross_ranks, cross_ranks, histogram
from simgrad.evaluation.metrics import DIRECTIONS, Metrics
from simgrad.evaluation.ranks import Ranks
from simgrad.evaluation.uncertainty import Difference

_LABELS = {
    "average_recall": "average recall",
    "medr": "median rank",
    "meanr": "mean rank",
    "mrr": "MRR",
    "map5": "mAP@5",
    "map5_hits": "mAP@5 over hits",
    "map_at_r": "mAP@R",
    "rprecision": "R-precision",
}
# What a comparison prints: the numbers that papers do.
HEADLINES = (
    *(f"{d}_r{k}" for d in DIRECTIONS for k in (1, 5, 10)),
    "rsum",
    "i2t_map5",
    "i2t_map_at_r",
    "i2t_meanr",
    "t2i_meanr",
)


def figure(name: str, value: float) -> str:
    """Percentages and ranks with one decimal, shares with three."""
    small = ("mrr", "map", "rprecision", "ndcg", "kendall", "spearman")
    if any(part in name for part in small):
        return f"{value:.3f}"
    return (
        f"{value:.0f}" if name.endswith(("medr", "ties", "pairs", "approved")) else f"{value:.1f}"
    )


def print_metrics(
    metrics: Metrics, bounds: Mapping[str, tuple[float, float]], level: float
) -> None:
    """Both directions side by side, with intervals."""
    values = metrics.to_dict()
    recalls = [n.removeprefix("i2t_") for n in values if n.startswith("i2t_r") and n[5:].isdigit()]
    rows = []
    for name in [*recalls, *_LABELS]:
        label = _LABELS.get(name, f"R@{name[1:]}")
        row = [label]
        for direction in DIRECTIONS:
            key = f"{direction}_{name}"
            row += [figure(key, values[key]), _interval(key, bounds)]
        rows.append(row)
    percent = f"{100 * level:g}%"
    print_table(("", "image -> text", percent, "text -> image", percent), rows)
    print(f"rsum {values['rsum']:.1f} {_interval('rsum', bounds)}")
    ties = int(values["ties"])
    print(f"{ties:,} queries have a tie at their rank, counted against the model.")


def _interval(name: str, bounds: Mapping[str, tuple[float, float]]) -> str:
    if name not in bounds:
        return ""
    return f"[{figure(name, bounds[name][0])}, {figure(name, bounds[name][1])}]"


def print_comparison(
    first: str,
    second: str,
    table: Mapping[str, Difference],
    level: float,
    *,
    seeds: bool,
) -> None:
    """One row per headline number: both systems, difference, interval, p."""
    rows = []
    for name in HEADLINES:
        d = table[name]
        rows.append(
            [
                name,
                figure(name, d.first),
                figure(name, d.second),
                f"{d.difference:+.3f}" if "map" in name else f"{d.difference:+.2f}",
                f"[{figure(name, d.low)}, {figure(name, d.high)}]",
                printed_p(d.p),
            ]
        )
    difference = f"{second} - {first}"
    print_table(("metric", first, second, difference, f"{100 * level:g}%", "p"), rows)
    if seeds:
        print("p and intervals: hierarchical bootstrap over seeds and images.")
    else:
        print("p: paired permutation test over images; intervals: paired bootstrap over images.")


def print_many(baseline: str, table: Mapping[str, Difference], level: float) -> None:
    """Several systems against one, p corrected for their number."""
    rows = [
        [
            name,
            f"{d.second:.1f}",
            f"{d.difference:+.2f}",
            f"[{d.low:.1f}, {d.high:.1f}]",
            printed_p(d.p),
            printed_p(d.p_holm if d.p_holm is not None else d.p),
        ]
        for name, d in table.items()
    ]
    print(f"\nrsum against {baseline}")
    print_table(("system", "rsum", "difference", f"{100 * level:g}%", "p", "p (Holm)"), rows)


def print_cross_ranks(systems: Sequence[Ranks]) -> None:
    """The histogram of cross-retrieval ranks, of one system or of two."""
    print("\ncross-retrieval rank of the true pairs")
    if len(systems) == 1:
        counts = histogram(cross_ranks(systems[0]))
        print_table(tuple(counts), [[f"{count:,}" for count in counts.values()]])
        return
    found = compare_cross_ranks(systems[0], systems[1])
    names = tuple(found.first)
    rows = [
        ["A", *(f"{found.first[n]:,}" for n in names)],
        ["B", *(f"{found.second[n]:,}" for n in names)],
        ["B - A", *(f"{found.second[n] - found.first[n]:+,}" for n in names)],
    ]
    print_table(("rank", *names), rows)
    print(f"B ranks {found.better:,} pairs better, {found.worse:,} worse, {found.same:,} the same.")


def print_values(title: str, values: Mapping[str, float]) -> None:
    """A plain list."""
    print_table((title, "value"), [(name, figure(name, v)) for name, v in values.items()])


def printed_p(p: float) -> str:
    """p with as many digits as mean something."""
    return "<0.001" if p < 0.001 else f"{p:.3f}"
