"""What mining finds: python results/flickr8k/mined.py FLICKR8K OUTPUT.json RUN [RUN ...]

For every finished run, which needs its weights: the training set is mined as `simgrad mine` does
(AOQ draws from such lists; those that a second round drew from are read); how many test pairs have
which cross-retrieval rank (AOQ's supplement, figure 1); and, of the hardest negatives of test
images and captions, the share that people call correct. FLICKR8K holds the judgments.
"""

import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from judge import correct_shares

from simgrad.core.devices import pick_device
from simgrad.core.files import write_json
from simgrad.data import Split
from simgrad.data.candidates import Candidates
from simgrad.evaluation import cross_ranks, histogram
from simgrad.runs.encoding import encode_source
from simgrad.runs.mining import mine_encoded, mine_run
from simgrad.runs.prepare import source_of
from simgrad.training import Run

DEPTHS = (1, 10, 60)  # AOQ draws images from the first 60, captions from the first 300
KEPT = 300


def main() -> None:
    data, output, *folders = map(Path, sys.argv[1:])
    found = []
    for run in map(Run.open, folders):
        if not run.finished:
            print(f"{run.path}: not finished, left out", file=sys.stderr)
            continue
        found.append({**describe(run), **look(run, data)})
        print(f"{run.path}: mined in {found[-1]['train']['seconds']} s", file=sys.stderr)
    write_json(output, found)
    print(f"{output}: {len(found)} runs")


def describe(run: Run) -> dict[str, Any]:
    """Which run of which study it is."""
    path = run.path.resolve()
    study = next((p.name for p in path.parents if (p / "study.yaml").is_file()), "")
    fields = {name: getattr(run.recipe, name) for name in ("model", "objective", "seed")}
    return {"study": study, "run": path.name.removesuffix(f"-s{run.recipe.seed}"), **fields}


def look(run: Run, data: Path) -> dict[str, Any]:
    dataset = run.dataset()
    with TemporaryDirectory() as temporary:
        started = time.perf_counter()
        kept = run.path / f"candidates-{KEPT}"
        folder = kept if kept.is_dir() else Path(temporary)
        lists = Candidates.load(mine_run(run, folder, KEPT, dataset=dataset))
        train = training_lists(lists, dataset.split("train"))
        train["seconds"] = round(time.perf_counter() - started, 1)
    split = dataset.split("test")
    mined = mine_test(run, split)
    return {
        "train": train,
        "cross_ranks": histogram(cross_ranks(run.ranks())),
        "i2t": correct_shares(mined.i2t, split, data, DEPTHS),
        "t2i": correct_shares(mined.t2i, split, data, DEPTHS, t2i=True),
    }


@torch.no_grad()
def mine_test(run: Run, split: Split) -> Candidates:
    device = pick_device(run.recipe.device)
    loaded = run.load(str(device))
    source = source_of(split, loaded.tokenizer, loaded.model, device, run.recipe)
    return mine_encoded(loaded.model, *encode_source(loaded.model, source), split, max(DEPTHS))


def training_lists(lists: Candidates, split: Split) -> dict[str, Any]:
    """False negatives that need no judge, captions that read like an own one; and how many of all
    captions and images are on any list."""
    words = [" ".join(caption.lower().split()) for caption in split.captions]
    own: list[set[str]] = [set() for _ in range(split.num_images)]
    for image, text in zip(split.image_of_caption.tolist(), words, strict=True):
        own[image].add(text)
    same = np.array(
        [[c >= 0 and words[c] in own[i] for c in row] for i, row in enumerate(lists.i2t)]
    )
    told: dict[str, Any] = {}
    for depth in (*DEPTHS, KEPT):
        told[f"same_words_top{depth}"] = round(float(same[:, :depth].mean()), 6)
        for name, table, count in (
            ("captions", lists.i2t, split.num_captions),
            ("images", lists.t2i, split.num_images),
        ):
            listed = np.setdiff1d(table[:, :depth], [-1])
            told[f"{name}_listed_top{depth}"] = round(len(listed) / count, 4)
    return told


if __name__ == "__main__":
    main()
