"""An objective with the signature of open_clip's losses; open_clip itself is not needed.

    loss = simgrad.integrations.ClipLoss("goal(triplet=cir, pair=sig-ms)")
    loss(image_features, text_features, logit_scale)

An objective that learns a scale, `nt-xent(learned=true)` or `siglip`, takes the model's
`logit_scale` and `logit_bias` in place of its own: it is then open_clip's ClipLoss or SigLipLoss in
linear memory. Other objectives have no use for them; they get a gradient of 0.
"""

import torch
from torch import Tensor, nn

from simgrad.objectives import Objective, Pairs, Positives, objective
from simgrad.objectives.engine.forms import Elementwise, RuleResult


class ClipLoss(nn.Module):
    """`(image_features, text_features, logit_scale, logit_bias=None) -> loss`."""

    def __init__(self, objective_or_spec: "str | Objective") -> None:
        super().__init__()
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
        used = self.objective
        if self.borrows and logit_scale is not None:
            used = _Borrowing(self.objective, logit_scale, logit_bias)
        loss: Tensor = used(image_features, text_features, positives)
        if used is self.objective:
            # Distributed training waits for a gradient of every parameter, useful or not.
            loss = sum((0.0 * x.sum() for x in (logit_scale, logit_bias) if x is not None), loss)
        return {"contrastive_loss": loss} if output_dict else loss


class _Borrowing(Objective):
    """An objective with another's scale and bias."""

    def __init__(self, inner: Objective, scale: Tensor, bias: Tensor | None) -> None:
        self.inner = [inner]  # in a list, so that its parameters stay its own
        self.scale = torch.as_tensor(scale).reshape(())
        self.offset = None if bias is None else bias.reshape(())
        self.mean, self.drawn_for_each = inner.mean, inner.drawn_for_each  # type: ignore[misc]  # per object here
        self.separable = inner.separable  # type: ignore[misc]

    def affine(self) -> tuple[Tensor | None, Tensor | None]:
        return self.scale, self.offset

    def rule(self, similarities: Tensor, positives: Tensor, pairs: Pairs) -> RuleResult:
        return self.inner[0].rule(similarities, positives, pairs)

    def elementwise(self) -> Elementwise | None:
        return self.inner[0].elementwise()
