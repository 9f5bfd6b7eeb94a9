"""`simgrad evaluate`: the metrics of one system, or the difference between several."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from simgrad.cli.printing import Evaluated, Evaluation, check_output, list_metrics
from simgrad.cli.rankings import Asked, show_rankings, write_own
from simgrad.core.console import say
from simgrad.core.errors import InputError
from simgrad.core.named_files import refuse_foreign
from simgrad.data.found import read_found, rows_of
from simgrad.evaluation.coco import evaluate_coco
from simgrad.evaluation.metrics import Metrics
from simgrad.evaluation.protocols import find_protocol
from simgrad.evaluation.rankings.results import POINT
from simgrad.retriever.arrays import are_numbers
from simgrad.retriever.opening import open, open_pretrained
from simgrad.retriever.retriever import Retriever
from simgrad.retriever.similarities import Similarities, average, evaluate_judgments, evaluate_truth
from simgrad.runs.outcome import what_is_best


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
    qrels: tuple[str, ...] = (),
    measures: tuple[str, ...] = ("nDCG@10",),
    groups: Path | None = None,
    margin: float = POINT,
    missing: Literal["error", "zero"] = "error",
    ignore_identical_ids: bool = False,
    trec: Path | None = None,
    level: float = 0.95,
    names: tuple[str, ...] = (),
    ranks: Path | None = None,
    output: Path | None = None,
    metrics: bool = False,
    device: str = "auto",
) -> Any:
    """Metrics of one system with intervals, or the differences between several.

    Args:
        systems: run folders, imported checkpoints (with --data), files of embeddings (arrays
            images, texts, image_of_caption), of similarities (images x captions) or of ranks; .npz,
            .npy, .safetensors, .parquet. With --qrels, rankings of others. With commas between
            them they are seeds of one system: A1,A2,A3 B1,B2,B3
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
        qrels: judgments, to compare rankings instead (MTEB's and MIEB's predictions, TREC, ranx):
            a file, a BEIR folder, a folder with one of these for each task, or TASK=FILE. A system
            is then a file, or a folder with a file for each task: TASK_predictions.json, TASK.trec
        measures: of rankings; who leads is said by the first. nDCG@10, R@100, AP, RR@10, P@5,
            Success@1
        groups: of rankings, a file of queries and the group of each, or a folder with one for each
            task: queries of a group (captions of an image) stand or fall together
        margin: of rankings, a difference in points below which systems are equivalent
        missing: of rankings, what a judged query means that a system did not rank
        ignore_identical_ids: of rankings, leave out documents that have the id of the query
        trec: write rankings and judgments to this folder as TREC files
        level: confidence level of the intervals
        names: names of the systems in tables, in order
        ranks: write the first system's rank of every query to this .parquet file
        output: write all results to this .json, .csv, .md, .tex or .html file
        metrics: list all metrics and exit
        device: auto, cpu, cuda, cuda:N or mps
    """
    if metrics:
        return list_metrics()
    if output is not None:
        check_output(output)
    if qrels:
        return show_rankings(
            Asked(systems, qrels, names, groups, split or "test", trec, output),
            measures=measures,
            margin=margin,
            level=level,
            missing=missing,
            ignore_identical_ids=ignore_identical_ids,
        )
    if protocol is not None:
        find_protocol(protocol)
    arrays: dict[str, Any] = {
        "image_of_caption": image_of_caption,
        "captions_per_image": captions_per_image,
        "normalise": normalise,
        "device": device,
    }
    place: dict[str, Any] = {"data": data, "features": features}

    def open_one(name: str) -> Retriever:
        return open(name, **arrays, **({} if Path(name).expanduser().is_file() else place))

    opened = [[open_one(name) for name in group.split(",")] for group in systems]
    opened += [[open_pretrained(spec, device=device, **place)] for spec in model]
    opened += [[open(first, second, **arrays)] for first, second in _pairs(images, texts)]
    if not opened:
        raise InputError(
            "evaluate what? Give a run's folder, a file, --model, or --images and --texts."
        )
    graded = Graded(judgments, truth, sure, coco, tuple(recalls))
    measured: list[tuple[str, list[Metrics], dict[str, float]]] = []
    if ensemble:
        together = average([one.similarities(split) for group in opened for one in group])
        metrics_of_all = together.measure(protocol, recalls, rerank)
        knows = all(one.has_model for group in opened for one in group)
        measured.append((together.name, [metrics_of_all], graded.of(together, knows)))
    else:
        for group in opened:
            name = ",".join(_named(one) for one in group)
            measured.append((name, *_measure(group, split, protocol, recalls, rerank, graded)))
    labels = _labels(names, len(measured))
    found = [
        Evaluated(label, label if names else name, tuple(runs), level, more)
        for label, (name, runs, more) in zip(labels, measured, strict=True)
    ]
    result = Evaluation(tuple(found), level)
    result.print()  # first: what was computed is seen, whatever cannot be written
    if ranks is not None:
        found[0].runs[0].ranks.save(refuse_foreign(ranks, "i2t_tied"))
    if trec is not None:
        one_each = [together] if ensemble else [group[0].similarities(split) for group in opened]
        write_own(trec, dict(zip(labels, one_each, strict=True)))
    if output is not None:
        result.write(output)
        say(f"\n{output}: written.")
    return result.to_dict()


def _named(one: Retriever) -> str:
    """What it is called; the model of `choose`, or a study, also by what it is."""
    return one.name if one.run is None else f"{one.name}{what_is_best(one.run)}"


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


def _measure(
    group: Sequence[Retriever],
    split: str | None,
    protocol: str | None,
    recalls: Sequence[int],
    rerank: int | None,
    graded: "Graded",
) -> tuple[list[Metrics], dict[str, float]]:
    """Metrics of each, and what else was asked of the first."""
    if not graded.asked:
        named: dict[str, Any] = {"protocol": protocol, "recalls": recalls, "rerank": rerank}
        return [one.evaluate(split, **named) for one in group], {}
    found = [one.similarities(split) for one in group]
    metrics = [each.measure(protocol, recalls, rerank) for each in found]
    return metrics, graded.of(found[0], group[0].has_model)


@dataclass(frozen=True)
class Graded:
    """Metrics beside those of own pairs: by people, by what is true, by COCO's other captions."""

    judgments: Path | None
    truth: bool | str
    sure: float
    coco: bool
    recalls: tuple[int, ...]

    @property
    def asked(self) -> bool:
        """Whether any of them is asked for."""
        return self.judgments is not None or bool(self.truth) or self.coco

    def of(self, found: Similarities, has_data: bool) -> dict[str, float]:
        """The judgments of one system; arrays alone do not know what their rows are."""
        values: dict[str, float] = {}
        scores, split = found.scores, found.split
        if self.judgments is not None:
            if not has_data:
                raise InputError("--judgments needs a run: its data names images and captions.")
            values |= evaluate_judgments(scores, split, self.judgments, recalls=self.recalls)
        if self.truth:
            if not has_data:
                raise InputError("--truth needs a run: its data knows what is true.")
            rows = None
            if isinstance(self.truth, str):
                rows = rows_of(read_found(self.truth), split, self.sure, place=self.truth)
            values |= evaluate_truth(scores, split, recalls=self.recalls, found=rows)
        if self.coco:
            if split.caption_ids is None or are_numbers(split.image_names):
                raise InputError("--coco needs COCO's image and caption ids beside the embeddings.")
            values |= evaluate_coco(
                scores,
                [_number(i) for i in split.image_names],
                [_number(i) for i in split.caption_ids],
                recalls=self.recalls,
            )
        return values


def _number(text: str) -> int:
    """COCO's number at the end of a name: 391895, COCO_val2014_000000391895.jpg."""
    digits = Path(text).stem.rsplit("_", 1)[-1]
    if not digits.isdigit():
        raise InputError(f"'{text}' does not end in a number of COCO's.")
    return int(digits)
