"""Does it help to know the false negatives? The exact truth as a file, and the study's table.

    python results/negatives/help.py exact DATA FOLDER
    python results/negatives/help.py table STUDY

`exact` writes every pair of the training split that is true although nobody marked it, in the
format of `simgrad false-negatives`. `table` ranks the test split of every run again, by the
original pairs and by all that is true.
"""

import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np

from simgrad.data.found import FOUND, Pair, caption_names, write_found
from simgrad.data.opening import open_dataset
from simgrad.evaluation.comparing import compare_many
from simgrad.evaluation.metrics import summary
from simgrad.evaluation.truth import Truth, truth_positions
from simgrad.evaluation.uncertainty import estimates
from simgrad.runs.mining import similarities
from simgrad.runs.systems import open_system
from simgrad.studies.study import Study

HERE = Path(__file__).parent


def true_pairs(split):
    """(images, captions) bool: which captions are true, whoever they were written for."""
    return split.truth(np.arange(split.num_images), np.arange(split.num_captions))


def exact(data, folder):
    split = open_dataset(data).split("train")
    names, mask = caption_names(split), true_pairs(split)
    mask[split.image_of_caption, np.arange(split.num_captions)] = False
    pairs = [
        Pair(split.image_names[image], names[caption], split.captions[caption], 1.0)
        for image, caption in np.argwhere(mask).tolist()
    ]
    Path(folder).mkdir(parents=True, exist_ok=True)
    write_found(Path(folder) / FOUND, pairs)
    print(f"{len(pairs):,} pairs, {100 * len(pairs) / mask.size:.1f} % of all")


def by_truth(run):
    """Ranks of the test split with every true pair counted; mean average precision both ways."""
    system = open_system(str(run.path), split="test", stored=False, device="cpu")
    scores, truth = similarities(system), Truth.of_mask(true_pairs(system.split))
    i2t = truth_positions(scores, truth)
    t2i = truth_positions(scores.transposed(), truth.transposed())
    ranks = run.ranks()
    first = i2t.best[ranks.image_of_caption]
    corrected = replace(ranks, i2t=i2t.best, caption_rank=first, t2i=t2i.best)
    return corrected, [100 * summary(way)["map"] for way in (i2t, t2i)]


def compared(ranks, base):
    """rsum of each row, and its difference from the row without knowledge."""
    differences = compare_many(ranks, base)
    return {
        label: {
            "rsum": estimates(ranks=runs)["rsum"].mean,
            "against": vars(differences[label]) if label in differences else None,
            "verdict": verdict(differences.get(label)),
        }
        for label, runs in ranks.items()
    }


def verdict(difference):
    if difference is None:
        return ""
    word = "not told apart"
    if difference.corrected < 0.05:
        word = "helps" if difference.difference > 0 else "hurts"
    return f"{difference}: {word}"


def table(study):
    study, lines = Study.open(study), []
    chosen = {tuning.name: tuning.record["chosen"] for tuning in study.tunings if tuning.record}
    for group in dict.fromkeys(row.group for row in study.plan.rows):
        rows = [row for row in study.plan.rows if row.group == group and study.groups[row.label]]
        base = next(row.label for row in rows if row.baseline)
        runs = {row.label: study.groups[row.label] for row in rows}
        seen = {label: [by_truth(run) for run in found] for label, found in runs.items()}
        by_pairs = compared(
            {label: [r.ranks() for r in found] for label, found in runs.items()}, base
        )
        by_meaning = compared(
            {label: [ranks for ranks, _ in found] for label, found in seen.items()}, base
        )
        for row in rows:
            precision = np.array([each for _, each in seen[row.label]])
            lines.append(
                {"row": row.label, "seeds": len(runs[row.label]),
                 "setting": chosen[row.name]["setting"],
                 "original": by_pairs[row.label], "exact": by_meaning[row.label],
                 "map": precision.mean(0).tolist(),
                 "map_deviation": precision.std(0, ddof=1).tolist()}
            )  # fmt: skip
    (HERE / "help.json").write_text(json.dumps(lines, indent=1) + "\n")
    (HERE / "table-help.md").write_text(printed(lines))
    print(printed(lines))


def printed(lines):
    head = ("", "chosen", "seeds", "rsum, original pairs", "against as it is", "rsum, exact truth",
            "against as it is", "mAP by exact truth, i2t / t2i")  # fmt: skip
    text = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    for told in lines:
        rate = ", ".join(f"{key} {value:g}" for key, value in told["setting"].items())
        pairs = zip(told["map"], told["map_deviation"], strict=True)
        cells = [told["row"], rate, str(told["seeds"])]
        for kind in ("original", "exact"):
            cells += [f"{told[kind]['rsum']:.1f}", told[kind]["verdict"]]
        cells.append(" / ".join(f"{value:.1f} ± {spread:.1f}" for value, spread in pairs))
        text.append(f"| {' | '.join(cells)} |")
    return "\n".join(text) + "\n"


if __name__ == "__main__":
    {"exact": exact, "table": table}[sys.argv[1]](*sys.argv[2:])
