"""Objectives for pytorch-metric-learning's loops, and its losses as objectives.

`MetricLearningLoss` is for their loops, `from_metric_learning` makes an objective of a loss of
theirs, which is then counted and drawn like any other. Both have an example.
"""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from simgrad.core.errors import InputError
from simgrad.integrations.across import Across
from simgrad.objectives import Objective, Pairs
from simgrad.objectives.engine.forms import RuleResult


class MetricLearningLoss(nn.Module):
    """Any objective, called as pytorch-metric-learning calls its losses.

    An image and a caption are a positive pair where their labels are equal; whether the two label
    tensors are one object makes no difference. What has no partner is a negative of the others.
    Without `ref_emb` the batch is compared with itself, as their losses do: `Objective.within`.
    `gather_across_devices`: the batch is that of all processes, in place of their
    DistributedLossWrapper; labels may stand in several of them.

    Examples:
        >>> loss = simgrad.integrations.MetricLearningLoss("nt-xent")
        >>> images, texts, labels = torch.randn(4, 8), torch.randn(4, 8), torch.arange(4)
        >>> loss(images, labels, ref_emb=texts, ref_labels=labels).shape
        torch.Size([])
    """

    def __init__(
        self, objective_or_spec: "str | Objective", *, gather_across_devices: bool = False
    ) -> None:
        super().__init__()
        self.weighing = Across(objective_or_spec, gather_across_devices)

    @property
    def objective(self) -> Objective:
        return self.weighing.objective

    def forward(
        self,
        embeddings: Tensor,
        labels: Tensor,
        indices_tuple: Any = None,
        ref_emb: Tensor | None = None,
        ref_labels: Tensor | None = None,
    ) -> Tensor:
        if (ref_emb is None) != (ref_labels is None):
            raise InputError(
                "give captions as `ref_emb` and their labels as `ref_labels`, or neither: then the "
                "batch is compared with itself."
            )
        if indices_tuple is not None:
            raise InputError(
                "simgrad's objectives choose their own pairs from the batch: leave `indices_tuple` "
                "(a miner's output) out."
            )
        sides = [("labels", labels, len(embeddings))]
        if ref_emb is not None and ref_labels is not None:
            sides.append(("ref_labels", ref_labels, len(ref_emb)))
        for what, given, count in sides:
            if given.shape != (count,):
                raise InputError(f"{what} has shape {tuple(given.shape)}; it must be ({count},).")
            if given.is_floating_point() and not bool((given == given.round()).all()):
                raise InputError(
                    f"{what} has fractions: equal labels make a positive pair, so they are whole "
                    "numbers, not scores."
                )
        if ref_emb is None:
            return self.weighing.within(embeddings, labels.long())
        loss: Tensor = self.weighing(embeddings, ref_emb, labels, ref_labels)
        return loss


def from_metric_learning(loss: nn.Module) -> Objective:
    """A pytorch-metric-learning loss as an objective: half the sum of the two directions.

    Its distance is replaced by one that reads the similarities given, so it can be asked for its
    weights on any similarity matrix; they come from autograd.

    Examples:
        >>> from pytorch_metric_learning.losses import NTXentLoss
        >>> objective = simgrad.integrations.from_metric_learning(NTXentLoss(temperature=0.1))
        >>> objective.weigh(torch.rand(4, 4)).t2i.shape
        torch.Size([4, 4])
    """
    try:
        from pytorch_metric_learning.losses import BaseMetricLossFunction
    except ImportError:
        raise InputError(
            "from_metric_learning needs the package pytorch-metric-learning: "
            "pip install pytorch-metric-learning"
        ) from None
    if not isinstance(loss, BaseMetricLossFunction):
        raise InputError(
            f"from_metric_learning takes a loss of pytorch-metric-learning, not a "
            f"{type(loss).__name__}."
        )
    return _MetricLearning(loss)


