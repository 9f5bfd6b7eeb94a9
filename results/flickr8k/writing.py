"""Numbers, tables and the figure as text and files, for make.py."""

import csv
from collections.abc import Sequence
from pathlib import Path
from statistics import mean, stdev

import simgrad.studies
from simgrad.studies.study import Study

HERE = Path(__file__).parent
PUBLISHED = Path(simgrad.studies.__path__[0]) / "published"
OBJECTIVES = {
    "triplet": "Triplet",
    "triplet-sh": "TripletSH",
    "nt-xent": "NT-Xent",
    "smooth-ap": "SmoothAP",
}
TRIPLET = ("con", "nca", "cir")
PAIR = ("con", "lin", "sig", "lin-ms", "sig-ms")
AT_ONCE = 16  # runs that shared the GPU
Rows = list[dict[str, object]]


def figure(studies: dict[str, Study]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    drawing, (left, right) = plt.subplots(1, 2, figsize=(9, 3.4), width_ratios=(2, 3))
    four = studies["objectives"].groups
    for place, runs in enumerate(four.values()):
        values = [run.test["rsum"] for run in runs]
        left.errorbar(place, mean(values), stdev(values), fmt="o", capsize=4, color="C0")
        left.plot([place + 0.15] * len(values), values, "k.", markersize=4)
    left.set_xticks(range(len(four)), four, fontsize=8)
    left.set_ylabel("test rsum")
    left.set_title("Four objectives (mean ± std, 5 seeds)", fontsize=9)
    cells = studies["goal"].groups
    grid = [[mean(r.test["rsum"] for r in cells[f"T={t} P={p}"]) for p in PAIR] for t in TRIPLET]
    image = right.imshow(grid, cmap="viridis", aspect="auto")
    middle = (min(map(min, grid)) + max(map(max, grid))) / 2
    for y, row in enumerate(grid):
        for x, value in enumerate(row):
            tests = [r.test["rsum"] for r in cells[f"T={TRIPLET[y]} P={PAIR[x]}"]]
            color = "white" if value < middle else "black"
            text = f"{value:.1f}\n± {stdev(tests):.1f}"
            right.text(x, y, text, ha="center", va="center", color=color, fontsize=8)
    right.set_xticks(range(len(PAIR)), PAIR)
    right.set_yticks(range(len(TRIPLET)), TRIPLET)
    right.set_xlabel("pair weights P")
    right.set_ylabel("triplet weight T")
    right.set_title("GOAL's cells as printed (mean test rsum, 3 seeds)", fontsize=9)
    drawing.colorbar(image)
    drawing.tight_layout()
    drawing.savefig(HERE / "rsum.png", dpi=110, metadata={"Software": None})


def plan(studies: dict[str, Study]) -> Rows:
    """GPU hours by steps, if a run takes its share of the GPU as here."""
    spent = {
        name: sum(run.info["seconds"] / AT_ONCE for runs in s.groups.values() for run in runs)
        for name, s in studies.items()
    }
    rows: Rows = []
    for data, images in (("Flickr8k", 6_000), ("Flickr30k", 29_000), ("COCO", 113_287)):
        row: dict[str, object] = {"data": data, "steps of a run": 30 * -(-images * 5 // 128)}
        for name, seconds in spent.items():
            count = sum(map(len, studies[name].groups.values()))
            row[f"{name}, {count} runs, hours"] = f"{seconds * images / 6_000 / 3600:.2f}"
        row["features of 1,280 numbers, GB"] = f"{images * 1280 * 4 / 1e9:.2f}"
        row["36 regions of 2,048, half precision, GB"] = f"{images * 36 * 2048 * 2 / 1e9:.1f}"
        rows.append(row)
    return rows


def spread(values: Sequence[float], digits: int) -> str:
    middle = f"{mean(values):.{digits}f}"
    return f"{middle} ± {stdev(values):.{digits}f}" if len(values) > 1 else middle


def published(file: str, **where: str) -> list[dict[str, str]]:
    with (PUBLISHED / file).open() as lines:
        return [r for r in csv.DictReader(lines) if all(r[k] == v for k, v in where.items())]


def write_csv(name: str, rows: Rows) -> None:
    with (HERE / name).open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def markdown(rows: Rows, columns: Sequence[str]) -> str:
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    lines += ["| " + " | ".join(str(row[c]) for c in columns) + " |" for row in rows]
    return "\n".join(lines)


def write_md(name: str, title: str, note: str, body: str) -> None:
    (HERE / name).write_text(f"# {title}\n\n{note}\n\n{body}\n")
