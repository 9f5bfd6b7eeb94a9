"""The training loop: fetch, encode, weigh, backward, update, watch.

A run is decided by its recipe, its data and its seed alone. It can be killed anywhere: `train` on
the same folder goes on from the last checkpoint and, on a CPU, ends with the same weights bit for
bit.
"""

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from simgrad.core.errors import InputError
from simgrad.data.batches import Batch, Source
from simgrad.data.sampling import IndexBatch, Sampler
from simgrad.models.base import RetrievalModel
from simgrad.objectives import Objective
from simgrad.objectives import objective as read
from simgrad.retriever.encoding import building
from simgrad.retriever.forgetting import other_data, score_other
from simgrad.retriever.retriever import Retriever
from simgrad.runs import run
from simgrad.runs.data import same_data, what_is_tested
from simgrad.runs.found_pairs import FoundPairs, known_pairs
from simgrad.runs.offline_draws import draw_of
from simgrad.runs.recipe import Recipe
from simgrad.runs.run import Run
from simgrad.training import distributed, grouped, state
from simgrad.training.checkpoints import Checkpoints, Progress
from simgrad.training.display import Display
from simgrad.training.distributed import every_share, own_share
from simgrad.training.graph import Captures
from simgrad.training.loggers import Log
from simgrad.training.observe import Observer
from simgrad.training.optimizing import Optimizer, moment, start_scales, total_epochs
from simgrad.training.records import Records
from simgrad.training.weighing import Encoder, each_with_its_image, weigh
from simgrad.training.wise import mix


class Steps(Protocol):
    """Where the loop gets its batches, and what takes a step with one: plain or captured."""

    def batches(self, plan: list[IndexBatch], start: int, seed: int) -> Iterator[Any]:
        """An epoch's batches from the `start`-th on, as this kind of step wants them."""

    def __call__(self, batch: Any, objective: Objective) -> Tensor:
        """One update at the rates set before; its loss, still on the device."""


@dataclass
class PlainSteps:
    """Batches are read ahead, and each is taken as it is."""

    source: Source
    update: Callable[[Batch, Objective], Tensor]

    def batches(self, plan: list[IndexBatch], start: int, seed: int) -> Iterator[Batch]:
        """Each of several processes reads its own share, with random numbers of its own."""
        seed += 1_000_003 * distributed.rank()
        return self.source.batches([own_share(index) for index in plan], start=start, seed=seed)

    def __call__(self, batch: Batch, objective: Objective) -> Tensor:
        return self.update(batch, objective)


