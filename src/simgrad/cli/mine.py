"""`simgrad mine`: hard negatives over the whole training set."""

from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from simgrad.core.console import print_table, say
from simgrad.core.errors import InputError
from simgrad.data.candidates import Candidates, require_fives, write_candidates
from simgrad.evaluation.declared import DIRECTIONS
from simgrad.mining.filters import Filters
from simgrad.mining.statistics import draw
from simgrad.mining.tuples import Shape, check_place, picture_names, tuples_of, write_tuples
from simgrad.retriever.opening import open, open_either

_SUMMARY = ("count", "mean", "std", "min", "25%", "50%", "75%", "max")


def mine(
    system: Annotated[str | None, tyro.conf.Positional, tyro.conf.arg(metavar="[RUN|FILE]")] = None,
    *,
    model: str | None = None,
    images: str | None = None,
    texts: str | None = None,
    image_of_caption: Path | None = None,
    captions_per_image: int | None = None,
    data: str | None = None,
    features: str | None = None,
    split: str | None = None,
    output: str | None = None,
    depth: int = 300,
    absolute_margin: float | None = None,
    relative_margin: float | None = None,
    min_score: float | None = None,
    max_score: float | None = None,
    range_min: int = 0,
    range_max: int | None = None,
    rescore: tuple[str, ...] = (),
    truth: bool = False,
    without: Path | None = None,
    sure: float = 0.5,
    aoq: str | None = None,
    triplets: tuple[Path, ...] = (),
    tuples: tuple[Path, ...] = (),
    direction: Literal["i2t", "t2i"] = "t2i",
    num_negatives: int = 3,
    sampling: Literal["top", "random", "score"] = "top",
    seed: int = 0,
    device: str = "auto",
) -> dict[str, Any]:
    """Find the hardest negatives of every training image and caption.

    Args:
        system: the run whose best checkpoint scores the training set, an imported checkpoint (with
            --data), or a file of embeddings (arrays images, texts, image_of_caption) or
            similarities; .npz, .npy, .safetensors, .parquet
        model: a pretrained model as it is, on --data: "clip(source=FOLDER_OR_HUB_NAME)"
        images: embeddings of images in a separate file, instead of a run
        texts: embeddings of the captions that belong to --images
        image_of_caption: file with the image row of each caption, if the embeddings file has none
        captions_per_image: instead of --image-of-caption: every image has N captions, in order
            (image i: captions i*N to i*N+N-1)
        data: data set for a checkpoint, or another one for a run; for files of embeddings, the data
            they were made from, which gives names and captions
        features: folder written by `simgrad features` for that data
        split: split of the data; by default train. Arrays alone have none
        output: folder for the lists (default: RUN/candidates or FILE-candidates)
        depth: number of negatives to keep for each image and caption
        absolute_margin: a negative must be less similar than the query's own pair by at least this;
            if a query has several pairs, the least similar one counts
        relative_margin: the same as a share of that similarity, e.g. 0.05
        min_score: smallest similarity of a negative
        max_score: largest similarity of a negative
        range_min: skip the N hardest negatives that pass the filters; these are often false
            negatives
        range_max: consider only the N hardest candidates, before any filter
        rescore: other runs or files; the mean of their similarities decides which of the first
            model's candidates are kept, and in which order
        truth: omit captions that are true of the image, if the data say so (scenes)
        without: omit the pairs of this file or folder (from `simgrad false-negatives`), those that
            are right or unsure
        sure: omit a pair that nobody has answered if its probability is at least this
        aoq: also write AOQ's files i2t_NAME.npy and t2i_NAME.npy under this name
        triplets: also write anchor, positive, negative for sentence-transformers: .parquet, .jsonl,
            or a folder (a Hugging Face data set)
        tuples: the same with anchor, positive, negative_1 .. negative_N
        direction: anchors of these files: t2i captions, i2t images
        num_negatives: negatives for each pair in these files
        sampling: top: the hardest; random: any of those kept; score: the harder, the more often
        seed: seed of the sampling
        device: auto, cpu, cuda, cuda:N or mps
    """
    filters = Filters(absolute_margin, relative_margin, min_score, max_score, range_min, range_max)
    if aoq and Path(aoq).name != aoq:  # before hours of mining
        raise InputError(
            f"--aoq {aoq}: a name for two files, without a folder; --output is the place."
        )
    for path in (*triplets, *tuples):
        check_place(path)
    place: dict[str, Any] = {"data": data, "features": features, "device": device}
    files: dict[str, Any] = {
        "image_of_caption": image_of_caption,
        "captions_per_image": captions_per_image,
        "normalise": True,
        **place,
    }
    if model is not None:
        asked = open_either(system, model, **place)
    elif system is not None:
        asked = open(system, **files)
    elif images and texts:
        asked = open(images, texts, **files)
    else:
        raise InputError("mine what? Give a run's folder, a file, or --images and --texts.")
    known = asked.dataset.split(split or "train") if asked.has_data else asked.similarities().split
    if aoq:  # before hours of mining
        require_fives(known.image_of_caption, aoq)
    folder = Path(output) if output else _beside(asked.path or Path(images or ""))
    found = asked.mine(
        folder,
        depth=depth,
        split=split,
        filters=filters,
        rescore=[open(name, **files) for name in rescore],
        use_truth=truth,
        without=without,
        sure=sure,
    )
    pairing, names = known.image_of_caption, (picture_names(known), list(known.captions))
    _tell(found, truth)
    draw(folder / "statistics.png", found.info["statistics"])
    if aoq:
        write_candidates(folder, aoq, found, pairing)
    asked_for: list[tuple[Path, Shape]] = [(path, "triplet") for path in triplets]
    for path, shape in [*asked_for, *((path, "n-tuple") for path in tuples)]:
        made = tuples_of(
            found,
            pairing,
            direction,
            shape,  # type: ignore[arg-type]
            num_negatives=num_negatives,
            sampling=sampling,
            seed=seed,
        )
        write_tuples(path, made, *names)
        say(f"{len(made):,} {shape}s in {path}: {', '.join(made.columns)}")
    say(f"lists in {folder}; use them with `candidates: {folder}` in a recipe")
    return {"folder": str(folder), **found.info}


