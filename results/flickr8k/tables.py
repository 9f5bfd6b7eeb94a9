"""Tables beside the studies' own, for make.py: COCOS, people's judgments, mined negatives.

Each keeps what is here of studies that a new file does not name.
"""

import json
from collections import defaultdict
from pathlib import Path
from statistics import mean
from typing import Any

from writing import (
    HERE,
    OBJECTIVES,
    PUBLISHED,
    Rows,
    markdown,
    published,
    read_csv,
    spread,
    write_csv,
    write_md,
)

from simgrad.core.files import write_json

COCOS = {"cocos.json": "VSE++", "cocos-vsrn.json": "VSRN"}
JUDGED = {  # column of judgments.csv: head of the table
    "expert_kendall_c": "tau-c, experts",
    "expert_kendall_c_others": "... own captions left out",
    "i2t_crowd_r1": "i2t R@1, approved",
    "t2i_crowd_r1": "t2i R@1, approved",
    "crowd_correct_top1": "hardest caption correct, crowd",
    "crowd_correct_top10": "... of the 10 hardest",
    "crowd_correct_top50": "... of the 50 hardest",
    "expert_correct_top10": "... of the 10 hardest, experts",
}


def counts(files: dict[str, Path]) -> None:
    """COCOS of each model beside the paper's."""
    parts = []
    for model, path in files.items():
        rows = count_rows(model, json.loads(path.read_text()))
        parts += [f"## {model}", markdown(rows, list(rows[0]))] if rows else []
    write_md(
        "table-cocos.md",
        "What contributes to the gradient (COCOS) on Flickr8k, seed 0, best checkpoint",
        "Mean ± standard deviation over training batches of 128 captions (SmoothAP: 128 images "
        "with 640 captions). *As defined* in the paper's text; *as released* by its code.",
        "\n\n".join(parts),
    )


def count_rows(model: str, found: list[dict[str, object]]) -> Rows:
    values = {
        (str(e["objective"]).partition("(")[0], e["direction"], e["figure"], e["counting"]): (
            f"{e['mean']:.2f} ± {e['std']:.2f}"
        )
        for e in found
    }
    paper = [
        row
        for file in sorted(PUBLISHED.glob("bleeker_table[234]*.csv"))
        for row in published(file.name, dataset="f30k", method=model)
    ]
    return [
        {
            "objective": label,
            "direction": way,
            "count": row["metric"],
            "as defined": values[label, way, row["metric"], "corrected"],
            "as released": values[label, way, row["metric"], "released"],
            "paper, Flickr30k": f"{row['mean']} ± {row['std']}",
        }
        for label, loss in OBJECTIVES.items()
        for way in ("i2t", "t2i")
        for row in paper
        if (row["loss"], row["direction"]) == (loss, way)
        if (label, way, row["metric"], "corrected") in values
    ]


def judgments(path: Path) -> None:
    """Every judged row, a part for each study and model."""
    new = read_csv(path)
    judged = {line["study"] for line in new}
    lines = [line for line in read_csv(HERE / "judgments.csv") if line["study"] not in judged] + new
    lines.sort(key=lambda line: str(line["study"]))
    write_csv("judgments.csv", lines)
    runs = read_csv(HERE / "runs.csv")
    names = {(run["study"], run["label"]): _model(run["model"]) for run in runs}
    parts: dict[tuple[str, str], dict[str, Rows]] = {}
    for line in lines:
        who = line["study"], line["label"]
        part = parts.setdefault((line["study"], names.get(who, "")), {})
        part.setdefault(line["label"], []).append(line)
    shown = mean(float(line["crowd_judged_top10"]) for line in lines)
    write_md(
        "table-judgments.md",
        "What people say, Flickr8k's test split",
        "Mean ± standard deviation over seeds. tau-c: Kendall's, with the experts' mean. R@1, "
        "approved: captions count that the crowd approved of. Shares are of the pairs that were "
        "judged: of 10,000 pairs of an image and one of its 10 hardest captions of other images, "
        f"{shown:.0f} were shown to the crowd. Correct: at least half of the crowd said yes, or "
        "the experts' mean was 3 of 4 or more.",
        "\n\n".join(_judged_part(*who, labels) for who, labels in parts.items()),
    )


def _model(spec: str) -> str:
    """A model's name as tables write it."""
    name = spec.partition("(")[0]
    return "VSE-infinity" if name == "vse-infinity" else name.upper()


def _judged_part(study: str, model: str, labels: dict[str, Rows]) -> str:
    rows: Rows = []
    for label, found in labels.items():
        row: dict[str, object] = {"row": label.removeprefix(f"{model} "), "seeds": len(found)}
        for key, title in JUDGED.items():
            values = [float(line[key]) for line in found if line[key] != ""]
            if not values:
                row[title] = "none judged"
            elif "correct" in key:
                row[title] = f"{spread([100 * value for value in values], 0)} %"
            else:
                row[title] = spread(values, 1 if "r1" in key else 3)
        rows.append(row)
    head = f"{study}, {model}" if model else study
    return f"## {head}\n\n{markdown(rows, list(rows[0]))}"


def mined(path: Path) -> None:
    """Mean over the seeds of each row: ranks of true pairs, and negatives that are none."""
    entries = json.loads(path.read_text())
    kept = HERE / "mined.json"
    if kept.is_file():
        new = {entry["study"] for entry in entries}
        entries += [e for e in json.loads(kept.read_text()) if e["study"] not in new]
        entries.sort(key=lambda entry: str(entry["study"]))
    write_json(kept, entries)
    groups: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for entry in entries:
        groups[entry["study"], entry["run"]].append(entry)
    ranks: Rows = []
    shares: Rows = []
    for (study, run), found in groups.items():
        who: dict[str, object] = {"study": study, "run": run, "seeds": len(found)}
        intervals = {
            name: spread([entry["cross_ranks"][name] for entry in found], 0)
            for name in found[0]["cross_ranks"]
        }
        ranks.append({**who, **intervals})
        row = dict(who)
        for way, kind, depth in (
            *(("i2t", "crowd", depth) for depth in (1, 10, 60)),
            *(("t2i", "crowd", depth) for depth in (1, 10, 60)),
            *(("i2t", "expert", depth) for depth in (10, 60)),
        ):
            told = [e[way][f"{kind}_correct_top{depth}"] for e in found]
            values = [100 * float(value) for value in told if value != ""]
            row[f"{way} {kind} {depth}"] = f"{spread(values, 0)} %" if values else "none judged"
        alike = [1000 * entry["train"]["same_words_top300"] for entry in found]
        row["same words, of 1,000"] = spread(alike, 2)
        shares.append(row)
    write_md(
        "table-mined.md",
        "What mining finds on Flickr8k",
        "Mean ± standard deviation over seeds.",
        "## True pairs by cross-retrieval rank, test split\n\n"
        "The worse of a pair's two ranks, max(5 r_i - 4, r_t), as AOQ counts it.\n\n"
        f"{markdown(ranks, list(ranks[0]))}\n\n"
        "## Mined negatives that are correct\n\n"
        "Of the 1, 10 and 60 hardest negatives of each test image (i2t) or caption (t2i) that "
        "people judged, the share they call correct: at least half of the crowd, or a mean of 3 of "
        "4 from the experts. Last: of the 300 mined for a training image, those that read word for "
        f"word like one of its own.\n\n{markdown(shares, list(shares[0]))}",
    )
