"""`simgrad false-negatives`: pairs that are probably right although nobody marked them."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import tyro

from simgrad.cli.options import as_options
from simgrad.core.console import print_table, say, say_wrapped
from simgrad.core.errors import InputError
from simgrad.data.found import FOLDER
from simgrad.retriever.false_negatives import Finds
from simgrad.retriever.opening import open

_LITTLE = 0.25  # of the captions lead to their own image: the evidence has no scale


def false_negatives(
    systems: Annotated[
        tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUN|FILE ...")
    ],
    *,
    data: str | None = None,
    features: str | None = None,
    split: str = "train",
    image_of_caption: Path | None = None,
    captions_per_image: int | None = None,
    depth: int = 50,
    most: int = 10_000,
    calibrate: Path | None = None,
    output: Path | None = None,
    show: int = 20,
    device: str = "auto",
) -> dict[str, Any]:
    """List unlabelled pairs that are probably correct, the most probable first.

    Args:
        systems: runs, imported checkpoints or files of embeddings of the same data; several, e.g.
            of several seeds, are surer than one
        data: the data set; by default the run's. Files of embeddings need it
        features: folder written by `simgrad features` for that data
        split: split of the data
        image_of_caption: file with the image row of each caption, if the embeddings file has none
        captions_per_image: instead of --image-of-caption: every image has N captions, in order
            (image i: captions i*N to i*N+N-1)
        depth: number of candidates to consider for each image and caption
        most: keep the N most probable pairs
        calibrate: a file or folder with answers on this data, to learn the probabilities from
        output: folder for the pairs (default: RUN/false-negatives). `simgrad serve RUN` asks about
            them; `positives:` of a recipe and `evaluate --truth` take the folder
        show: number of pairs to print
        device: auto, cpu, cuda or cuda:N
    """
    if not systems:
        raise InputError("which system? Give a run's folder, or a file of embeddings.")
    first, *others = (
        open(
            name,
            data=data,
            features=features,
            image_of_caption=image_of_caption,
            captions_per_image=captions_per_image,
            normalise=True,
            device=device,
        )
        for name in systems
    )
    found = first.false_negatives(split, others=others, depth=depth, most=most, calibrate=calibrate)
    folder = output or _beside(systems[0])
    found.save(folder, systems)
    _print(found, show)
    for name, knows in zip(systems, found.knows, strict=True):
        if knows < _LITTLE:
            say(
                f"{name} knows little: its first {depth} images include a caption's own for only "
                f"{100 * knows:.0f}% of the captions. These probabilities are too high."
            )
    if found.caveat:
        say_wrapped(as_options(found.caveat, false_negatives))
    say(f"{len(found.pairs):,} pairs in {folder}; calibrated on {found.probable.learned_from}")
    return {
        "folder": str(folder),
        "pairs": [asdict(pair) for pair in found.named()],
        "calibrated_on": found.probable.learned_from,
        "caveat": found.caveat,
    }


def _beside(system: str) -> Path:
    path = Path(system).expanduser()
    return path / FOLDER if path.is_dir() else path.with_name(f"{path.stem}-false-negatives")


def _print(found: Finds, show: int) -> None:
    rows: list[tuple[str, ...]] = []
    seen = set()
    for (image, caption), pair in zip(found.pairs.tolist(), found.named(), strict=True):
        two = frozenset((image, int(found.split.image_of_caption[caption])))
        if len(rows) == show or two in seen:  # of two alike pictures, one row tells it
            continue
        seen.add(two)
        own = found.split.captions_of(image)
        rows.append(
            (
                f"{pair.probability:.2f}",
                pair.image,
                pair.text,
                found.split.captions[own[0]] if len(own) else "",
            )
        )
    print_table(("probability", "image", "caption", "one of its own"), rows)
    truth = found.split.truth
    if truth is not None and len(found.pairs):
        images, captions = found.pairs.T
        right = sum(
            int(truth(np.array([image]), captions[images == image]).sum())
            for image in np.unique(images)
        )
        say(f"right, by the data's exact semantics: {100 * right / len(found.pairs):.1f}%")
