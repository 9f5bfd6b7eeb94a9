"""What a batch does to the weights: encode, weigh, backward, update."""

import torch
from torch import Tensor, nn

from simgrad.data.batches import Batch
from simgrad.models import RetrievalModel
from simgrad.objectives import Objective
from simgrad.objectives import objective as read
from simgrad.runs.found_pairs import FoundPairs
from simgrad.runs.recipe import Recipe
from simgrad.training.encoder import Encoder
from simgrad.training.optimizing import Optimizer, start_scales
from simgrad.training.shares import every_share
from simgrad.training.weighing import each_with_its_image, weigh


class Step:
    """Takes batches, changes weights."""

    def __init__(
        self,
        model: RetrievalModel,
        recipe: Recipe,
        device: torch.device,
        found: FoundPairs | None = None,
    ) -> None:
        self.model, self.recipe, self.device, self.found = model, recipe, device, found
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
        self.optimizer.update()
        return loss

    def gradient(self, batch: Batch, objective: Objective) -> Tensor:
        """Fill the parameters' gradients; the loss."""
        if self.recipe.other_captions_are_negatives and self.model.mixes_images():
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
                pairs=self.recipe.other_captions_are_negatives,
                found=found,
                autocast=self.optimizer.autocast,
            )
