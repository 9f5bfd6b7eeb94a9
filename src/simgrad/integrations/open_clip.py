"""An objective with the signature of open_clip's losses; open_clip itself is not needed.

examples/open_clip_loop.py trains with one.

An objective that learns a scale, `nt-xent(learned=true)` or `siglip`, takes the model's
`logit_scale` and `logit_bias` in place of its own: it is then open_clip's ClipLoss or SigLipLoss in
linear memory. Other objectives have no use for them; they get a gradient of 0.

`rank` and `world_size`, as open_clip's `create_loss` passes them, make one batch of those of all
processes: texts go round, and no GPU holds all similarities or all features. The gradient is that
of one process once the loop has averaged it, as DDP does: what open_clip gives with `local_loss`
and `gather_with_grad` (without these two its gradient is smaller by the number of processes).
"""

import torch
import torch.distributed as dist
from torch import Tensor, nn

from simgrad.core.errors import InputError
from simgrad.objectives import Objective, Pairs, Positives, objective
from simgrad.objectives.across_processes import Distributed
from simgrad.objectives.engine.forms import Elementwise, RuleResult


class ClipLoss(nn.Module):
    """`(image_features, text_features, logit_scale, logit_bias=None) -> loss`.

    Examples:
        >>> loss = simgrad.integrations.ClipLoss("nt-xent(learned=true)")
        >>> images, texts = torch.randn(4, 8), torch.randn(4, 8)
        >>> loss(images, texts, logit_scale=torch.tensor(10.0)).shape
        torch.Size([])
    """

    def __init__(
        self,
        objective_or_spec: "str | Objective" = "nt-xent(learned=true)",
        local_loss: bool = True,
        gather_with_grad: bool = True,
        cache_labels: bool = False,
        rank: int = 0,
        world_size: int = 1,
        use_horovod: bool = False,
    ) -> None:
        """What follows the objective is as in open_clip; `local_loss`, `gather_with_grad` and
        `cache_labels` change nothing here."""
        super().__init__()
        if use_horovod:
            raise InputError("ClipLoss: processes are joined by torch.distributed, not horovod.")
        self.rank, self.world_size = rank, world_size
        self.objective = objective(objective_or_spec)
        scale, _ = self.objective.affine()
        self.borrows = scale is not None and scale.requires_grad
        if self.borrows:
            # The model's own scale is trained: another one here would be left without gradient.
            self.objective.requires_grad_(False)

    def forward(
        self,
        image_features: Tensor,
        text_features: Tensor,
        logit_scale: Tensor | None = None,
        logit_bias: Tensor | None = None,
        output_dict: bool = False,
        positives: "Tensor | Positives | None" = None,
    ) -> "Tensor | dict[str, Tensor]":
        used, unused = self.objective, [logit_scale, logit_bias]
        if self.borrows and logit_scale is not None:
            has_bias = self.objective.affine()[1] is not None  # a softmax is blind to one
            unused = [None if has_bias else logit_bias]
            used = _Borrowing(self.objective, logit_scale, logit_bias if has_bias else None)
        rule: nn.Module = used
        if self.world_size > 1:
            _check_processes(self.rank, self.world_size)
            rule = Distributed(used)
        loss: Tensor = rule(image_features, text_features, positives)
        # Distributed training waits for a gradient of every parameter, useful or not.
        loss = sum((0.0 * x.sum() for x in unused if x is not None), loss)
        return {"contrastive_loss": loss} if output_dict else loss


def _check_processes(rank: int, world_size: int) -> None:
    there = dist.is_available() and dist.is_initialized()
    found = (dist.get_rank(), dist.get_world_size()) if there else (0, 1)
    if found != (rank, world_size):
        raise InputError(
            f"ClipLoss was made for process {rank} of {world_size}, but this is process {found[0]} "
            f"of {found[1]}: call torch.distributed.init_process_group first."
        )


class _Borrowing(Objective):
    """An objective with another's scale and bias."""

    def __init__(self, inner: Objective, scale: Tensor, bias: Tensor | None) -> None:
        self.inner = [inner]  # in a list, so that its parameters stay its own
        self.scale = torch.as_tensor(scale).reshape(())
        self.offset = None if bias is None else bias.reshape(())
        self.mean, self.drawn_for_each = inner.mean, inner.drawn_for_each  # type: ignore[misc]  # per object here
        self.separable, self.pairwise = inner.separable, inner.pairwise  # type: ignore[misc]
        self.graded, self.direction = inner.graded, inner.direction  # type: ignore[misc]

    def affine(self) -> tuple[Tensor | None, Tensor | None]:
        return self.scale, self.offset

    def rule(self, similarities: Tensor, positives: Tensor, pairs: Pairs) -> RuleResult:
        return self.inner[0].rule(similarities, positives, pairs)

    def elementwise(self) -> Elementwise | None:
        return self.inner[0].elementwise()
