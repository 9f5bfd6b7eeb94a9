"""The training loop, top to bottom.

A run is decided by its recipe and seed alone. It can be killed anywhere: `train` on the same folder
goes on from the last checkpoint and, on a CPU, ends with the same weights bit for bit.
"""

import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from simgrad.core.errors import InputError
from simgrad.core.files import lock
from simgrad.data.base import Dataset
from simgrad.data.sampling import IndexBatch, Sampler
from simgrad.models import save
from simgrad.runs import run
from simgrad.runs.encoding import encode_source, evaluate_encoded
from simgrad.runs.outside import draw_of
from simgrad.runs.prepare import Prepared, building, prepare, source_of
from simgrad.runs.recipe import Recipe
from simgrad.runs.run import LOCK, Run
from simgrad.training import distributed, state
from simgrad.training.claim import claim, same_data
from simgrad.training.display import Display
from simgrad.training.graph import RunSteps, give_back, own_stream
from simgrad.training.observe import observe, spread
from simgrad.training.records import Records
from simgrad.training.schedule import moment, part_of_run, total_epochs
from simgrad.training.signals import politely
from simgrad.training.step import Step
from simgrad.training.trouble import Watch, damaged_weights, naming_lack_of_memory, not_finite


def train_round(
    recipe: Recipe,
    folder: str | Path,
    *,
    dataset: Dataset | None = None,
    quiet: bool = False,
    stop_after: float | None = None,
    shared: dict[Any, Any] | None = None,
) -> Run:
    """Train, or go on training, in `folder`; a finished run is returned as it is.

    `stop_after` ends the run early after so many seconds, ready to be resumed. Runs side by side in
    one process share what they read through `shared`.
    """
    folder = Path(folder)
    with distributed.together():
        chief = distributed.rank() == 0
        held = lock(folder / LOCK, wait=False, what=f"the run {folder}")
        with held if chief else nullcontext():
            if chief:
                claim(recipe, folder)
            distributed.wait()
            if Run(folder).finished:
                if chief:
                    state.forget(folder / run.LAST)  # a kill may have come before that
                return Run(folder)
            _go_on(recipe, folder, prepare(recipe, dataset, shared), quiet, stop_after)
            give_back()
            distributed.wait()
    return Run(folder)


def _go_on(
    recipe: Recipe, folder: Path, prepared: Prepared, quiet: bool, stop_after: float | None
) -> None:
    training = _Training(recipe, folder, prepared, quiet)
    deadline = np.inf if stop_after is None else time.monotonic() + stop_after
    lack = naming_lack_of_memory(recipe, lambda: training.at["step"])
    with politely() as asked_to_stop, own_stream(prepared.device), lack:
        training.go(lambda: asked_to_stop() or deadline < time.monotonic())


