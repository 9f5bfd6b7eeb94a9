"""Table E's figures: python results/flickr8k/judge.py FLICKR8K OUTPUT.csv STUDY [STUDY ...]

For every finished run of the studies: how its similarities agree with people's judgments
(`simgrad evaluate --judgments`), and, among the captions of other images that it finds most similar
to a test image, the share that people call correct. FLICKR8K holds the pictures' judgments.
"""

import csv
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from simgrad.data import Split
from simgrad.data.judgments import read_judgments
from simgrad.evaluation.judgments import APPROVED, evaluate_judgments
from simgrad.evaluation.systems import open_system
from simgrad.files import atomic_write
from simgrad.studies.study import Study
from simgrad.training import Run

DEPTHS = (1, 10, 50)  # of the hardest negatives of each image
DESCRIBES = 2 / 3  # the experts' mean as relevance: 3 of 4, "describes it with minor errors"


def main() -> None:
    data, output, *studies = map(Path, sys.argv[1:])
    rows = []
    for study in map(Study.open, studies):
        for label, runs in study.groups.items():
            rows += [{"study": study.path.name, "label": label, **judge(run, data)} for run in runs]
    with atomic_write(output) as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    print(f"{output}: {len(rows)} runs")


def judge(run: Run, data: Path) -> dict[str, object]:
    system = open_system(str(run.path), stored=False)
    scores, split = system.scores, system.split
    assert scores is not None
    assert split is not None
    found: dict[str, object] = {"objective": str(run.recipe.objective), "seed": run.recipe.seed}
    found |= {k: f"{v:.5f}" for k, v in evaluate_judgments(scores, split, data).items()}
    similarities = np.concatenate([block.cpu().numpy() for _, _, block in scores.blocks()])
    similarities[split.image_of_caption, np.arange(split.num_captions)] = -np.inf
    hardest = np.argsort(-similarities, axis=1)[:, : max(DEPTHS)]
    return found | correct_shares(hardest, split, data, DEPTHS)


def correct_shares(
    hardest: npt.NDArray[Any], split: Split, data: Path, depths: Sequence[int], *, t2i: bool = False
) -> dict[str, object]:
    """How many of the first negatives people judged, and the share they call correct.

    `hardest` lists captions for each image, most similar first (`t2i`: images for each caption).
    """
    found: dict[str, object] = {}
    for kind, judgments in read_judgments(data).items():
        image, caption, judged = judgments.rows(split)
        query, candidate = (caption, image) if t2i else (image, caption)
        level = APPROVED if kind == "crowd" else DESCRIBES
        correct = dict(
            zip(
                zip(query.tolist(), candidate.tolist(), strict=True),
                (judgments.relevance()[judged] >= level).tolist(),
                strict=True,
            )
        )
        for depth in depths:
            pairs = ((q, int(c)) for q, row in enumerate(hardest[:, :depth]) for c in row)
            answers = [correct[pair] for pair in pairs if pair in correct]
            found[f"{kind}_judged_top{depth}"] = len(answers)
            found[f"{kind}_correct_top{depth}"] = f"{np.mean(answers):.4f}" if answers else ""
    return found


if __name__ == "__main__":
    main()
