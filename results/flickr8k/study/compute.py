"""The numbers of this study on the page: `python results/flickr8k/study/compute.py`.

It writes differences.md and against.csv from the kept ranks, and people.md from judgments.csv. With
`--check` it computes everything again, runs.csv and table.csv too, and compares.
"""

import csv
import math
import sys
from collections import defaultdict
from pathlib import Path
from statistics import mean, stdev

from simgrad.evaluation import Ranks, compare_many
from simgrad.evaluation.metrics import metrics_of

HERE = Path(__file__).resolve().parent
METRICS = ("rsum", "i2t_r1", "t2i_r1")
LEADER, BASELINE = "goal(triplet=cir, pair=sig-ms)", "triplet-sh"
# What a paper says of the first beside the second.
PAIRS = (
    ("triplet-sh", "triplet"),
    ("triplet-sh", "nt-xent"),
    ("triplet-sh", "smooth-ap"),
    ("nt-xent", "triplet"),
    ("smooth-ap", "triplet"),
    ("goal(triplet=con, pair=lin)", "triplet-sh"),
    ("goal(triplet=con, pair=sig)", "triplet-sh"),
    ("goal(triplet=con, pair=sig-ms)", "triplet-sh"),
    ("goal(triplet=cir, pair=lin)", "triplet-sh"),
    ("goal(triplet=nca, pair=sig)", "goal(triplet=con, pair=sig)"),
    ("goal(triplet=cir, pair=sig)", "goal(triplet=con, pair=sig)"),
    ("goal(triplet=cir, pair=lin)", "goal(triplet=con, pair=lin)"),
    ("goal(triplet=cir, pair=sig-ms)", "goal(triplet=con, pair=sig-ms)"),
    ("goal(triplet=cir, pair=sig)", "goal(triplet=cir, pair=lin)"),
    ("goal(triplet=cir, pair=sig-ms)", "goal(triplet=cir, pair=sig)"),
    ("focused-deviance", "triplet-sh"),
    ("focused-deviance", "nt-xent"),
    ("focused-deviance", "siglip"),
)


def read(name: str) -> list[dict[str, str]]:
    with open(HERE / name, newline="") as file:
        return list(csv.DictReader(file))


def ranks_by_row() -> dict[str, list[Ranks]]:
    found: dict[str, list[Ranks]] = defaultdict(list)
    for line in read("runs.csv"):
        found[line["row"]].append(Ranks.load(HERE / "ranks" / f"{line['run']}.parquet"))
    return found


def short(label: str) -> str:
    return label.replace("goal(triplet=", "goal (").replace("pair=", "")


def p_value(p: float) -> str:
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def against(ranks: dict[str, list[Ranks]]) -> list[dict[str, str]]:
    """Every objective beside the leader and beside the baseline, Holm's p."""
    lines = []
    for base in (LEADER, BASELINE):
        found = compare_many(ranks, base, "rsum")
        for label, one in sorted(found.items(), key=lambda item: -item[1].difference):
            ends = {"difference": one.difference, "low": one.low, "high": one.high}
            told = {key: f"{value:.4f}" for key, value in ends.items()}
            lines.append({"base": base, "label": label, **told, "p": f"{one.corrected:.6f}"})
    return lines