def _beside(path: Path) -> Path:
    """The folder for lists: in a run, beside a file, or here for a pretrained model."""
    file = path.suffix and not path.is_dir()
    return path.with_name(f"{path.stem}-candidates") if file else path / "candidates"


def _tell(found: Candidates, left_out: bool) -> None:
    for way, told in found.info.get("statistics", {}).items():
        kinds = ("positive", "hardest", "negative", "margin")
        rows = [(name, *(_number(told[kind].get(name)) for kind in kinds)) for name in _SUMMARY]
        columns = ("", "own pairs", "hardest", "kept negatives", "margin")
        print_table(columns, rows, title=f"{DIRECTIONS[way]}, {told['queries']:,} queries")
        depth = found.info["depth"]
        if way == "t2i":
            depth = min(depth, len(found.i2t) - 1)  # there may not be so many other images
        if way == "t2i" and "own_among" in told:  # lists of earlier versions do not say
            own = f"{100 * told['own_among']:.1f}%"
            say(f"{own} of the captions have their own image among the first {depth}.")
        short = told["short"]
        if short:
            say(f"{short:,} queries have fewer than {found.info['depth']} negatives.")
        lines = [
            (f["filter"], f"{100 * f['removed']:.1f}%", f"{100 * f['queries_left_without']:.1f}%")
            for f in told["filters"]
        ]
        hardest = f"of the {depth} hardest"
        title = "What a filter removes, or would remove"
        print_table(("filter", hardest, "queries left without any"), lines, title=title)
        print()
    if "left_out" in found.info:
        gone = found.info["left_out"]
        say(f"omitted as found: {gone['i2t']:,} candidates of images, {gone['t2i']:,} of captions")
    share = found.info.get("false_negatives")
    if share is not None:
        end = ", omitted" if left_out else ""
        print(f"true of the image after all: {100 * share:.1f}% of an image's candidates{end}")


def _number(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:,}" if isinstance(value, int) else f"{value:.4f}"
