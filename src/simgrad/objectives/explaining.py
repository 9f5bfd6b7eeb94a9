"""What contributes to a batch's gradient (COCOS), query by query, from the weights alone.

`simgrad.analysis.counting` makes its figures of this, and `Objective.explain` one line for a log.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from simgrad.objectives.engine.dense import blocks
from simgrad.objectives.engine.embeddings import check_shapes, check_total
from simgrad.objectives.engine.forms import Rule
from simgrad.objectives.engine.rules import apply_rule
from simgrad.objectives.engine.tensors import product_type, without_autocast
from simgrad.objectives.engine.work import Given, Unit, Work
from simgrad.objectives.pairs import split_offline
from simgrad.objectives.positives import Positives, Side


class Contributions(NamedTuple):
    """Of each query, (queries,); of one that pushes nothing the first three mean nothing."""

    contributing: Tensor  # negatives with more than epsilon times the largest push
    effective: Tensor  # (sum w)² / sum w²
    hardest: Tensor  # share of the push on the negative that is pushed hardest
    pushing: Tensor  # bool
    strength: Tensor  # sum of |w|, positives included
    asking: Tensor  # bool: it is there and has a positive, or has weights without one (siglip)


def contributions(W: Tensor, side: Side, epsilon: float = 0.01) -> Contributions:
    """W (queries, candidates): the weights of one direction."""
    push = W.masked_fill(side.mask(), 0).abs_()
    largest = push.amax(1, keepdim=True)
    relative = push / largest.clamp(min=torch.finfo(push.dtype).tiny)  # no square underflows
    total = relative.sum(1)
    safe = total.clamp(min=1)  # at least the largest itself
    strength = W.abs().sum(1)
    absent = side.absent
    return Contributions(
        contributing=(relative > epsilon).sum(1).to(push.dtype),
        effective=safe * safe / relative.square().sum(1).clamp(min=1),
        hardest=1 / safe,
        pushing=total > 0,
        strength=strength,
        asking=torch.ones_like(strength, dtype=torch.bool)
        if absent is None
        else ~absent | (strength > 0),
    )


@torch.no_grad()
def explain(rule: Rule, images: Tensor, texts: Tensor, given: Given) -> str:
    """One line for a log, by direction; a block of queries at a time, as a call works."""
    check_shapes(images, texts)
    scale, bias = rule.affine()
    kind = product_type(images, texts)
    with without_autocast(images.device.type):
        unit = Unit(images, texts, scale, kind)
        check_total(float(unit.norms.sum()), images, texts)
        pairs = Positives.read(
            given.positives, len(images), len(texts), images.device,
            ignore=given.ignore, weights=given.weights,
        )  # fmt: skip
        outside = split_offline(rule, given.offline, pairs, unit.norms)
        detached = None if bias is None else bias.detach()
        work = Work(rule, pairs, outside, unit.used, unit.exact, unit.scale, detached, given.block)
        told = [_told(work, name) for name in ("i2t", "t2i") if rule.direction in ("both", name)]
    return f"{rule} {'; '.join(told)}"


def _told(work: Work, direction: str) -> str:
    turned = direction == "t2i"
    side = work.pairs.t2i if turned else work.pairs.i2t
    queries, candidates = (work.texts, work.images) if turned else (work.images, work.texts)
    by_image = work.own(work.pairs.i2t, work.images, work.texts)
    own = work.pairs.by_caption(by_image) if turned else by_image
    found = []
    for start, stop in blocks(work, side):
        pairs, S = side.pairs_of(start, stop), work.similarities(queries[start:stop], candidates)
        mined = work.outside[turned]
        mined = None if mined is None else mined[pairs]
        some = side.rows(start, stop)
        found.append(
            contributions(apply_rule(work.rule, S, some, own[pairs], by_image, mined)[1], some)
        )
    every = Contributions(*map(torch.cat, zip(*found, strict=True)))
    asking, pushing = int(every.asking.sum()), every.pushing
    silent = int((every.asking & (every.strength == 0)).sum())
    attention = "no negative is pushed"
    if pushing.any():
        effective, hardest = every.effective[pushing].mean(), every.hardest[pushing].mean()
        attention = f"{effective:.1f} effective negatives, {hardest:.0%} on the hardest"
    return f"{direction}: {attention}, {silent} of {asking} queries silent"
