"""How true are the probabilities that search shows? `python -m benchmarks.calibration RUN ...`

They are learned on the validation split of a run's data and asked on its test split, half of the
queries with their right answers taken away. Printed: how far the probability of the best hit is
from what happened, on average over ten bins (expected calibration error), and what a cut-off does.
"""

import argparse
from typing import Any

import numpy as np

from simgrad.core.console import print_table
from simgrad.data.base import Split
from simgrad.data.subset import take
from simgrad.retriever.opening import open_folder
from simgrad.retriever.retriever import Retriever
from simgrad.retriever.sureness import right_pairs
from simgrad.search.calibration import Calibration, calibrate


def similarities(retriever: Retriever, split: Split, images: int | None) -> tuple[Any, Any, Split]:
    """(images, captions) scores and what is right; of `images` drawn at random."""
    if images is not None:
        kept = np.zeros(split.num_images, dtype=bool)
        kept[np.random.default_rng(1).permutation(split.num_images)[:images]] = True
        split = take(split, kept, np.ones(split.num_captions, dtype=bool))
    blocks = retriever.similarities(split).scores.blocks()
    scores = np.concatenate([block.double().cpu().numpy() for _, _, block in blocks])
    return scores, right_pairs(split), split


def outcome(found: Calibration, scores: Any, right: Any) -> list[str]:
    """Error, Brier score and what the cut-off does to queries with and without an answer."""
    told: list[list[float]] = [[], []]
    true = []
    for query in range(len(scores)):
        for place, values in enumerate((scores[query], np.where(right[query], -9, scores[query]))):
            order = np.argsort(-values)[:2]
            told[place].append(found.probabilities(values[order], scores.shape[1])[0])
            if place == 0:
                true.append(float(right[query, order[0]]))
    p, y = np.array(told[0] + told[1]), np.array([*true, *([0.0] * len(true))])
    bins = np.minimum((10 * p).astype(int), 9)
    error = sum(abs(p[bins == b].sum() - y[bins == b].sum()) for b in range(10)) / len(p)
    cut = found.cut_off(scores.shape[1])
    reached = [f"{100 * np.mean(np.array(part) >= cut):.0f}%" for part in told]
    return [f"{error:.3f}", f"{np.mean((p - y) ** 2):.3f}", f"{100 * cut:.1f}%", *reached]


def main() -> None:
    """A row for each run and direction."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", nargs="+", metavar="RUN")
    parser.add_argument("--validation", type=int, help="validation images to learn from; all")
    asked = parser.parse_args()
    rows = []
    for run in asked.runs:
        retriever = open_folder(run)
        data = retriever.dataset
        scores, right, split = similarities(retriever, data.split("val"), asked.validation)
        images, owner = np.arange(split.num_images), split.image_of_caption
        learned = {
            "sentence": calibrate(scores.T, right.T, owner, images),
            "picture": calibrate(scores, right, images, owner),
        }
        scores, right, _ = similarities(retriever, data.split("test"), None)
        for kind, turned in (("sentence", True), ("picture", False)):
            s, r = (scores.T, right.T) if turned else (scores, right)
            sizes = [f"{learned[kind].candidates:,}", f"{s.shape[1]:,}"]
            rows.append([f"{run} {kind}", *sizes, *outcome(learned[kind], s, r)])
    head = ["queries", "learned among", "asked among", "error", "Brier", "cut-off"]
    print_table([*head, "reached with an answer", "without"], rows)


if __name__ == "__main__":
    main()
