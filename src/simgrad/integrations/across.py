"""What every adapter needs: an objective in one process, or over all that share a batch.

The loops of others average the gradients of the processes, and they do so for the model alone: what
the objective learns (a temperature) is averaged here.
"""

import torch
import torch.distributed as dist
from torch import Tensor, nn

from simgrad.objectives import Objective, Positives, objective
from simgrad.objectives.across_processes import Distributed
from simgrad.objectives.engine.ring import Processes
from simgrad.objectives.gathered import Share, weigh_gathered
from simgrad.objectives.positives import pairs_within


class Across(nn.Module):
    """An objective by labels, or row by row. Texts without a partner are nobody's: negatives."""

    def __init__(self, objective_or_spec: "str | Objective", across: bool) -> None:
        super().__init__()
        self.objective, self.across = objective(objective_or_spec), across
        for parameter in self.objective.parameters():
            if across and parameter.requires_grad:
                parameter.register_hook(_mean)  # type: ignore[no-untyped-call]

    def forward(
        self,
        images: Tensor,
        texts: Tensor,
        labels: Tensor | None = None,
        text_labels: Tensor | None = None,
    ) -> Tensor:
        """`text_labels` are those of the first texts; an equal label makes a positive. Without
        labels, text k belongs to image k."""
        device = images.device
        if labels is None:
            own, rows = torch.arange(len(images), device=device), len(texts) - len(images)
            positives = torch.cat([own, own.new_full((rows,), -1)]) if rows else None
            return self._weigh(images, texts, positives)
        assert text_labels is not None
        labels, text_labels = labels.to(device), text_labels.to(device)
        if self._shared(labels, text_labels):
            mask = _mask_of_all(labels, text_labels, len(texts))
            share = Share(images, texts, _positives(mask))
            return weigh_gathered(self.objective, share, Processes(), _world(), joint=True)
        return self._weigh(images, texts, _positives(_mask(labels, text_labels, len(texts))))

    def within(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        """One batch among itself: an equal label makes a positive; nothing meets itself."""
        if not self.across or _world() == 1:
            return self.objective.within(embeddings, labels)
        every = torch.cat(Processes().gather(labels.to(embeddings.device)))
        positives, itself = pairs_within(every, every)
        share = Share(embeddings, embeddings, positives, ignore=itself)
        loss = weigh_gathered(self.objective, share, Processes(), _world(), joint=True)
        twice = not self.objective.mean and self.objective.direction == "both"
        return loss / 2 if twice else loss

    def _weigh(
        self, images: Tensor, texts: Tensor, positives: "Tensor | Positives | None"
    ) -> Tensor:
        rule = Distributed(self.objective) if self.across else self.objective
        loss: Tensor = rule(images, texts, positives)
        return loss

    def _shared(self, labels: Tensor, text_labels: Tensor) -> bool:
        """Whether a label stands in several processes: then positives do not lie in one of them."""
        if not self.across or _world() == 1:
            return False
        parts = Processes().gather(labels)
        others = [part for rank, part in enumerate(parts) if rank != dist.get_rank()]
        found = torch.isin(torch.cat(others), text_labels).any()
        return bool(Processes().sum(found.to(torch.float32)[None]))


def _mask(labels: Tensor, text_labels: Tensor, texts: int) -> Tensor:
    mask = labels[:, None] == text_labels[None]
    return nn.functional.pad(mask, (0, texts - mask.shape[1]))


def _mask_of_all(labels: Tensor, text_labels: Tensor, texts: int) -> Tensor:
    """(images, texts) of all processes, of which each may have texts without a label behind."""
    gather = Processes().gather
    every, counts = torch.cat(gather(labels)), gather(labels.new_tensor([texts]))
    told = zip(gather(text_labels), counts, strict=True)
    return torch.cat([_mask(every, some, int(count)) for some, count in told], 1)


def _positives(mask: Tensor) -> Positives:
    """Images and texts without a partner are nobody's: negatives of the others."""
    return Positives.of_mask(mask)


def _world() -> int:
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def _mean(gradient: Tensor) -> Tensor:
    """The mean over all processes, each of which has a part of the gradient."""
    if _world() == 1:
        return gradient
    return Processes().sum(gradient) / _world()
