"""`simgrad evaluate`: the metrics of one system, or the difference between several."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import tyro

from simgrad.cli import printing
from simgrad.core.errors import InputError
from simgrad.core.files import write_json
from simgrad.evaluation.coco import evaluate_coco
from simgrad.evaluation.evaluator import evaluate_scores
from simgrad.evaluation.metrics import Metrics, metrics_of
from simgrad.evaluation.protocols import find_protocol
from simgrad.evaluation.rerank import evaluate_reranked
from simgrad.evaluation.scores import Average, Scores
from simgrad.evaluation.uncertainty import compare, compare_many, compare_seeds, intervals
from simgrad.runs.judging import evaluate_judgments, evaluate_truth
from simgrad.runs.systems import System, open_system


def evaluate(
    systems: Annotated[
        tuple[str, ...],
        tyro.conf.Positional,
        tyro.conf.arg(metavar="[RUN|FILE ...]", help_behavior_hint=""),
    ],
    *,
    protocol: str | None = None,
    split: str = "test",
    captions_per_image: int | None = None,
    recalls: tuple[int, ...] = (1, 5, 10),
    normalise: bool = False,
    ensemble: bool = False,
    rerank: int | None = None,
    judgments: Path | None = None,
    truth: bool = False,
    coco: bool = False,
    level: float = 0.95,
    ranks: Path | None = None,
    output: Path | None = None,
    device: str = "auto",
) -> None:
    """Metrics of one system with intervals; of two, the difference, its interval and p.

    Args:
        systems: run folders, embeddings.npz (arrays images, texts, image_of_caption),
            similarities.npy (images x captions) or ranks.parquet. With commas between them, runs
            are seeds of one system: A1,A2,A3 B1,B2,B3.
        protocol: all, flickr8k-1k, flickr30k-1k, coco-5k or coco-1k (mean of five folds). Left
            out, a run's test ranks are read where they were kept, and everything given is used.
        split: which split of a run's data.
        captions_per_image: for files without image_of_caption: image i has captions i*K to i*K+K-1.
        recalls: the K of R@K, beside 1, 5 and 10.
        normalise: scale embeddings to length 1 first.
        ensemble: evaluate the mean of the systems' similarities instead of comparing them.
        rerank: score so many first candidates again with the model's second scorer; 0: as many as
            the model's settings say.
        judgments: folder of Flickr8k's human judgments.
        truth: count every caption that is true of an image, where the data knows (scenes).
        coco: CxC and ECCV Caption too; the data must name COCO's ids.
        level: of the confidence intervals.
        ranks: write per-query ranks to this .parquet file.
        output: write all metrics to this .json file.
        device: auto, cpu, cuda or cuda:N.
    """
    if not systems:
        raise InputError("evaluate what? Give a run's folder or a file; see --help.")
    if protocol is not None:
        find_protocol(protocol)
    special = ensemble or rerank is not None or judgments is not None or truth or coco
    kept = protocol is None and not special
    opened = [
        [
            open_system(
                name,
                split=split,
                captions_per_image=captions_per_image,
                normalise=normalise,
                device=device,
                stored=kept,
            )
            for name in group.split(",")
        ]
        for group in systems
    ]
    if ensemble:
        opened = [[_average([system for group in opened for system in group])]]
    found = [[_measure(s, protocol, recalls, rerank) for s in group] for group in opened]
    _print(systems if not ensemble else ["ensemble"], found, level)
    extra = _graded(opened[0][0], judgments, truth, coco, recalls)
    if extra:
        printing.print_values("graded truth", extra)
    first = found[0][0]
    if ranks is not None:
        first.ranks.save(ranks)
    if output is not None:
        write_json(output, first.to_dict() | extra)


def _average(systems: Sequence[System]) -> System:
    members = [_scores(system) for system in systems]
    first = systems[0]
    if any(s.image_ids != first.image_ids or s.caption_ids != first.caption_ids for s in systems):
        raise InputError("an ensemble needs systems on the same images and captions.")
    return System(
        "ensemble", Average(members), first.pairing, first.image_ids, first.caption_ids, first.split
    )


def _scores(system: System) -> Scores:
    if system.scores is None:
        raise InputError(
            f"{system.name}: a file of ranks has no similarities; give the run or its embeddings."
        )
    return system.scores


def _measure(
    system: System, protocol: str | None, recalls: Sequence[int], rerank: int | None
) -> Metrics:
    if system.ranks is not None:
        if protocol not in (None, "all"):
            raise InputError(f"{system.name}: kept ranks cannot be ranked anew by a protocol.")
        number = f"{len(system.ranks.i2t):,} images, {len(system.ranks.t2i):,} captions"
        return metrics_of(system.ranks, recalls, f"ranks kept by the run: {number}.")
    scores = _scores(system)
    if rerank is not None:
        if system.second_scorer is None:
            raise InputError(f"{system.name}: this model has no second scorer to re-rank with.")
        if protocol not in (None, "all"):
            raise InputError("re-ranking is done over all images and captions: --protocol all.")
        k = rerank or system.candidates or 128
        return evaluate_reranked(scores, system.pairing, system.second_scorer, k, recalls=recalls)
    return evaluate_scores(
        scores,
        system.pairing,
        protocol=protocol or "all",
        recalls=recalls,
        image_ids=system.image_ids,
        caption_ids=system.caption_ids,
    )


def _graded(
    system: System, judgments: Path | None, truth: bool, coco: bool, recalls: Sequence[int]
) -> dict[str, float]:
    values: dict[str, float] = {}
    if judgments is not None:
        if system.split is None:
            raise InputError("--judgments needs a run: its data names images and captions.")
        values |= evaluate_judgments(_scores(system), system.split, judgments, recalls=recalls)
    if truth:
        if system.split is None:
            raise InputError("--truth needs a run: its data knows what is true.")
        values |= evaluate_truth(_scores(system), system.split, recalls=recalls)
    if coco:
        if system.image_ids is None or system.caption_ids is None:
            raise InputError("--coco needs COCO's image and caption ids beside the embeddings.")
        values |= evaluate_coco(
            _scores(system),
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


def _print(names: Sequence[str], found: Sequence[Sequence[Metrics]], level: float) -> None:
    print(found[0][0].used)
    if len(found) == 1:
        for metrics in found[0]:
            printing.print_metrics(metrics, intervals(metrics.ranks, level=level), level)
            printing.print_cross_ranks([metrics.ranks])
        return
    groups = [[metrics.ranks for metrics in group] for group in found]
    labels = [chr(ord("A") + i) for i in range(len(names))]
    for label, name in zip(labels, names, strict=True):
        print(f"{label}: {name}")
    for label, other in zip(labels[1:], groups[1:], strict=True):
        single = len(groups[0]) == len(other) == 1
        table = (
            compare(groups[0][0], other[0], level=level)
            if single
            else compare_seeds(groups[0], other, level=level)
        )
        printing.print_comparison(labels[0], label, table, level, seeds=not single)
    if len(groups) == 2 and len(groups[0]) == len(groups[1]) == 1:
        printing.print_cross_ranks([groups[0][0], groups[1][0]])
    if len(groups) > 2:
        table = compare_many(dict(zip(labels, groups, strict=True)), labels[0])
        printing.print_many(labels[0], table, level)
