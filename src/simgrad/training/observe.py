"""What is looked at while a run trains: validation, where the weight falls, what goes wrong."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor

from simgrad.analysis import attention
from simgrad.core.errors import NotFinite
from simgrad.data.batches import Batch
from simgrad.data.sampling import IndexBatch
from simgrad.evaluation import metric_of
from simgrad.models import Encoded, RetrievalModel
from simgrad.objectives import Objective, Positives
from simgrad.retriever.encoding import validate
from simgrad.retriever.fitting import foreign_captions
from simgrad.retriever.retriever import Retriever
from simgrad.runs.recipe import Recipe
from simgrad.training import distributed
from simgrad.training.checkpoints import Checkpoints
from simgrad.training.display import Display
from simgrad.training.optimizing import moment, part_of_run
from simgrad.training.records import Records
from simgrad.training.trouble import TrainingError, cures_of_collapse, damaged_weights, not_finite

_MOST = 2000  # triplets that are kept


class Observer:
    """Looks at a run in progress: validates it, keeps its best weights, names what goes wrong."""

    def __init__(
        self,
        recipe: Recipe,
        retriever: Retriever,
        objectives: Mapping[str, Objective],
        kept: Checkpoints,
        records: Records,
        display: Display,
    ) -> None:
        self.recipe, self.retriever, self.model = recipe, retriever, retriever.model
        self.objectives, self.kept = objectives, kept
        self.records, self.display = records, display

    def say_what_is_foreign(self) -> None:
        """Captions in a language that a pretrained text network seems not to know."""
        at, retriever = self.kept.progress, self.retriever
        if at.step == 0 and self.recipe.start_from is None and not at.warnings:
            text = foreign_captions(self.model, retriever.tokenizer, retriever.dataset)
            if text is not None:
                at.warnings.append({"step": 0, "text": text})
                self.display.say(text)

    @torch.no_grad()
    def evaluate(self, index: IndexBatch, steps: int) -> None:
        """Validate, note what the objective attends to in a full batch, keep the best weights."""
        model, recipe, at = self.model, self.recipe, self.kept.progress
        # Reading the loss waits for the device: the speed read next is that of training.
        loss = float(self.kept.total)
        speed, batch_seconds = self.display.speed(), self.display.batch_seconds()
        self.require_finite_weights()
        model.eval()
        metrics, images, captions = validate(model, self.retriever.sources["val"])
        now = moment(recipe, at.epoch, max(0, at.place - 1), steps)
        chosen = self.objectives[now.objective]
        entry: dict[str, Any] = {
            "step": at.step,
            "epoch": at.epoch + at.place / steps,
            "loss": loss / max(1, at.losses),
            "lr": recipe.lr * now.lr_factor,
            "seconds": self.kept.seconds(),
            "samples_per_second": round(speed, 1),
            **({} if batch_seconds is None else {"batch_seconds": batch_seconds}),
            "val": {k: round(v, 4) for k, v in metrics.to_dict().items()},
            "attention": self._observe(index, chosen),
        }
        if not np.isfinite(loss):
            self.refuse(loss, index)
        self.kept.total.zero_()
        at.losses = 0
        at.evaluations += 1
        # Processes have batch norms of their own: the first decides.
        score = distributed.first(entry["val"][recipe.select])
        metric, first = metric_of(recipe.select), at.evaluations == 1
        better = first or metric.improves(score, at.best)
        worse = not first and metric.improves(at.best, score)
        at.since_best = 0 if better else at.since_best + 1
        if better:
            self.kept.note_best(score, chosen)
            if recipe.validation_only:
                self.kept.ranks = metrics.ranks
        entry["spread"] = round(spread(model, images, captions), 6)
        at.over = recipe.early_stop is not None and at.since_best >= recipe.early_stop
        can_freeze = now.train_backbone and model.can_freeze()
        found = at.watch.look(
            entry,
            entry["spread"],
            worse,
            lambda: cures_of_collapse(recipe, chosen, can_freeze, model.config.lock),
        )
        for text in found:
            at.warnings.append({"step": at.step, "text": text})
            self.display.say(f"step {at.step}: {text}")
        self.records.evaluation(entry)
        self.display.evaluated(entry, on_cpu=self.retriever.device.type == "cpu")

    def _observe(self, index: IndexBatch, chosen: Objective) -> dict[str, Any]:
        """How the objective spreads its weight over one training batch; one process looks."""
        if distributed.rank() > 0:
            return {}
        batch = self.retriever.sources["train"].fetch(index)
        pairs = self.recipe.other_captions_are_negatives
        attention, triplets = observe(chosen, self.model, batch, pairs=pairs)
        self.kept.triplets[part_of_run(self.recipe, self.kept.progress.epoch)] = triplets
        return attention

    def note_attention(self, index: IndexBatch, chosen: Objective) -> None:
        """Between evaluations, how the objective spreads its weight over a batch."""
        with self.display.aside():
            self.model.eval()
            spread_of_weight = self._observe(index, chosen)
            self.model.train()
            entry = {"step": self.kept.progress.step, "attention": spread_of_weight}
            self.records.attention(entry)

    @contextmanager
    def naming_divergence(self) -> Iterator[None]:
        """Say at which step a model gave NaN or infinity, though its weights may be finite."""
        try:
            yield
        except NotFinite as error:
            self.describe("failed")
            what = str(error).partition(". ")[0]
            raise self._not_finite(what) from error

    def refuse(self, loss: float, index: IndexBatch) -> None:
        """For a loss that is no number; `index`: the batch that gave it, or the first that did."""
        self.describe("failed")
        begun = ", ".join(map(str, index.captions[:8].tolist()))
        what = f"the loss is {loss}; first training captions (rows) of the batch: {begun}"
        raise self._not_finite(what)

    def require_finite_weights(self) -> None:
        """No checkpoint holds a NaN: the one before stays instead."""
        name = damaged_weights(self.model)
        if name is not None:
            self.describe("failed")
            what = f"weight {name} contains NaN or infinity"
            raise self._not_finite(what)

    def _not_finite(self, what: str) -> TrainingError:
        at = self.kept.progress
        return not_finite(at.step, at.epoch, what, self.objectives.values())

    def describe(self, status: str) -> None:
        """Write how the run stands into run.json."""
        self.records.describe(status, self.kept.progress, self.kept.seconds())


@torch.no_grad()
def observe(
    objective: Objective, model: RetrievalModel, batch: Batch, *, pairs: bool
) -> tuple[dict[str, Any], Tensor]:
    """How an objective spreads its weight over a batch, and the batch's triplets (k, 2).

    `pairs`: an image's other captions are negatives, as the run's recipe says.
    """
    batch = batch.proper()
    images = model.encode_images(batch.images)
    captions = model.encode_captions(batch.tokens, batch.lengths)
    owner = batch.image_of_caption
    if pairs:  # every caption brings its image along
        images, owner = images.select(owner), torch.arange(len(owner), device=owner.device)
    S = model.similarities(images, captions).float()  # (images, captions)
    spread_of_weight: dict[str, Any] = {}
    if not objective.needs_offline:
        spread_of_weight = attention(objective.weigh(S, owner), owner)
    return spread_of_weight, triplets(S, owner)[:_MOST]


def triplets(S: Tensor, image_of_caption: Tensor) -> Tensor:
    """(positive, hardest negative) similarities of both directions."""
    pairs = Positives.of_captions(image_of_caption, len(S))
    parts = []
    for side, scores in ((pairs.i2t, S), (pairs.t2i, S.t())):
        negatives = scores.clone()
        negatives[side.query, side.candidate] = -torch.inf
        hardest = negatives.max(1).values[side.query]
        own = scores[side.query, side.candidate]
        parts.append(torch.stack([own, hardest], 1))
    found = torch.cat(parts)
    return found[torch.isfinite(found).all(1)]


@torch.no_grad()
def spread(model: RetrievalModel, images: Encoded, captions: Encoded) -> float:
    """How much the similarities of one query differ: near zero when all is one point.

    Of both directions the smaller: it is enough that all images, or all captions, are alike.
    """
    some = slice(0, 128)
    S = model.similarities(images.select(some), captions.select(some)).float()
    if min(S.shape) < 2:
        return 1.0  # nothing to compare
    return float(min(S.std(1).mean(), S.std(0).mean()))
