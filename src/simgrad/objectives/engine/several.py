"""Several batches at once, each with parameters of its own: one call for a group of runs.

The batches have the same shape, and their rules the same form. All similarities are one grouped
product, the rule is worked out for all of them in one go (torch.vmap), and two more products carry
the weights to the gradients. What is small for a GPU by itself, a batch of 128, is worth a launch
for eight.
"""

import copy
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from simgrad.core.devices import widest
from simgrad.objectives.engine.forms import Rule
from simgrad.objectives.engine.rules import weigh_both
from simgrad.objectives.engine.tensors import without_autocast
from simgrad.objectives.engine.work import TINY
from simgrad.objectives.positives import Positives


class Several(NamedTuple):
    """Of each batch."""

    values: Tensor  # (g,)
    images: Tensor  # (g, n, d) gradients
    texts: Tensor  # (g, m, d)


class Parameters(NamedTuple):
    """The rule of several batches: what they have in common, and the numbers that differ."""

    rule: Rule
    own: dict[str, Tensor]  # each (g,)

    @staticmethod
    def of(rules: Sequence[Rule], device: torch.device) -> "Parameters":
        """Rules of one form (`form_of`) that learn nothing."""
        names = _numbers(rules[0])
        own = {name: [getattr(rule, name) for rule in rules] for name in names}
        kind = widest(device)
        return Parameters(
            rules[0],
            {
                name: torch.tensor(values, dtype=kind, device=device)
                for name, values in own.items()
                if len(set(values)) > 1
            },
        )

    def one(self, numbers: Sequence[Tensor]) -> Rule:
        """The rule of one of the batches."""
        if not self.own:
            return self.rule
        rule = copy.copy(self.rule)
        vars(rule).update(zip(self.own, numbers, strict=True))
        return rule


def form_of(rule: Rule) -> tuple[object, ...]:
    """What rules must have in common to be worked out in one go: all but their numbers.

    A rule that keeps more than its settings has nothing in common with another.
    """
    if _keeps_more(rule):
        return (rule,)
    numbers = _numbers(rule)
    settings = tuple((k, v) for k, v in rule.named_settings().items() if k not in numbers)
    return type(rule), rule.mean, rule.direction, settings


def _numbers(rule: Rule) -> list[str]:
    return [name for name, value in rule.named_settings().items() if isinstance(value, float)]


def _keeps_more(rule: Rule) -> bool:
    """Whether it has more than its settings: what it worked out of them, or has seen."""
    more = vars(rule).keys() - rule.named_settings().keys() - _FRAME
    return bool(more) or any(True for _ in rule.buffers())


_FRAME = vars(nn.Module()).keys() | {"_made", "handle", "replays", "mean", "direction"}


@torch.no_grad()
def weigh_several(
    parameters: Parameters,
    images: Tensor,  # (g, n, d)
    texts: Tensor,  # (g, m, d)
    image_of_caption: Tensor | None = None,  # (g, m); None: caption k belongs to image k
    present: Tensor | None = None,  # (g, n) bool: images that do not only fill up their batch
) -> Several:
    """The losses and their gradients, as each batch alone has them."""
    count = images.shape[1]
    given = [x for x in (image_of_caption, present) if x is not None]

    def one(S: Tensor, *more: Tensor) -> tuple[Tensor, Tensor]:
        rule, rest = parameters.one(more[len(given) :]), iter(more)
        owner = None if image_of_caption is None else next(rest)
        there = None if present is None else next(rest)
        if owner is None:
            pairs = Positives.diagonal(count, S.device)
        else:
            pairs = Positives.of_captions(owner, count, there)
        i2t, t2i = weigh_both(rule, S, pairs, (None, None), rule.affine())
        return i2t.value + t2i.value, i2t.weights + t2i.weights.t()

    with without_autocast(images.device.type):
        both = torch.cat([images, texts], 1)
        norms = torch.linalg.vector_norm(both, dim=2, keepdim=True)
        factors = torch.threshold(norms, TINY, torch.inf).reciprocal_()
        unit = both.mul_(factors)
        of_images, of_texts = unit[:, :count], unit[:, count:]
        S = torch.bmm(of_images, of_texts.transpose(1, 2))
        values, weights = torch.vmap(one)(S, *given, *parameters.own.values())
        values, weights = values.to(unit.dtype), weights.to(unit.dtype)
        gradients = torch.cat(
            [torch.bmm(weights, of_texts), torch.bmm(weights.transpose(1, 2), of_images)], 1
        )
        # What turns a vector, not what lengthens it.
        along = (gradients * unit).sum(2, keepdim=True)
        gradients = gradients.addcmul_(unit, along, value=-1).mul_(factors)
    return Several(values, gradients[:, :count], gradients[:, count:])
