"""One training step: encode, compare, weigh, update.

The objective sees the whole batch at once. Where it is too large to encode in one piece,
`gradcache.py` encodes it in pieces with the same gradient; where several processes share it,
`distributed.py` gathers what the others encoded.
"""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from simgrad.data.batches import Batch
from simgrad.mining.drawing import Drawn
from simgrad.models.base import Encoded, RetrievalModel, vectors_of
from simgrad.objectives import Objective, Offline, Positives, objective
from simgrad.runs.outside import offline_similarities
from simgrad.runs.recipe import Recipe
from simgrad.training import distributed, gradcache
from simgrad.training.few import loss_of_few, weighs_few
from simgrad.training.occurrences import each_with_its_image
from simgrad.training.schedule import Moment


class Step:
    """Takes batches, changes weights."""

    def __init__(self, model: RetrievalModel, recipe: Recipe, device: torch.device) -> None:
        self.model, self.recipe, self.device = model, recipe, device
        specs = [recipe.objective] + ([recipe.first_objective] if recipe.first_objective else [])
        self.objectives: dict[str, Objective] = {s: objective(s).to(device) for s in specs}
        for each in self.objectives.values():
            each.replays = False  # steps are captured as a whole, where it helps
        self.learned = nn.ModuleList(self.objectives.values())  # temperatures and the like
        self.optimizer = _optimizer(model, self.learned, recipe, device)
        self.base_lr = [float(group["lr"]) for group in self.optimizer.param_groups]
        self.loss_factor = torch.ones((), device=device)
        self.scaler = torch.amp.GradScaler(device.type, enabled=recipe.precision == "fp16")

    def __call__(self, batch: Batch, moment: Moment) -> Tensor:
        """One update; the loss, still on the device."""
        self.set_moment(moment)
        return self.update(batch, moment.objective)

    def update(
        self,
        batch: Batch,
        objective_spec: str,
        present: Tensor | None = None,
        drawn: Drawn | None = None,
    ) -> Tensor:
        """An update at the rates set before; nothing here waits for the device.

        `present` marks the images that are really there, where the batch was padded; `drawn` says
        where what was drawn from outside the batch stands, where `batch.index` does not.
        """
        self.optimizer.zero_grad(set_to_none=True)
        value = self.gradient(batch, objective_spec, present, drawn)
        # The sum first: all processes must find the same overflow, or some would step alone.
        distributed.add_gradients(self.model, self.learned)
        self.scaler.unscale_(self.optimizer)
        if self.recipe.clip > 0:
            trained = [p for p in self.model.parameters() if p.grad is not None]
            nn.utils.clip_grad_norm_(trained, self.recipe.clip)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return value

    def gradient(
        self,
        batch: Batch,
        objective_spec: str,
        present: Tensor | None = None,
        drawn: Drawn | None = None,
    ) -> Tensor:
        """Fill the parameters' gradients; the loss."""
        values = []
        drawn = drawn or Drawn.of(batch.index, self.device)
        if self.recipe.positives == "pairs" and self.model.mixes_images():
            batch, drawn = each_with_its_image(batch, drawn)

        def loss_of(images: Encoded, captions: Encoded) -> Tensor:
            with torch.autocast(self.device.type, enabled=False):
                value = self.loss(images, captions, batch, objective_spec, present, drawn)
            values.append(value.detach())
            return self.scaler.scale(value * self.loss_factor)

        gradcache.backward(self.model, batch, loss_of, self.recipe.micro_batch, self.autocast)
        return values[0]

    def loss(
        self,
        images: Encoded,
        captions: Encoded,
        batch: Batch,
        objective_spec: str,
        present: Tensor | None = None,
        drawn: Drawn | None = None,
    ) -> Tensor:
        """The objective, and what the model adds to it."""
        chosen = self.objectives[objective_spec]
        offline: Offline | None = None
        if drawn is not None:
            # The batch proper comes first; behind it, what was drawn from outside.
            own = slice(0, drawn.own_images), slice(0, drawn.own_captions)
            owner = batch.image_of_caption[own[1]]
            if chosen.needs_offline:
                offline = offline_similarities(self.model, images, captions, owner, drawn.places)
            images, captions = images.select(own[0]), captions.select(own[1])
            batch = Batch(
                batch.images[own[0]],
                batch.tokens[own[1]],
                batch.lengths[own[1]],
                owner,
                batch.index,
            )
        with self.autocast():
            auxiliary = self.model.auxiliary_loss(images, captions, batch)
        positives: Any = batch.image_of_caption
        if self.recipe.positives == "pairs":
            images, positives = images.select(batch.image_of_caption), None
        elif present is not None:
            positives = Positives.of_captions(batch.image_of_caption, len(images), present)
        value: Tensor
        if self.model.embeds:
            value = chosen(vectors_of(images), vectors_of(captions), positives, offline)
        elif weighs_few(chosen, len(images), len(captions)):
            value = loss_of_few(chosen, self.model, images, captions, positives, offline)
        else:
            value = chosen.on(self.model.similarities(images, captions), positives, offline)
        return value if auxiliary is None else value + auxiliary

    def autocast(self) -> AbstractContextManager[Any]:
        """Half precision for the encoders, where the recipe asks for it."""
        kinds = {"bf16": torch.bfloat16, "fp16": torch.float16}
        if self.recipe.precision not in kinds:
            return nullcontext()
        # Cached casts would tie one captured step to another.
        return torch.autocast(
            self.device.type, kinds[self.recipe.precision], cache_enabled=self.device.type != "cuda"
        )

    def set_moment(self, moment: Moment) -> None:
        """Rates of this moment; a captured step reads them from the device."""
        self.loss_factor.fill_(moment.loss_factor)
        for group, base in zip(self.optimizer.param_groups, self.base_lr, strict=True):
            rate = base * moment.lr_factor
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(rate)
            else:
                group["lr"] = rate


def _optimizer(
    model: RetrievalModel, objectives: nn.Module, recipe: Recipe, device: torch.device
) -> torch.optim.Optimizer:
    groups = model.parameter_groups(recipe.lr)
    learned = [p for p in objectives.parameters() if p.requires_grad]
    if learned:
        groups = [*groups, {"params": learned, "lr": recipe.lr, "weight_decay": 0.0}]
    kind = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[recipe.optimizer]
    on_gpu = device.type == "cuda"
    for group in groups:
        # A step that is captured reads its rate from the device.
        rate = float(group.get("lr", recipe.lr))
        group["lr"] = torch.tensor(rate, device=device) if on_gpu else rate
    optimizer: torch.optim.Optimizer = kind(
        groups,
        lr=torch.tensor(recipe.lr, device=device) if on_gpu else recipe.lr,
        betas=recipe.betas,
        weight_decay=recipe.weight_decay,
        fused=True,
        capturable=on_gpu,
    )
    return optimizer
