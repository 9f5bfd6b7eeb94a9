"""Does it help to know the false negatives? The truth as a file, and the study's table.

    python results/negatives/help.py exact DATA FOLDER     # scenes: all that is true
    python results/negatives/help.py judged DATA FOLDER    # Flickr8k: what people said is right
    python results/negatives/help.py table STUDY [TRUTH]

`exact` and `judged` write pairs that are right although nobody marked them, in the format of
`simgrad false-negatives`: of the training split to train with, of the test split to test by.
`table` ranks the test split of every run again, by the original pairs and by all that is true:
by the exact semantics, or by the original pairs and those of TRUTH.
"""

import json
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from multiprocessing import get_context
from os import cpu_count
from pathlib import Path

import numpy as np

import simgrad
from simgrad.data.found import FOUND, Pair, caption_names, read_found, rows_of, write_found
from simgrad.data.judgments import read_judgments
from simgrad.data.opening import open_dataset
from simgrad.evaluation.comparison import compare_many
from simgrad.evaluation.metrics import summary
from simgrad.evaluation.truth import Truth, truth_positions
from simgrad.evaluation.uncertainty import estimates
from simgrad.runs.run import Run
from simgrad.studies.study import Study

HERE = Path(__file__).parent


def true_pairs(split, place=None):
    """(images, captions) bool: which captions are true, whoever they were written for."""
    if place is None:
        return split.truth(np.arange(split.num_images), np.arange(split.num_captions))
    mask = np.zeros((split.num_images, split.num_captions), dtype=bool)
    mask[split.image_of_caption, np.arange(split.num_captions)] = True
    mask[tuple(rows_of(read_found(place), split).right.T)] = True
    return mask


def exact(data, folder):
    split = open_dataset(data).split("train")
    mask = true_pairs(split)
    mask[split.image_of_caption, np.arange(split.num_captions)] = False
    write(folder, split, np.argwhere(mask))


def judged(data, folder):
    """Experts' mean of at least 3 of 4; where no expert was asked, half of the crowd said yes."""
    split, found = open_dataset(data).split("test"), read_judgments(data)
    said = {}
    for kind, least in (("crowd", 0.5), ("expert", 2 / 3)):
        images, captions, rows = found[kind].rows(split)
        right = found[kind].relevance()[rows] >= least - 1e-9
        said |= dict(zip(zip(images.tolist(), captions.tolist(), strict=True), right, strict=True))
    pairs = [pair for pair, right in said.items() if right]
    write(folder, split, [(i, c) for i, c in pairs if split.image_of_caption[c] != i])


def write(folder, split, pairs):
    names = caption_names(split)
    made = [
        Pair(split.image_names[image], names[caption], split.captions[caption], answer="yes")
        for image, caption in np.array(pairs).tolist()
    ]
    Path(folder).mkdir(parents=True, exist_ok=True)
    write_found(Path(folder) / FOUND, made)
    share = 100 * len(made) / (split.num_images * split.num_captions)
    print(f"{split.name}: {len(made):,} pairs, {share:.2g} % of all")


def by_truth(place, path):
    """Ranks of the test split with every true pair counted; mean average precision both ways."""
    system = simgrad.open(path).similarities("test")
    scores, truth = system.scores, Truth.of_mask(true_pairs(system.split, place))
    i2t = truth_positions(scores, truth)
    t2i = truth_positions(scores.transposed(), truth.transposed())
    ranks = Run.open(Path(path)).ranks()
    first = i2t.best[ranks.image_of_caption]
    corrected = replace(ranks, i2t=i2t.best, caption_rank=first, t2i=t2i.best)
    return corrected, [100 * summary(way)["map"] for way in (i2t, t2i)]


def compared(ranks, base):
    """rsum of each row, and its difference from the row without knowledge."""
    differences = compare_many(ranks, base)
    return {
        label: {
            "rsum": estimates(ranks=runs)["rsum"].mean,
            "seeds": [estimates(ranks=[run])["rsum"].mean for run in runs],
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


def table(study, place=None):
    study, lines = Study.open(study), []
    chosen = {tuning.name: tuning.record["chosen"] for tuning in study.tunings if tuning.record}
    finished = [str(run.path) for runs in study.groups.values() for run in runs]
    with ProcessPoolExecutor(min(8, cpu_count() or 1), mp_context=get_context("spawn")) as pool:
        truly = dict(zip(finished, pool.map(partial(by_truth, place), finished), strict=True))
    for group in dict.fromkeys(row.group for row in study.plan.rows):
        rows = [row for row in study.plan.rows if row.group == group and study.groups[row.label]]
        if not any(row.baseline for row in rows):
            continue
        base = next(row.label for row in rows if row.baseline)
        runs = {row.label: study.groups[row.label] for row in rows}
        seen = {label: [truly[str(run.path)] for run in found] for label, found in runs.items()}
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
                 "map_deviation": precision.std(0, ddof=min(1, len(precision) - 1)).tolist()}
            )  # fmt: skip
    name = "help" if place is None else "help-flickr8k"
    (HERE / f"{name}.json").write_text(json.dumps(lines, indent=1) + "\n")
    text = printed(lines, "exact" if place is None else "corrected")
    (HERE / f"table-{name}.md").write_text(text)
    print(text)


def printed(lines, truth):
    head = ("", "chosen", "seeds", "rsum, original pairs", "against as it is",
            f"rsum, {truth} truth", "against as it is",
            f"mAP by {truth} truth, i2t / t2i")  # fmt: skip
    text = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    for told in lines:
        rate = ", ".join(f"{key} {value:g}" for key, value in told["setting"].items())
        pairs = zip(told["map"], told["map_deviation"], strict=True)
        cells = [told["row"], rate, str(told["seeds"])]
        for kind in ("original", "exact"):
            cells += [f"{told[kind]['rsum']:.1f}", told[kind]["verdict"]]
        cells.append(" / ".join(f"{value:.1f} ± {spread:.1f}" for value, spread in pairs))
        text.append(f"| {' | '.join(cells)} |")
    return "\n".join([*text, "", *verdicts(lines, truth)]) + "\n"


def verdicts(lines, truth):
    """A sentence on each row that knows something."""
    for told in lines:
        if told["original"]["against"] is not None:
            words = [told[kind]["verdict"].rpartition(": ")[2] for kind in ("original", "exact")]
            yield f"- {told['row']}: original pairs: {words[0]}; {truth} truth: {words[1]}."


if __name__ == "__main__":
    {"exact": exact, "judged": judged, "table": table}[sys.argv[1]](*sys.argv[2:])