class _Training:
    """A run in progress."""

    def __init__(self, recipe: Recipe, folder: Path, prepared: Prepared, quiet: bool) -> None:
        self.recipe, self.folder, self.it = recipe, folder, prepared
        self.split = prepared.dataset.split("train")
        self.step = Step(prepared.model, recipe, prepared.device)
        self.sampler = Sampler(
            recipe.sampler, recipe.batch, recipe.captions_per_image, recipe.seed, recipe.drop_last
        )
        self.draw = None
        if recipe.candidates is not None and any(map(self._uses_draws, self.step.objectives)):
            self.draw = draw_of(recipe, self.split)
        sources = {False: prepared.frozen or prepared.train, True: prepared.train}
        self.run_steps = RunSteps(self.step, sources, recipe, prepared.device)
        self.watch = Watch()
        self.display = Display(recipe, quiet or distributed.rank() > 0)
        self.records = Records(folder, recipe, writes=distributed.rank() == 0)
        self.total = torch.zeros((), device=prepared.device, dtype=torch.float64)
        self.at: dict[str, Any] = {  # everything else that decides how the run goes on
            "step": 0, "epoch": 0, "place": 0, "best": -1.0, "best_step": 0, "since_best": 0,
            "best_objective": {},  # its temperature and the like, where they are learned
            "losses": 0, "seconds": 0.0, "entries": 0, "warnings": [], "over": False,
        }  # fmt: skip
        self.best: dict[str, Tensor] | None = None
        self.triplets: dict[str, Tensor] = {}  # by part of the run
        self.flat = 0.0  # the loss of a model that finds everything equally similar
        self.started = self.saved = time.monotonic()

    def go(self, asked_to_stop: Any) -> None:
        """Train until the end, or until asked to stop."""
        with building:  # a run beside this one may be drawing its initial weights
            torch.manual_seed(self.recipe.seed)
            self._resume()
        self._describe("running")
        epochs = total_epochs(self.recipe)
        with self.display.showing(epochs):
            while self.at["epoch"] < epochs and not self.at["over"]:
                if not self._epoch(asked_to_stop):
                    self._checkpoint()
                    self._describe("stopped")
                    return
        self._finish()

    def _epoch(self, asked_to_stop: Any) -> bool:
        """The rest of an epoch; whether it was completed."""
        recipe, epoch = self.recipe, self.at["epoch"]
        plan: list[IndexBatch] = self.sampler.epoch(self.split, epoch)
        if not plan:
            raise InputError(f"no batch of {recipe.batch}: lower `batch`, or drop_last: false.")
        steps, begin = len(plan), moment(recipe, epoch, 0, len(plan))
        draw = self.draw if self._uses_draws(begin.objective) else None
        if draw is not None:
            plan = list(draw.epoch(plan, epoch))
        trained = begin.train_backbone
        self.it.model.set_backbone(trained)
        self.it.model.train()

        def moment_of(place: int) -> Any:
            return moment(recipe, epoch, place, steps)

        start, seed = self.at["place"], recipe.seed * 100_003 + epoch
        drawn = 0 if draw is None else draw.for_each
        losses = self.run_steps(plan, start, seed, moment_of, trained=trained, drawn=drawn)
        for place, loss in enumerate(losses, start):
            self.total += loss
            self.at["losses"] += 1
            self.at["step"] += 1
            self.at["place"] = place + 1
            if self.it.device.type == "cpu" or self.at["step"] % 50 == 0:
                self._check(loss, plan[place])
            last = place + 1 == steps
            every = recipe.evaluate_every
            end = last and epoch + 1 == total_epochs(recipe)
            if recipe.attention_every and self.at["step"] % recipe.attention_every == 0:
                self._note_attention(plan[0], moment_of(place).objective)
            if end or (self.at["step"] % every == 0 if every else last):
                self._evaluate(plan[0], steps)
                self.it.model.train()
            if last:
                self.at["epoch"], self.at["place"] = epoch + 1, 0
            self.display.step(epoch, (place + 1) / steps, loss, len(plan[place].captions))
            if self.at["over"]:
                break
            if time.monotonic() - self.saved > recipe.checkpoint_seconds:
                self._checkpoint()
            if asked_to_stop():
                return False
        return True

    def _uses_draws(self, objective: str) -> bool:
        return self.step.objectives[objective].needs_offline

    def _check(self, loss: Tensor, index: IndexBatch) -> None:
        value = float(loss)
        if not np.isfinite(value):
            self._describe("failed")
            begun = ", ".join(map(str, index.captions[:8].tolist()))
            what = f"the loss is {value} in a batch that begins with training captions {begun}"
            raise not_finite(self.at["step"], self.at["epoch"], what)

    def _require_finite_weights(self) -> None:
        """No checkpoint holds a NaN: the one before stays instead."""
        name = damaged_weights(self.it.model)
        if name is not None:
            self._describe("failed")
            raise not_finite(self.at["step"], self.at["epoch"], f"no number in weight {name}")

    @torch.no_grad()
    def _evaluate(self, index: IndexBatch, steps: int) -> None:
        """Validate, note what the objective attends to in a full batch, keep the best weights."""
        model, recipe = self.it.model, self.recipe
        self._require_finite_weights()
        model.eval()
        images, captions = encode_source(model, self.it.val, batch=256)
        metrics = evaluate_encoded(model, images, captions, self.it.val.split.image_of_caption)
        now = moment(recipe, self.at["epoch"], max(0, self.at["place"] - 1), steps)
        entry = {
            "step": self.at["step"],
            "epoch": self.at["epoch"] + self.at["place"] / steps,
            "loss": float(self.total) / max(1, self.at["losses"]),
            "lr": recipe.lr * now.lr_factor,
            "seconds": self._seconds(),
            "samples_per_second": round(self.display.speed(), 1),
            "val": {k: round(v, 4) for k, v in metrics.to_dict().items()},
            "attention": self._observe(index, now.objective),
        }
        if not np.isfinite(entry["loss"]):
            self._check(self.total, index)
        self.total.zero_()
        self.at["losses"] = 0
        score = entry["val"].get(recipe.select)
        if score is None:
            raise InputError(f"recipe: select: there is no metric '{recipe.select}'.")
        better = score > self.at["best"]
        self.at["since_best"] = 0 if better else self.at["since_best"] + 1
        if better:
            learned = {
                k: v.tolist() for k, v in self.step.objectives[now.objective].state_dict().items()
            }
            self.at.update(best=score, best_step=self.at["step"], best_objective=learned)
            self.best = {k: v.detach().clone() for k, v in model.state_dict().items()}
        for text in self.watch.look(entry, spread(model, images, captions), score, self.flat):
            self.at["warnings"].append({"step": self.at["step"], "text": text})
            self.display.say(f"step {self.at['step']}: {text}")
        if recipe.early_stop and self.at["since_best"] >= recipe.early_stop:
            self.at["over"] = True
        self.at["entries"] += 1
        self.records.evaluation(entry)
        self.display.evaluated(entry)

    def _observe(self, index: IndexBatch, objective: str) -> dict[str, Any]:
        """How the objective spreads its weight over one training batch."""
        chosen = self.step.objectives[objective]
        attention, triplets, self.flat = observe(chosen, self.it.model, self.it.train.fetch(index))
        self.triplets[part_of_run(self.recipe, self.at["epoch"])] = triplets
        return attention

    def _note_attention(self, index: IndexBatch, objective: str) -> None:
        self.it.model.eval()
        told = self._observe(index, objective)
        self.it.model.train()
        self.records.attention({"step": self.at["step"], "attention": told})

    def _checkpoint(self) -> None:
        """Write everything needed to go on."""
        self.saved = time.monotonic()
        self._require_finite_weights()
        if distributed.rank() > 0:
            return
        if self.best is not None:
            self._save_best()
        counters = {**self.at, "seconds": self._seconds()}
        counters["watch"] = self.watch.to_json()
        tensors = {
            **state.step_tensors(self.step),
            **{f"triplets.{k}": v for k, v in self.triplets.items()},
            "total": self.total,
        }
        if self.step.scaler.is_enabled():
            counters["scaler"] = self.step.scaler.state_dict()
        state.save_state(self.folder / run.LAST, tensors, counters)

    def _save_best(self) -> None:
        current = {k: v.detach().clone() for k, v in self.it.model.state_dict().items()}
        assert self.best is not None
        self.it.model.load_state_dict(self.best)
        extra = {
            "step": self.at["best_step"],
            self.recipe.select: self.at["best"],
            "objective": self.at["best_objective"],
        }
        save(self.folder / run.BEST, self.it.model, self.it.tokenizer, extra)
        self.it.model.load_state_dict(current)
        self.best = None  # on disk now

    def _resume(self) -> None:
        found = state.load_state(self.folder / run.LAST)
        if found is None:
            self.records.begin(0, 0)
            return
        same_data(self.folder, self.it.dataset)
        tensors, counters, problems = found
        state.restore_step(self.step, tensors)
        self.total.copy_(tensors["total"])
        self.triplets = {
            k.split(".")[1]: v for k, v in tensors.items() if k.startswith("triplets.")
        }
        self.watch = Watch.from_json(counters.pop("watch"))
        if "scaler" in counters:
            self.step.scaler.load_state_dict(counters.pop("scaler"))
        self.at.update(counters)
        for text in problems:
            self.display.say(f"{text} Going on from the checkpoint before it.")
        self.records.begin(self.at["entries"], self.at["step"])
        self.display.say(f"going on from step {self.at['step']}.")

    def _finish(self) -> None:
        """Test the best checkpoint once, and only now."""
        self._checkpoint()
        if distributed.rank() > 0:
            return
        with building:  # its weights are drawn before they are read
            best = Run(self.folder).load(str(self.it.device))
        self.records.triplets(self.triplets)
        if "test" in self.it.dataset.splits:
            split = self.it.dataset.split("test")
            source = source_of(split, self.it.tokenizer, best.model, self.it.device, self.recipe)
            images, captions = encode_source(best.model, source)
            metrics = evaluate_encoded(
                best.model,
                images,
                captions,
                split.image_of_caption,
                image_ids=split.image_names,
                caption_ids=split.caption_ids,
            )
            run.write_test(self.folder, metrics)
        self._describe("finished")
        state.forget(self.folder / run.LAST)

    def _describe(self, status: str) -> None:
        self.records.describe(status, self.at, self._seconds(), self.it)

    def _seconds(self) -> float:
        """Of all sittings together."""
        seconds: float = self.at["seconds"] + time.monotonic() - self.started
        return seconds
