"""Numbers, tables and the figure as text and files, for make.py."""

import csv
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import mean, stdev
from textwrap import fill
from typing import Any

import simgrad.studies
from simgrad.runs.run import Run
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
CELLS = [f"T={triplet} P={pair}" for triplet in TRIPLET for pair in PAIR]
AT_ONCE = 16  # runs that shared the GPU
Rows = list[dict[str, Any]]


def figure(studies: dict[str, dict[str, Rows]]) -> None:
    """A panel for each study of some rows: GOAL's cells as a map, all else row by row."""
    studies = {name: labels for name, labels in studies.items() if len(labels) >= 3}
    maps = {name for name, labels in studies.items() if set(CELLS) <= set(labels)}
    # Panels of one height side by side, maps last.
    studies = dict(sorted(studies.items(), key=lambda one: (one[0] in maps, len(one[1]))))
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    sizes = [8 if name in maps else 3 + len(labels) for name, labels in studies.items()]
    lines = [max(sizes[i : i + 2]) for i in range(0, len(sizes), 2)]
    drawing, axes = plt.subplots(
        len(lines), 2, figsize=(12, 0.36 * sum(lines)), height_ratios=lines, squeeze=False
    )
    for panel in axes.flat[len(studies) :]:
        panel.axis("off")
    for panel, (name, labels) in zip(axes.flat, studies.items(), strict=False):
        values = {label: [float(r["rsum"]) for r in rows] for label, rows in labels.items()}
        if name in maps:
            drawing.colorbar(_cells(panel, values))
        else:
            models = [_model(rows) for rows in labels.values()]
            _rows(panel, values, [f"C{sorted(set(models)).index(model)}" for model in models])
        title = (HERE / f"table-{name}.md").read_text().splitlines()[0].removeprefix("# ")
        panel.set_title(fill(title.partition(", Flickr8k")[0], 48), fontsize=9)
    drawing.tight_layout()
    drawing.savefig(HERE / "rsum.png", dpi=110, metadata={"Software": None})


def _model(rows: Rows) -> str:
    return str(rows[0]["model"])


def _rows(panel: Any, values: dict[str, list[float]], colors: list[str]) -> None:
    for place, (tests, color) in enumerate(zip(values.values(), colors, strict=True)):
        deviation = stdev(tests) if len(tests) > 1 else None
        panel.errorbar(mean(tests), place, xerr=deviation, fmt="o", capsize=3, color=color)
        if deviation is not None:
            panel.plot(tests, [place + 0.2] * len(tests), "k.", markersize=3)
    panel.set_yticks(range(len(values)), [fill(label, 30) for label in values], fontsize=8)
    panel.invert_yaxis()
    panel.set_ylim(len(values) - 0.5, -0.5)
    panel.set_xlabel("test rsum, mean ± std over seeds", fontsize=8)
    panel.grid(axis="x", alpha=0.3)


def _cells(panel: Any, values: dict[str, list[float]]) -> Any:
    grid = [[mean(values[f"T={t} P={p}"]) for p in PAIR] for t in TRIPLET]
    image = panel.imshow(grid, cmap="viridis", aspect="auto")
    middle = (min(map(min, grid)) + max(map(max, grid))) / 2
    for y, row in enumerate(grid):
        for x, value in enumerate(row):
            text = spread(values[f"T={TRIPLET[y]} P={PAIR[x]}"], 1).replace(" ", "\n", 1)
            color = "white" if value < middle else "black"
            panel.text(x, y, text, ha="center", va="center", color=color, fontsize=8)
    panel.set_xticks(range(len(PAIR)), PAIR)
    panel.set_yticks(range(len(TRIPLET)), TRIPLET)
    panel.set_xlabel("pair weights P, test rsum", fontsize=8)
    panel.set_ylabel("triplet weight T", fontsize=8)
    return image


def plan(studies: dict[str, dict[str, Rows]]) -> Rows:
    """GPU hours by steps, if a run takes its share of the GPU as here."""
    every = {
        name: [r for rows in labels.values() for r in rows] for name, labels in studies.items()
    }
    full = {name: rows for name, rows in every.items() if len(rows) >= AT_ONCE}
    rows: Rows = []
    for data, images in (("Flickr8k", 6_000), ("Flickr30k", 29_000), ("COCO", 113_287)):
        row: dict[str, object] = {"data": data, "steps of 30 epochs": 30 * -(-images * 5 // 128)}
        for name, runs in full.items():
            seconds = sum(float(run["seconds"]) for run in runs) / AT_ONCE
            row[f"{name}, {len(runs)} runs, hours"] = f"{seconds * images / 6_000 / 3600:.2f}"
        row["features of 1,280 numbers, GB"] = f"{images * 1280 * 4 / 1e9:.2f}"
        row["36 regions of 2,048, half precision, GB"] = f"{images * 36 * 2048 * 2 / 1e9:.1f}"
        rows.append(row)
    return rows


def by_label(rows: Rows) -> dict[str, dict[str, Rows]]:
    """runs.csv by study and row of its table."""
    found: dict[str, dict[str, Rows]] = {}
    for row in rows:
        found.setdefault(str(row["study"]), {}).setdefault(str(row["label"]), []).append(row)
    return found


def spread(values: Sequence[float], digits: int) -> str:
    middle = f"{mean(values):.{digits}f}"
    return f"{middle} ± {stdev(values):.{digits}f}" if len(values) > 1 else middle


def published(file: str, **where: str) -> list[dict[str, str]]:
    with (PUBLISHED / file).open() as lines:
        return [r for r in csv.DictReader(lines) if all(r[k] == v for k, v in where.items())]


def read_csv(path: Path) -> list[dict[str, Any]]:
    if not path.is_file():
        return []
    with path.open() as file:
        return list(csv.DictReader(file))


def write_csv(name: str, rows: Rows) -> None:
    columns = list(dict.fromkeys(column for row in rows for column in row))  # earlier rows' too
    with (HERE / name).open("w", newline="") as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def replace_lines(name: str, folders: list[str], of_run: Callable[[Run], dict[str, Any]]) -> Rows:
    """A line for each finished run of these studies; a CSV file's lines of other studies stay."""
    studies = [Study.open(Path(folder)) for folder in folders]
    named = {study.path.name for study in studies if any(study.groups.values())}
    lines: Rows = [line for line in read_csv(HERE / name) if line["study"] not in named]
    for study in studies:
        for label, runs in study.groups.items():
            for run in runs:
                about = {"study": study.path.name, "label": label, "seed": run.info["seed"]}
                lines.append({**about, **of_run(run)})
    lines.sort(key=lambda line: str(line["study"]))
    write_csv(name, lines)
    return lines


def markdown(rows: Rows, columns: Sequence[str]) -> str:
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    lines += ["| " + " | ".join(str(row[c]) for c in columns) + " |" for row in rows]
    return "\n".join(lines)


def write_md(name: str, title: str, note: str, body: str) -> None:
    (HERE / name).write_text(f"# {title}\n\n{note}\n\n{body}\n")
