"""`simgrad evaluate`: the metrics of one system, or the difference between several."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import tyro

from simgrad.cli.printing import Evaluated, Evaluation, check_output, list_metrics
from simgrad.core.console import say
from simgrad.core.errors import InputError
from simgrad.data.found import read_found, rows_of
from simgrad.evaluation.coco import evaluate_coco
from simgrad.evaluation.evaluator import evaluate_scores
from simgrad.evaluation.metrics import Metrics, metrics_of
from simgrad.evaluation.protocols import find_protocol
from simgrad.evaluation.rerank import evaluate_reranked
from simgrad.evaluation.scores import Average
from simgrad.retriever.judging import evaluate_judgments, evaluate_truth
from simgrad.retriever.systems import System, model_system, naming, open_pair, open_system
from simgrad.retriever.trained import open_pretrained


def evaluate(
    systems: Annotated[
        tuple[str, ...],
        tyro.conf.Positional,
        tyro.conf.arg(metavar="[RUN|FILE ...]", help_behavior_hint=""),
    ] = (),
    *,
    images: tuple[str, ...] = (),
    texts: tuple[str, ...] = (),
    image_of_caption: Path | None = None,
    captions_per_image: int | None = None,
    model: tuple[str, ...] = (),
    data: str | None = None,
    features: str | None = None,
    split: str | None = None,
    protocol: str | None = None,
    recalls: tuple[int, ...] = (1, 5, 10),
    normalise: bool = False,
    ensemble: bool = False,
    rerank: int | None = None,
    judgments: Path | None = None,
    truth: bool | str = False,
    sure: float = 0.5,
    coco: bool = False,
    level: float = 0.95,
    names: tuple[str, ...] = (),
    ranks: Path | None = None,
    output: Path | None = None,
    metrics: bool = False,
    device: str = "auto",
) -> None:
    """Metrics of one system with intervals, or the differences between several.

    Args:
        systems: run folders, imported checkpoints (with --data), files of embeddings (arrays
            images, texts, image_of_caption), of similarities (images x captions) or of ranks; .npz,
            .npy, .safetensors, .parquet. With commas between them they are seeds of one system:
            A1,A2,A3 B1,B2,B3
        images: embeddings of images in separate files, one for each system
        texts: embeddings of the captions, one file for each of --images
        image_of_caption: file with the image row of each caption, if the embeddings file has none
        captions_per_image: instead of --image-of-caption: every image has N captions, in order
            (image i: captions i*N to i*N+N-1)
        model: pretrained models as they are, on --data: "clip(source=FOLDER_OR_HUB_NAME)"
        data: data set for a checkpoint, or another one for a run: a file, a folder or `scenes`
        features: folder written by `simgrad features` for that data
        split: split of the data; by default the one that the run's recipe tests, or `test`
        protocol: all, flickr8k-1k, flickr30k-1k, coco-5k or coco-1k (mean of five folds). By
            default all items are used, and a run's stored test ranks are read if there are any
        recalls: values of K for R@K, in addition to 1, 5 and 10
        normalise: scale embeddings to length 1 first
        ensemble: evaluate the mean of the systems' similarities instead of comparing them
        rerank: re-score the top N candidates with the model's re-ranker; 0 uses the model's own
            setting
        judgments: folder of Flickr8k's human judgments
        truth: count every caption that is true of an image. Without a value: as the data say
            (scenes only). With a file or folder of found pairs (`simgrad false-negatives`): those
            answered yes or probable enough; unsure ones are ignored
        sure: use a found pair that nobody has answered if its probability is at least this
        coco: also score CxC and ECCV Caption; the data must have COCO's ids
        level: confidence level of the intervals
        names: names of the systems in tables, in order
        ranks: write the first system's rank of every query to this .parquet file
        output: write all results to this .json, .csv, .md, .tex or .html file
        metrics: list all metrics and exit
        device: auto, cpu, cuda, cuda:N or mps
    """
    if metrics:
        list_metrics()
        return
    if output is not None:
        check_output(output)
    if protocol is not None:
        find_protocol(protocol)
    special = ensemble or rerank is not None or judgments is not None or bool(truth) or coco

    def open_one(name: str) -> System:
        return open_system(
            name,
            data=data,
            features=features,
            split=split,
            image_of_caption=image_of_caption,
            captions_per_image=captions_per_image,
            normalise=normalise,
            device=device,
            stored=protocol is None and not special,
        )

    opened = [[open_one(name) for name in group.split(",")] for group in systems]
    for spec in model:
        zero_shot = open_pretrained(spec, data=data, features=features, device=device)
        opened.append([model_system(zero_shot, split)])
    for first, second in _pairs(images, texts):
        pair = open_pair(
            first,
            second,
            image_of_caption=image_of_caption,
            captions_per_image=captions_per_image,
            normalise=normalise,
            device=device,
        )
        opened.append([pair])
    if not opened:
        raise InputError(
            "evaluate what? Give a run's folder, a file, --model, or --images and --texts."
        )
    if ensemble:
        opened = [[_average([system for group in opened for system in group])]]
    labels = _labels(names, len(opened))
    found = []
    for label, group in zip(labels, opened, strict=True):
        runs = []
        for system in group:
            with naming(system.name):
                runs.append(_measure(system, protocol, recalls, rerank))
        graded = _graded(group[0], judgments, truth, sure, coco, recalls)
        name = label if names else ",".join(system.name for system in group)
        found.append(Evaluated(label, name, tuple(runs), level, graded))
    result = Evaluation(tuple(found), level)
    if ranks is not None:
        found[0].runs[0].ranks.save(ranks)
    if output is not None:
        result.write(output)
    result.print()
    if output is not None:
        say(f"\n{output}: written.")


def _pairs(images: Sequence[str], texts: Sequence[str]) -> list[tuple[str, str]]:
    if len(images) != len(texts):
        raise InputError(
            f"--images names {len(images)} files and --texts {len(texts)}: a system needs one of "
            "each."
        )
    return list(zip(images, texts, strict=True))


def _labels(names: Sequence[str], count: int) -> list[str]:
    if names and (len(names) != count or len(set(names)) != count):
        raise InputError(f"--names: {count} different names are needed, not {', '.join(names)}.")
    return list(names) or [_letter(i) for i in range(count)]


def _letter(i: int) -> str:
    """A to Z, then A2 to Z2, ..."""
    return chr(ord("A") + i % 26) + (str(i // 26 + 1) if i >= 26 else "")


def _average(systems: Sequence[System]) -> System:
    members = [system.similarities for system in systems]
    first = systems[0]
    if any(s.image_ids != first.image_ids or s.caption_ids != first.caption_ids for s in systems):
        raise InputError("an ensemble needs systems on the same images and captions.")
    return System(
        "ensemble", Average(members), first.pairing, first.image_ids, first.caption_ids, first.split
    )


def _measure(
    system: System, protocol: str | None, recalls: Sequence[int], rerank: int | None
) -> Metrics:
    if system.ranks is not None:
        if protocol not in (None, "all"):
            raise InputError(f"{system.name}: stored ranks cannot be ranked again by a protocol.")
        number = f"{len(system.ranks.i2t):,} images, {len(system.ranks.t2i):,} captions"
        return metrics_of(system.ranks, recalls, f"ranks kept by the run: {number}.")
    scores = system.similarities
    if rerank is not None:
        if system.reranking is None:
            raise InputError(f"{system.name}: this model has no second scorer to re-rank with.")
        return evaluate_reranked(
            scores,
            system.pairing,
            system.reranking.scores,
            rerank or system.reranking.candidates,
            protocol=protocol or "all",
            recalls=recalls,
            image_ids=system.image_ids,
            caption_ids=system.caption_ids,
        )
    return evaluate_scores(
        scores,
        system.pairing,
        protocol=protocol or "all",
        recalls=recalls,
        image_ids=system.image_ids,
        caption_ids=system.caption_ids,
    )


def _graded(
    system: System,
    judgments: Path | None,
    truth: bool | str,
    sure: float,
    coco: bool,
    recalls: Sequence[int],
) -> dict[str, float]:
    values: dict[str, float] = {}
    if judgments is not None:
        if system.split is None:
            raise InputError("--judgments needs a run: its data names images and captions.")
        values |= evaluate_judgments(system.similarities, system.split, judgments, recalls=recalls)
    if truth:
        if system.split is None:
            raise InputError("--truth needs a run: its data knows what is true.")
        found = None
        if isinstance(truth, str):
            found = rows_of(read_found(truth), system.split, sure, place=truth)
        values |= evaluate_truth(system.similarities, system.split, recalls=recalls, found=found)
    if coco:
        if system.image_ids is None or system.caption_ids is None:
            raise InputError("--coco needs COCO's image and caption ids beside the embeddings.")
        values |= evaluate_coco(
            system.similarities,
            [_number(i) for i in system.image_ids],
            [_number(i) for i in system.caption_ids],
            recalls=recalls,
        )
    return values


def _number(text: str) -> int:
    """COCO's number at the end of a name: 391895, COCO_val2014_000000391895.jpg."""
    digits = Path(text).stem.rsplit("_", 1)[-1]
    if not digits.isdigit():
        raise InputError(f"'{text}' does not end in a number of COCO's.")
    return int(digits)