class Step:
    """A model, its objectives and their optimiser: takes batches, changes weights."""

    def __init__(
        self,
        model: RetrievalModel,
        recipe: Recipe,
        device: torch.device,
        found: FoundPairs | None = None,
    ) -> None:
        self.model, self.recipe, self.device, self.found = model, recipe, device, found
        self.pairs = recipe.other_captions_are_negatives
        specs = [recipe.objective] + ([recipe.first_objective] if recipe.first_objective else [])
        self.objectives: dict[str, Objective] = {s: read(s).to(device) for s in specs}
        for each in self.objectives.values():
            each.replays = False  # steps are captured as a whole, where it helps
            if recipe.reduction != "published":
                each.mean = recipe.reduction == "mean"
        self.scales = start_scales(model, self.objectives.values())
        self.learned = nn.ModuleList(self.objectives.values())  # temperatures and the like
        self.optimizer = Optimizer(model, self.learned, recipe, device)
        self.encoder = Encoder(model, recipe.micro_batch, self.optimizer.autocast)

    def update(self, batch: Batch, objective: Objective) -> Tensor:
        """One update at the rates set before; the loss. Nothing here waits for the device."""
        self.optimizer.clear()
        loss = self.gradient(batch, objective)
        self.optimizer.update()  # clip, then Adam
        return loss

    def gradient(self, batch: Batch, objective: Objective) -> Tensor:
        """Fill the parameters' gradients; the loss."""
        if self.pairs and self.model.mixes_images():
            batch = each_with_its_image(batch)
        loss = self.loss(batch, objective)
        # Backward: W to the encoders' weights.
        self.encoder.backward(self.optimizer.scaled(loss))
        return loss.detach()

    def loss(self, batch: Batch, objective: Objective) -> Tensor:
        """The loss of a batch, ready to be sent back."""
        found = None
        if self.found is not None:  # of all processes' batch
            index = every_share(batch.index)
            found = self.found.within(index, self.device)
        # Encode: n images and m captions, each to a vector (n, d) or to a set of them (n, k, d).
        images, captions = self.encoder.encode(batch)
        # Weigh: similarities S (n, m) to weights W = dL/dS (n, m), and the loss.
        with torch.autocast(self.device.type, enabled=False):
            return weigh(
                self.model,
                objective,
                images,
                captions,
                batch,
                pairs=self.pairs,
                found=found,
                autocast=self.optimizer.autocast,
            )


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
        self.display = Display(recipe, quiet or distributed.rank() > 0)
        self.records = Records(folder, recipe, retriever, distributed.rank() == 0, log)
        self.observer = Observer(
            recipe, retriever, self.step.objectives, self.kept, self.records, self.display
        )
        self.saved = time.monotonic()

    @property
    def progress(self) -> Progress:
        """Where the run stands."""
        return self.kept.progress

    def go(self, asked_to_stop: Callable[[], bool]) -> None:
        """Train until the end, or until asked to stop."""
        with building:  # a run beside this one may be drawing its initial weights
            torch.manual_seed(self.recipe.seed)
            self._resume()
            if distributed.rank() > 0:  # its own dropout; a checkpoint keeps the first process's
                own = 1_000_003 * distributed.rank() + self.progress.step
                torch.manual_seed(self.recipe.seed + own)
        self.observer.describe("running")
        for text in self.step.scales if self.progress.step == 0 else ():
            self.display.say(text)
        self.observer.say_what_is_foreign()
        epochs = total_epochs(self.recipe)
        with self.display.showing(epochs):
            if self.progress.evaluations == 0 and (self.model.config.ready or not epochs):
                self._evaluate_first()
            while self.progress.epoch < epochs and not self.progress.over:
                with self.observer.naming_divergence():
                    completed = self._epoch(asked_to_stop)
                if not completed:
                    self._checkpoint()
                    self.observer.describe("stopped")
                    return
        grouped.leave()
        self._finish()

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
        self.observer.evaluate(plan[0], len(plan))

    def _batches_of(self, epoch: int) -> list[IndexBatch]:
        """The rows of every batch."""
        plan = self.sampler.epoch(self.split, epoch)
        if not plan:
            raise InputError(
                f"no batch of {self.recipe.batch}: lower `batch`, or drop_last: false."
            )
        return plan

    def _steps(self, source: Source, *, trained: bool, drawn: int) -> Steps:
        """Of a group, where this run is in one; captured, where that is possible; or plain."""
        return (
            grouped.member_of(self.step, source, drawn)
            or self.captures.of(source, trained=trained, drawn=drawn)
            or PlainSteps(source, self.step.update)
        )

    def _epoch(self, asked_to_stop: Callable[[], bool]) -> bool:
        """The rest of an epoch; whether it was completed."""
        recipe, at, epoch = self.recipe, self.progress, self.progress.epoch
        plan = self._batches_of(epoch)
        count, begin = len(plan), moment(recipe, epoch, 0, len(plan))
        drawn = 0
        if self.draw is not None and self.step.objectives[begin.objective].needs_offline:
            plan, drawn = list(self.draw.epoch(plan, epoch)), self.draw.for_each
        self.model.set_backbone(begin.train_backbone)
        self.model.train()
        source = self.sources[begin.train_backbone]
        steps = self._steps(source, trained=begin.train_backbone, drawn=drawn)
        seed = recipe.seed * 100_003 + epoch
        for place, batch in enumerate(steps.batches(plan, at.place, seed), at.place):  # fetch
            now = moment(recipe, epoch, place, count)
            self.step.optimizer.set_rates(now)
            chosen = self.step.objectives[now.objective]
            loss = steps(batch, chosen)  # encode, weigh, backward, update: see `Step.update`
            self.kept.total += loss
            at.losses, at.step, at.place = at.losses + 1, at.step + 1, place + 1
            self.display.step(epoch, (place + 1) / count, loss, len(plan[place].captions))
            # Watch.
            asking = self.device.type == "cpu" or at.step % 50 == 0  # a GPU has to be waited for
            if asking and not math.isfinite(loss):
                self.observer.refuse(float(loss), plan[place])
            if recipe.attention_every and at.step % recipe.attention_every == 0:
                self.observer.note_attention(plan[0], chosen)
            last = at.place == count
            end = last and epoch + 1 == total_epochs(recipe)
            every = recipe.evaluate_every
            if end or (at.step % every == 0 if every else last):
                self.observer.evaluate(plan[0], count)
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

    def _checkpoint(self) -> None:
        """Write everything needed to go on."""
        self.saved = time.monotonic()
        self.observer.require_finite_weights()
        self.kept.write(self.recipe.select)

    def _resume(self) -> None:
        same_data(Run(self.folder).info, self.retriever.dataset, self.folder)
        problems = self.kept.read()
        self.records.begin(self.progress.evaluations, self.progress.step)
        if problems is None:
            return
        for text in problems:
            self.display.say(f"{text} Resuming from the previous checkpoint.")
        self.display.say(f"resuming from step {self.progress.step}.")

    def _finish(self) -> None:
        """Test the best checkpoint once, and only now; a trial's never."""
        if self.recipe.validation_only:
            if distributed.rank() == 0:
                self.kept.write_ranks()
                self.observer.describe("finished")
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
        self.observer.describe("finished")
        state.forget(self.folder / run.LAST)
