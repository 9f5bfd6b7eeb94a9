"""The training loop, top to bottom: fetch, take a step (step.py), watch.

A run is decided by its recipe, its data and its seed alone. It can be killed anywhere: `train` on
the same folder goes on from the last checkpoint and, on a CPU, ends with the same weights bit for
bit.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from simgrad.core.errors import InputError, NotFinite
from simgrad.data.sampling import IndexBatch, Sampler
from simgrad.evaluation import metric_of
from simgrad.objectives import Objective
from simgrad.retriever.encoding import building, validate
from simgrad.retriever.fitting import foreign_captions
from simgrad.retriever.forgetting import other_data, score_other
from simgrad.retriever.retriever import Retriever
from simgrad.runs import run
from simgrad.runs.data import same_data
from simgrad.runs.found_pairs import known_pairs
from simgrad.runs.outside import draw_of
from simgrad.runs.recipe import Recipe
from simgrad.runs.run import Run
from simgrad.runs.tested import what_is_tested
from simgrad.training import distributed, grouped, state
from simgrad.training.checkpoints import Checkpoints
from simgrad.training.display import Display
from simgrad.training.graph import Captures
from simgrad.training.loggers import Log
from simgrad.training.observe import observe, spread
from simgrad.training.optimizing import moment, part_of_run, total_epochs
from simgrad.training.records import Records
from simgrad.training.shares import own_share
from simgrad.training.step import Step
from simgrad.training.trouble import (
    cures_of_collapse,
    damaged_weights,
    not_finite,
)
from simgrad.training.wise import mix


class Training:
    """A run in progress."""

    def __init__(
        self,
        recipe: Recipe,
        folder: Path,
        retriever: Retriever,
        quiet: bool,
        log: Log | None = None,
    ) -> None:
        self.recipe, self.folder, self.retriever = recipe, folder, retriever
        self.model, self.device = retriever.model, retriever.device
        self.split = retriever.dataset.split("train")
        found = known_pairs(recipe, self.split)
        self.other = other_data(recipe, self.model)  # refused now, and not at the end
        self.step = Step(self.model, recipe, self.device, found)
        self.sampler = Sampler(
            recipe.sampler, recipe.batch, recipe.captions_per_image, recipe.seed, recipe.drop_last
        )
        wanted = any(each.needs_offline for each in self.step.objectives.values())
        self.draw = draw_of(recipe, self.split, None, retriever.dataset) if wanted else None
        # By whether the pretrained network is trained: until then its features are kept.
        made = retriever.sources
        self.sources = {False: made.get("frozen", made["train"]), True: made["train"]}
        self.captures = Captures(
            self.model, self.step.update, recipe, self.device, self.step.objectives.values()
        )
        self.kept = Checkpoints(folder, retriever, self.step.learned, self.step.optimizer)
        self.progress = self.kept.progress
        self.display = Display(recipe, quiet or distributed.rank() > 0)
        self.records = Records(folder, recipe, retriever, distributed.rank() == 0, log)
        self.started = self.saved = time.monotonic()

    def go(self, asked_to_stop: Callable[[], bool]) -> None:
        """Train until the end, or until asked to stop."""
        with building:  # a run beside this one may be drawing its initial weights
            torch.manual_seed(self.recipe.seed)
            self._resume()
            if distributed.rank() > 0:  # dropout by chances of its own; those of the first are kept
                own = 1_000_003 * distributed.rank() + self.progress.step
                torch.manual_seed(self.recipe.seed + own)
        self._describe("running")
        for text in self.step.scales if self.progress.step == 0 else ():
            self.display.say(text)
        self._say_what_is_foreign()
        epochs = total_epochs(self.recipe)
        with self.display.showing(epochs):
            if self.progress.evaluations == 0 and (self.model.config.ready or not epochs):
                self._evaluate_first()
            while self.progress.epoch < epochs and not self.progress.over:
                with self._naming_divergence():
                    completed = self._epoch(asked_to_stop)
                if not completed:
                    self._checkpoint()
                    self._describe("stopped")
                    return
        grouped.leave()
        self._finish()

    def _say_what_is_foreign(self) -> None:
        """Captions in a language that a pretrained text network seems not to know."""
        at, retriever = self.progress, self.retriever
        if at.step == 0 and self.recipe.start_from is None and not at.warnings:
            text = foreign_captions(self.model, retriever.tokenizer, retriever.dataset)
            if text is not None:
                at.warnings.append({"step": 0, "text": text})
                self.display.say(text)

    def _evaluate_first(self) -> None:
        """What a pretrained model can do before the first step."""
        plan = self._batches_of(0)
        first = self.step.objectives[moment(self.recipe, 0, 0, len(plan)).objective]
        if not first.needs_offline:
            self.model.eval()
            with torch.no_grad():
                batch = self.sources[True].fetch(own_share(plan[0]))
                self.kept.total += self.step.loss(batch, first)
            self.progress.losses += 1
        self._evaluate(plan[0], len(plan))

    def _batches_of(self, epoch: int) -> list[IndexBatch]:
        """The rows of every batch."""
        plan = self.sampler.epoch(self.split, epoch)
        if not plan:
            raise InputError(
                f"no batch of {self.recipe.batch}: lower `batch`, or drop_last: false."
            )
        return plan

    def _epoch(self, asked_to_stop: Callable[[], bool]) -> bool:
        """The rest of an epoch; whether it was completed."""
        recipe, at, epoch = self.recipe, self.progress, self.progress.epoch
        plan = self._batches_of(epoch)
        steps, begin = len(plan), moment(recipe, epoch, 0, len(plan))
        drawn = 0
        if self.draw is not None and self.step.objectives[begin.objective].needs_offline:
            plan, drawn = list(self.draw.epoch(plan, epoch)), self.draw.for_each
        self.model.set_backbone(begin.train_backbone)
        self.model.train()
        source = self.sources[begin.train_backbone]
        # Fetch: read ahead, or, where steps are captured, as rows of numbers that lie on the GPU.
        captured = grouped.member_of(self.step, source, drawn) or self.captures.of(
            source, trained=begin.train_backbone, drawn=drawn
        )
        take: Callable[[Any, Objective], Tensor] = captured or self.step.update
        # Of several processes each reads its share, and cuts pictures by chances of its own.
        seed = recipe.seed * 100_003 + epoch + 1_000_003 * distributed.rank()
        shares = [own_share(index) for index in plan]
        batches: Any = (
            source.batches(shares, start=at.place, seed=seed)
            if captured is None
            else captured.rows(plan, at.place)
        )
        for place, batch in enumerate(batches, at.place):
            now = moment(recipe, epoch, place, steps)
            self.step.optimizer.set_rates(now)
            chosen = self.step.objectives[now.objective]
            loss = take(batch, chosen)  # encode, weigh, backward, update
            self.kept.total += loss
            at.losses, at.step, at.place = at.losses + 1, at.step + 1, place + 1
            self.display.step(epoch, (place + 1) / steps, loss, len(plan[place].captions))
            # Watch.
            if self.device.type == "cpu" or at.step % 50 == 0:  # asking a GPU means waiting for it
                self._require_finite_loss(loss, plan[place])
            if recipe.attention_every and at.step % recipe.attention_every == 0:
                with self.display.aside():
                    self._note_attention(plan[0], chosen)
            last = at.place == steps
            end = last and epoch + 1 == total_epochs(recipe)
            every = recipe.evaluate_every
            if end or (at.step % every == 0 if every else last):
                self._evaluate(plan[0], steps)
                self.model.train()
            if last:
                at.epoch, at.place = epoch + 1, 0
            if at.over:
                break
            if time.monotonic() - self.saved > recipe.checkpoint_seconds:
                with self.display.aside():
                    self._checkpoint()
            if asked_to_stop():
                return False
        return True

    @contextmanager
    def _naming_divergence(self) -> Iterator[None]:
        """Weights may be finite still where what a model makes of a batch is not."""
        try:
            yield
        except NotFinite as error:
            self._describe("failed")
            what = str(error).partition(". ")[0]
            raise not_finite(self.progress.step, self.progress.epoch, what) from error

    def _require_finite_loss(self, loss: Tensor, index: IndexBatch) -> None:
        value = float(loss)
        if not np.isfinite(value):
            self._describe("failed")
            begun = ", ".join(map(str, index.captions[:8].tolist()))
            what = f"the loss is {value}; first training captions (rows) of the batch: {begun}"
            raise not_finite(self.progress.step, self.progress.epoch, what)

    def _require_finite_weights(self) -> None:
        """No checkpoint holds a NaN: the one before stays instead."""
        name = damaged_weights(self.model)
        if name is not None:
            self._describe("failed")
            what = f"weight {name} contains NaN or infinity"
            raise not_finite(self.progress.step, self.progress.epoch, what)

    @torch.no_grad()
    def _evaluate(self, index: IndexBatch, steps: int) -> None:
        """Validate, note what the objective attends to in a full batch, keep the best weights."""
        model, recipe, at = self.model, self.recipe, self.progress
        # Reading the loss waits for the device: the speed read next is that of training.
        loss = float(self.kept.total)
        speed, batch_seconds = self.display.speed(), self.display.batch_seconds()
        self._require_finite_weights()
        model.eval()
        metrics, images, captions = validate(model, self.retriever.sources["val"])
        now = moment(recipe, at.epoch, max(0, at.place - 1), steps)
        chosen = self.step.objectives[now.objective]
        entry: dict[str, Any] = {
            "step": at.step,
            "epoch": at.epoch + at.place / steps,
            "loss": loss / max(1, at.losses),
            "lr": recipe.lr * now.lr_factor,
            "seconds": self._seconds(),
            "samples_per_second": round(speed, 1),
            **({} if batch_seconds is None else {"batch_seconds": batch_seconds}),
            "val": {k: round(v, 4) for k, v in metrics.to_dict().items()},
            "attention": self._observe(index, chosen),
        }
        if not np.isfinite(entry["loss"]):
            self._require_finite_loss(self.kept.total, index)
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
        self.display.evaluated(entry, on_cpu=self.device.type == "cpu")

    def _observe(self, index: IndexBatch, chosen: Objective) -> dict[str, Any]:
        """How the objective spreads its weight over one training batch; one process looks."""
        if distributed.rank() > 0:
            return {}
        batch = self.retriever.sources["train"].fetch(index)
        pairs = self.recipe.other_captions_are_negatives
        attention, triplets = observe(chosen, self.model, batch, pairs=pairs)
        self.kept.triplets[part_of_run(self.recipe, self.progress.epoch)] = triplets
        return attention

    def _note_attention(self, index: IndexBatch, chosen: Objective) -> None:
        self.model.eval()
        told = self._observe(index, chosen)
        self.model.train()
        self.records.attention({"step": self.progress.step, "attention": told})

    def _checkpoint(self) -> None:
        """Write everything needed to go on."""
        self.saved = time.monotonic()
        self._require_finite_weights()
        self.kept.write(self.recipe.select, self._seconds())

    def _resume(self) -> None:
        same_data(Run(self.folder).info, self.retriever.dataset, self.folder)
        problems = self.kept.read()
        at = self.progress = self.kept.progress
        self.records.begin(at.evaluations, at.step)
        if problems is None:
            return
        for text in problems:
            self.display.say(f"{text} Resuming from the previous checkpoint.")
        self.display.say(f"resuming from step {at.step}.")

    def _finish(self) -> None:
        """Test the best checkpoint once, and only now; a trial's never."""
        if self.recipe.validation_only:
            if distributed.rank() == 0:
                self.kept.write_ranks()
                self._describe("finished")
                self.kept.drop_weights()
            return
        self._checkpoint()
        if distributed.rank() > 0:
            return
        if self.recipe.wise:
            mix(self.recipe, self.folder, self.retriever)
        with building:  # its weights are drawn before they are read
            best = Run(self.folder).load(str(self.device))
        self.records.triplets(self.kept.triplets)
        asked = what_is_tested(self.recipe, self.retriever.dataset)
        if asked is not None:
            found = self.retriever.with_model(best.model).similarities(asked.split)
            run.write_test(self.folder, found.measure(asked.protocol, rerank=self.recipe.rerank))
        score_other(self.recipe, self.other, self.folder, self.retriever, best.model)
        self._describe("finished")
        state.forget(self.folder / run.LAST)

    def _describe(self, status: str) -> None:
        self.records.describe(status, self.progress, self._seconds())

    def _seconds(self) -> float:
        """Of all sittings together."""
        return self.progress.seconds + time.monotonic() - self.started
