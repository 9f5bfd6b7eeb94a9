"""People beside runs: python results/flickr8k/judge.py FLICKR8K OUTPUT.csv STUDY [STUDY ...]

For every finished run of the studies: how its similarities agree with people's judgments (`simgrad
evaluate RUN --judgments FLICKR8K`), and, among the captions of other images that it finds most
similar to a test image, the share that people call correct. FLICKR8K holds the pictures' judgments.
Runs need their weights. `--processes` judges several at once, `--seeds` the first few of each row.
Lines of other studies in OUTPUT.csv stay, and those of runs whose weights are gone.
"""

import argparse
import csv
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import simgrad
from simgrad.core.files import atomic_write, lock
from simgrad.data import Split
from simgrad.data.judgments import read_judgments
from simgrad.evaluation.judgments import APPROVED
from simgrad.retriever.similarities import evaluate_judgments
from simgrad.runs.run import BEST
from simgrad.studies.study import Study
from simgrad.training import Run

DEPTHS = (1, 10, 50)  # of the hardest negatives of each image
DESCRIBES = 2 / 3  # the experts' mean as relevance: 3 of 4, "describes it with minor errors"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("studies", type=Path, nargs="+")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--seeds", type=int, help="judge so many runs of each row")
    given = parser.parse_args()
    runs = [
        (study.path.name, label, run)
        for study in map(Study.open, given.studies)
        for label, found in study.groups.items()
        for run in found[: given.seeds]
    ]
    # A GPU cannot be used in a process that was forked from one that has used it.
    with ProcessPoolExecutor(given.processes, mp_context=get_context("spawn")) as pool:
        found = list(pool.map(partial(judge, data=given.data), runs))
    new = [row for row in found if row is not None]
    left_out = {
        (study, label, str(run.recipe.seed))
        for (study, label, run), row in zip(runs, found, strict=True)
        if row is None
    }
    with lock(given.output.with_name(f"{given.output.name}.lock")):
        rows = merged(given.output, new, left_out)
        with atomic_write(given.output) as file:
            columns = list(dict.fromkeys(column for row in rows for column in row))
            writer = csv.DictWriter(file, columns, lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
    print(f"{given.output}: {len(rows)} runs, {len(new)} of them judged now")


def merged(
    path: Path, new: list[dict[str, object]], left_out: set[tuple[str, str, str]]
) -> list[dict[str, object]]:
    """The lines of other studies that a file has, and of runs left out, then the new ones."""
    judged = {row["study"] for row in new}
    if not path.is_file():
        return new
    with path.open(encoding="utf-8") as file:
        old = list(csv.DictReader(file))
    return [
        row
        for row in old
        if row["study"] not in judged or (row["study"], row["label"], row["seed"]) in left_out
    ] + new


def judge(job: tuple[str, str, Run], data: Path) -> dict[str, object] | None:
    """One line; nothing of a run whose weights are gone."""
    study, label, run = job
    if not (run.path / BEST).is_dir():
        print(f"{run.path}: left out, it has no weights", file=sys.stderr)
        return None
    system = simgrad.open(run.path).similarities()
    scores, split = system.scores, system.split
    found: dict[str, object] = {"study": study, "label": label}
    found |= {"objective": str(run.recipe.objective), "seed": run.recipe.seed}
    found |= {"rsum": f"{run.test['rsum']:.6g}", "commit": run.info["git"] or ""}
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
