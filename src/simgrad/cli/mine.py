"""`simgrad mine`: hard negatives over the whole training set."""

from pathlib import Path
from typing import Annotated

import tyro

from simgrad.core.console import print_table, say
from simgrad.data.candidates import Candidates, write_candidates
from simgrad.runs.mining import mine_trained
from simgrad.runs.trained import open_either


def mine(
    run: Annotated[
        str | None, tyro.conf.Positional, tyro.conf.arg(metavar="[RUN]", help_behavior_hint="")
    ] = None,
    *,
    model: str | None = None,
    data: str | None = None,
    features: str | None = None,
    output: str | None = None,
    depth: int = 300,
    skip: int = 0,
    relative_margin: float | None = None,
    truth: bool = False,
    aoq: str | None = None,
    device: str = "auto",
) -> None:
    """Find the hardest negatives of every training image and caption.

    Args:
        run: the run whose best checkpoint scores the training set, or an imported checkpoint.
        model: a pretrained model as it is, on --data: "clip(source=FOLDER_OR_HUB_NAME)".
        data: data set for a checkpoint, or another one for a run: a file, a folder or `scenes`.
        features: folder written by `simgrad features` for that data.
        output: folder for the lists; RUN/candidates, or candidates, if left out.
        depth: how many to keep for each image and caption.
        skip: leave out so many of the very hardest, where false negatives are.
        relative_margin: leave out candidates more similar than this share of the own pair.
        truth: leave out captions that are true of the image, where the data knows.
        aoq: also write AOQ's layout (i2t_NAME.npy, t2i_NAME.npy) under this name.
        device: auto, cpu, cuda or cuda:N.
    """
    trained = open_either(run, model, data=data, features=features, device=device)
    folder = Path(output) if output else trained.path / "candidates"
    mine_trained(
        trained, folder, depth, skip=skip, relative_margin=relative_margin, use_truth=truth
    )
    found = Candidates.load(folder)
    rows = [("images", *found.i2t.shape), ("captions", *found.t2i.shape)]
    print_table(("queries", "number", "candidates each"), rows)
    share = found.info.get("false_negatives")
    if share is not None:
        end = ", left out" if truth else ""
        print(f"true of the image after all: {100 * share:.1f}% of an image's candidates{end}")
    if aoq:
        write_candidates(folder, aoq, found, trained.dataset.split("train"))
    say(f"in {folder}; use them with `candidates: {folder}` in a recipe")