class _MetricLearning(Objective):
    """The rule is autograd of the loss; the loss may average over the batch, so no blocks."""

    name = "metric-learning"
    mean = True
    separable = False

    def __init__(self, loss: Any) -> None:
        self.loss = copy.deepcopy(loss)
        kind = type(loss.distance).__name__
        normalised = loss.distance.normalize_embeddings
        if kind not in ("CosineSimilarity", "DotProductSimilarity", "LpDistance") or not normalised:
            raise InputError(
                f"{type(loss).__name__} uses the distance {kind}"
                f"{'' if normalised else ' without normalising'}, which is no function of the "
                "cosine similarity; use CosineSimilarity or a normalising LpDistance(p=2)."
            )
        if kind == "LpDistance" and loss.distance.p != 2:
            raise InputError(f"LpDistance(p={loss.distance.p}) is no function of the similarity.")
        if next(iter(loss.parameters()), None) is not None:
            raise InputError(
                f"{type(loss).__name__} has weights of its own (class vectors): it does not "
                "compare images with captions."
            )
        self.euclidean = kind == "LpDistance"
        self.kind = type(loss).__name__
        self._refuse_what_reads_embeddings(loss)

    def __str__(self) -> str:
        return f"{self.name}({self.kind})"

    __repr__ = __str__

    def _refuse_what_reads_embeddings(self, loss: Any) -> None:
        """Compare it with theirs: what reads more than its distance would be a constant here."""
        random = torch.Generator().manual_seed(0)
        left, right = torch.nn.functional.normalize(torch.randn(2, 6, 4, generator=random), dim=2)
        labels = torch.arange(6) // 2  # some losses need several positives
        both, theirs = (labels, labels.clone()), copy.deepcopy(loss).cpu()
        chance = torch.get_rng_state()  # of losses that sample

        def asked() -> Tensor:
            torch.set_rng_state(chance)
            value: Tensor = theirs(left, both[0], ref_emb=right, ref_labels=both[1])
            return value

        try:
            expected = asked()
            theirs = copy.deepcopy(loss).cpu()  # some remember what they saw
            again = asked()
            torch.set_rng_state(chance)
            with self._trying():
                ours = self._value(left @ right.T, *both)
        except Exception as error:
            raise InputError(
                f"{self.kind} does not compare images with captions: {str(error)[:120]}"
            ) from None
        finally:
            torch.set_rng_state(chance)
        # One that takes its chance from elsewhere is never the same, and cannot be compared.
        if bool(expected == again) and not torch.allclose(ours, expected, rtol=1e-3, atol=1e-4):
            raise InputError(
                f"{self.kind} reads the embeddings themselves, not only their similarities: it "
                "cannot be an objective. Use it in a loop of pytorch-metric-learning."
            )

    @contextmanager
    def _trying(self) -> Iterator[None]:
        """What is tried inside leaves nothing behind in a loss that remembers batches."""
        kept, self.loss = self.loss, copy.deepcopy(self.loss)
        try:
            yield
        finally:
            self.loss = kept

    def _tried_with_a_gap(self) -> bool:
        with self._trying():
            return super()._tried_with_a_gap()

    def rule(self, similarities: Tensor, positives: Tensor, pairs: Pairs) -> RuleResult:
        rows = len(similarities)
        labels = _labels(positives)
        with torch.enable_grad():
            S = similarities.detach().requires_grad_()
            value = self._value(S, *labels)
            reached = value.requires_grad
            weights = torch.autograd.grad(value, S)[0] if reached else torch.zeros_like(S)
        # The frame divides by the queries; the loss is a figure of the batch already.
        return value.detach().expand(rows), weights * rows

    def _value(self, S: Tensor, labels: Tensor, ref_labels: Tensor) -> Tensor:
        """Their loss of these similarities."""
        rows, columns = S.shape
        # |x - y|² = 2 - 2 x.y for unit vectors; a distance of 0 has no derivative.
        matrix = (2 - 2 * S).clamp(min=1e-12).sqrt() if self.euclidean else S
        # The loss asks its distance for a matrix; the embeddings only carry the shape.
        self.loss.distance.compute_mat = lambda query, reference: matrix
        try:
            value: Tensor = self.loss(
                S.new_ones(rows, 1), labels, ref_emb=S.new_ones(columns, 1), ref_labels=ref_labels
            )
        finally:
            del self.loss.distance.compute_mat
        return value


def _labels(positives: Tensor) -> tuple[Tensor, Tensor]:
    """Labels whose equality is the mask of positives, which must fall into groups."""
    labels = positives.to(torch.uint8).argmax(1)  # the first positive candidate of each query
    ref_labels = labels[positives.to(torch.uint8).argmax(0)]
    if not torch.equal(labels[:, None] == ref_labels[None], positives):
        row = int((labels[:, None] != ref_labels[None]).eq(positives).any(1).nonzero()[0])
        raise InputError(
            f"query {row}: its positives do not form a group of their own. A loss of "
            "pytorch-metric-learning takes labels, so positives must be those of equal labels."
        )
    return labels, ref_labels