def differences(ranks: dict[str, list[Ranks]], beside: list[dict[str, str]]) -> str:
    lines = ["# Differences between objectives", ""]
    lines += [
        "Ten seeds each; test split, 1,000 images. Intervals are 95 %, over seeds and images."
    ]
    for base in (LEADER, BASELINE):
        lines += ["", f"## Against {short(base)}, rsum, Holm's p over twelve", ""]
        lines += ["| | difference | p |", "|---|---|---|"]
        for one in (line for line in beside if line["base"] == base):
            gap, low, high, p = (float(one[key]) for key in ("difference", "low", "high", "p"))
            told = f"{gap:+.1f} [{low:.1f}, {high:.1f}]"
            lines.append(f"| {short(one['label'])} | {told} | {p_value(p)} |")
    lines += ["", "## Pairs that the papers speak of; each p is alone, not corrected", ""]
    lines += ["| | rsum | p | i2t R@1 | t2i R@1 |", "|---|---|---|---|---|"]
    for first, second in PAIRS:
        two = {name: ranks[name] for name in (first, second)}
        cells = []
        for metric in METRICS:
            one = compare_many(two, second, metric)[first]
            cells.append(f"{one.difference:+.1f} [{one.low:.1f}, {one.high:.1f}]")
            if metric == "rsum":
                cells.append(p_value(one.p))
        lines.append(f"| {short(first)} over {short(second)} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def people() -> str:
    """How similarities agree with people's judgments, and what people call right."""
    rows: dict[str, list[dict[str, str]]] = defaultdict(list)
    for line in read("judgments.csv"):
        rows[line["label"]].append(line)
    lines = ["# What people say", ""]
    lines += [
        "Mean ± standard deviation over seeds. Kendall's tau-c between the similarities of test"
    ]
    lines += [
        "pairs and the experts' scores; the share of the most similar captions of *other* images"
    ]
    lines += [
        "that the crowd calls right, of those it was shown: about 115 of 1,000 for the first, and"
    ]
    lines += ["no random sample. Runs that were finished when people's judgments were compared."]
    lines += [
        "",
        "| | seeds | experts, tau-c | others' captions alone | right, top 1 | top 10 | top 50 |",
    ]
    lines += ["|---|---|---|---|---|---|---|"]
    names = ("expert_kendall_c", "expert_others_kendall_c")
    shares = ("crowd_correct_top1", "crowd_correct_top10", "crowd_correct_top50")
    order = sorted(rows, key=lambda label: -mean(float(r[names[0]]) for r in rows[label]))
    for label in order:
        some = rows[label]
        cells = [_spread([float(r[name]) for r in some], 3) for name in names]
        cells += [_spread([100 * float(r[name]) for r in some], 0) + " %" for name in shares]
        lines.append(f"| {short(label)} | {len(some)} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _spread(values: list[float], digits: int) -> str:
    return f"{mean(values):.{digits}f} ± {stdev(values):.{digits}f}"


def pages(ranks: dict[str, list[Ranks]]) -> dict[str, str]:
    """What is written, by its file."""
    beside = against(ranks)
    lines = [",".join(beside[0]), *(",".join(map(_quoted, line.values())) for line in beside)]
    return {
        "against.csv": "\n".join(lines) + "\n",
        "differences.md": differences(ranks, beside),
        "people.md": people(),
    }


def _quoted(text: str) -> str:
    return f'"{text}"' if "," in text else text


def check(ranks: dict[str, list[Ranks]]) -> None:
    """Every number of runs.csv and table.csv, and both pages, from what lies beneath."""
    wrong: list[str] = []
    compared = 0
    by_row: dict[str, list[dict[str, float]]] = defaultdict(list)
    places: dict[str, int] = defaultdict(int)
    for line in read("runs.csv"):
        found = metrics_of(ranks[line["row"]][places[line["row"]]]).to_dict()
        places[line["row"]] += 1
        by_row[line["row"]].append(found)
        for name in found.keys() & line.keys():
            compared += 1
            if not math.isclose(float(line[name]), found[name], abs_tol=1e-4):
                wrong.append(f"runs.csv: {line['run']}: {name} is {line[name]}, not {found[name]}")
    for line in read("table.csv"):
        values = [one[line["metric"]] for one in by_row[line["label"]]]
        for key, value in (("mean", mean(values)), ("std", stdev(values))):
            compared += 1
            if not math.isclose(float(line[key]), value, abs_tol=1e-9):
                wrong.append(f"table.csv: {line['label']}: {line['metric']} {key} is not {value}")
    for name, text in pages(ranks).items():
        compared += text.count("|") // 2 + text.count(",")
        if (HERE / name).read_text() != text:
            wrong.append(f"{name}: is not what the ranks give")
    print("\n".join(wrong) or f"{compared} numbers and cells computed again: all the same.")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    found = ranks_by_row()
    if "--check" in sys.argv:
        check(found)
    for name, text in pages(found).items():
        (HERE / name).write_text(text)
