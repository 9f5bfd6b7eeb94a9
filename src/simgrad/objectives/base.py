"""The frame: everything an objective needs except its rule.

An objective is a rule from similarities to weights. It sees one direction at a time, rows are
queries: `rule(similarities, positives, pairs) -> (values, weights)`, where `weights` is the
derivative of the summed values with respect to the similarities, or whatever the rule puts in its
place. Both directions, several positives, pairs to ignore, blocks, half precision, learned
temperatures, gradients from above, queries without a negative and input checks come from here.

A `Family` (`family.py`) writes its rule elementwise, so that it can be streamed and fused.
"""

import dataclasses
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, get_args

import torch
from torch import Tensor, nn

from simgrad.core.errors import InputError
from simgrad.core.spec import (
    Parameter,
    Range,
    Registry,
    check_setting,
    check_settings,
    meant,
    print_spec,
    searched,
)
from simgrad.objectives.engine.embeddings import weigh_each, weigh_embeddings
from simgrad.objectives.engine.forms import Elementwise, RuleResult
from simgrad.objectives.engine.rules import weigh_both
from simgrad.objectives.engine.tensors import (
    at_least_float32,
    attach,
    check_finite,
    check_matrix,
    check_overflow,
    is_followed,
    is_transformed,
    may_check,
    without_autocast,
)
from simgrad.objectives.engine.transforms import name_of, weigh_functional
from simgrad.objectives.engine.work import Given
from simgrad.objectives.explaining import explain
from simgrad.objectives.pairs import Offline, Pairs, join_offline, split_offline
from simgrad.objectives.positives import Positives, pairs_within

Direction = Literal["both", "i2t", "t2i"]
DIRECTIONS: tuple[str, ...] = get_args(Direction)
REDUCTIONS = ("published", "mean", "sum")


class Weights(NamedTuple):
    """What an objective does to a batch.

    Examples:
        >>> weights = simgrad.objective("triplet").weigh(torch.tensor([[0.9, 0.8], [0.1, 0.7]]))
        >>> weights.t2i.tolist()  # below 0: pulled; above 0: pushed
        [[0.0, 1.0], [0.0, -1.0]]
    """

    i2t: Tensor  # (images, captions) dL/dS, image queries
    t2i: Tensor  # (images, captions) dL/dS, caption queries
    value: Tensor  # the loss, for logging
    offline: Offline | None = None  # dL/d(the four offline similarities)


class Values(NamedTuple):
    """The value of each query, by direction; 0 for a query without a positive or a negative.

    Examples:
        >>> each = simgrad.objective("nt-xent", reduction="none")
        >>> values = each(torch.randn(4, 8), torch.randn(4, 8))
        >>> values.i2t.shape, values.t2i.shape
        (torch.Size([4]), torch.Size([4]))
    """

    i2t: Tensor  # (images,)
    t2i: Tensor  # (captions,)


class Factors(NamedTuple):
    """Weights that are written as triplet weight x pair weight, T x P."""

    triplet: Tensor  # T
    pull: Tensor  # P+
    push: Tensor  # P-
    triplet_name: str  # as the paper calls it; "" where it has no name
    pair_name: str


class Objective(nn.Module):
    """Base of all objectives: a dataclass of parameters with one method, `rule`.

    Examples:
        >>> objective = simgrad.objective("nt-xent(tau=0.05)")
        >>> isinstance(objective, simgrad.objectives.Objective)
        True
        >>> images, texts = torch.randn(4, 8, requires_grad=True), torch.randn(4, 8)
        >>> objective(images, texts).backward()
        >>> images.grad.shape
        torch.Size([4, 8])
    """

    name: ClassVar[str] = ""
    own: ClassVar[str] = ""  # of a rule of somebody's own: what an error calls it, with its place
    # The loss is half the sum of both directions' means; or, if False, the sum over queries. Each
    # class has what was published; it can be set on an object, to put several on one scale.
    mean: bool = False
    drawn_for_each: ClassVar[int] = 0  # images, and captions, from outside the batch, for a pair
    # Each pair counts by itself: alone too, and where its image and caption have no positive.
    pairwise: ClassVar[bool] = False
    separable: ClassVar[bool] = True  # False: the rule must see all rows at once, never a block
    sparse: ClassVar[bool] = False  # weighs positives and one negative of each query, no others
    graded: ClassVar[bool] = False  # adds up or averages over positives, which may have weights
    direction: Direction = "both"  # or one of them alone: its sum, or the whole of its mean
    handle: str  # what a compiled program calls it
    _made = False  # its parameters have been looked at
    _copes: bool | None = None  # with gaps; None: not tried yet
    replays = True  # small batches on a GPU are recorded and replayed (`engine/recorded.py`)

    def __new__(cls, *arguments: object, **named: object) -> "Objective":
        # nn.Module must be set up before the dataclass assigns its fields.
        self = super().__new__(cls)
        nn.Module.__init__(self)
        self.handle = name_of(self)
        return self

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Give a copy a name of its own: by the old one a compiled program finds the original."""
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self.handle = name_of(self)

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, *arguments: Any
    ) -> None:
        """Read numbers that earlier versions kept without a dimension. They have one now, because
        `fully_shard` needs it."""
        for name, parameter in self.named_parameters(recurse=False):
            kept = state_dict.get(prefix + name)
            if isinstance(kept, Tensor) and kept.dim() == 0 and parameter.shape == (1,):
                state_dict[prefix + name] = kept.reshape(1)
        super()._load_from_state_dict(state_dict, prefix, *arguments)

    def __post_init__(self) -> None:
        """Refuse values that the declaration does not allow. A subclass that extends this method
        calls it first."""
        if dataclasses.is_dataclass(self):
            check_settings(self)
            self._made = True

    def __setattr__(self, name: str, value: Any) -> None:
        """A parameter may be changed later, as a schedule does, to what its declaration allows."""
        if self._made and name in type(self).__dataclass_fields__:  # type: ignore[attr-defined]
            check_setting(self, name, value)
            if name in self.starting and value != getattr(self, name):
                raise InputError(
                    f"{self}: {name} says where what it learns begins; it is read once. Make a new "
                    "objective."
                )
        if name == "direction":
            if value not in DIRECTIONS:
                told = ", ".join(DIRECTIONS)
                raise InputError(f"{self.name}: direction is one of {told}, not {value!r:.80}.")
        elif self._made and not isinstance(value, (Tensor, nn.Module)):
            self._refuse_mistyped(name)
        super().__setattr__(name, value)

    def _refuse_mistyped(self, name: str) -> None:
        """Refuse to set what nobody reads, where a parameter is called or described so."""
        ours = type(self).__post_init__.__module__.startswith("simgrad.")
        if name.startswith("_") or hasattr(self, name) or not ours:
            return  # whoever writes a `__post_init__` sets there what they like
        declared = next((one.parameters for one in objectives if one.name == self.name), ())
        told = meant(name, (*declared, *objectives.common), cutoff=0.8)
        if told:
            raise InputError(f"{self}: there is no '{name}' to be set.{told}")

    @property
    def reduction(self) -> str:
        """published, or whether it was made a mean or a sum."""
        if self.mean == type(self).mean:
            return "published"
        return "mean" if self.mean else "sum"

    @reduction.setter
    def reduction(self, value: str) -> None:
        if value not in REDUCTIONS:
            raise InputError(f"reduction is one of {', '.join(REDUCTIONS)}, not {value!r:.40}.")
        self.mean = type(self).mean if value == "published" else value == "mean"

    @property
    def starting(self) -> tuple[str, ...]:
        """Parameters that are read once, when the objective is made."""
        return ()

    @classmethod
    def known_cases(cls) -> dict[str, str]:
        """Specs of this objective that are losses with a name of their own; what else they are."""
        return {}

    @property
    def needs_offline(self) -> bool:
        """Whether it weighs similarities from outside the batch."""
        return self.drawn_for_each > 0

    def rule(self, similarities: Tensor, positives: Tensor, pairs: Pairs) -> RuleResult:
        """One direction, rows are queries -> (values per query, weights, [weights outside]).

        `similarities` (queries, candidates) are the rule's own: it may overwrite them. `positives`
        is their mask; `pairs` lists the same. What is to be ignored has the similarity -inf.
        """
        raise TypeError(f"{type(self).__name__} has no rule: an objective must define one.")

    def affine(self) -> tuple[Tensor | None, Tensor | None]:
        """Scale and bias that the frame applies to the similarities first; they may be learned.

        The scale must be above 0.
        """
        return None, None

    def start_at(self, scale: float, bias: float) -> bool:
        """Begin with the scale and bias that a model was pretrained with; whether it did.

        Only objectives with a learned scale do, unless the recipe chose where it starts.
        """
        return False

    def named_settings(self) -> dict[str, object]:
        """The values of its parameters, by name."""
        if not dataclasses.is_dataclass(self):
            return {}
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}

    def settings(self) -> tuple[object, ...]:
        """The values of its parameters."""
        return tuple(self.named_settings().values())

    def chosen(self, name: str) -> bool:
        """Whether a parameter has another value than its default."""
        fields = {field.name: field.default for field in dataclasses.fields(self)}  # type: ignore[arg-type]
        return bool(getattr(self, name) != fields[name])

    def searched(self) -> dict[str, Range]:
        """Its own parameters that a tuned study varies, and where it looks: those declared so."""
        return searched(self)

    def factors(
        self, s_pos: Tensor, s_neg: Tensor, relative: float | None = None
    ) -> Factors | None:
        """The factors of a triplet's weights, where they are written so; for drawing.

        `relative`: how the triplet stands among the batch's others; None: as if it were alone.
        """
        return None

    def copes_with_gaps(self) -> bool:
        """Whether the rule treats a candidate with the similarity -inf as absent; tried once.

        Ignored pairs have that similarity, and places that a batch leaves empty.
        """
        if self._copes is None:
            self._copes = self._tried_with_a_gap()
        return self._copes

    @torch.no_grad()
    def _tried_with_a_gap(self) -> bool:
        device = next((parameter.device for parameter in self.parameters()), None)
        S = 0.5 + 0.2 * torch.arange(20, device=device).cos().view(4, 5)
        each, there = torch.arange(4, device=device), torch.eye(4, 5, device=device).bool()
        own = S[each, each]
        outside = S.new_zeros(4, 2) if self.needs_offline else None
        pairs = Pairs(each, each, own, 4, True, own, outside)
        gap = S.index_fill(1, torch.tensor([4], device=device), -torch.inf)
        try:
            values, weights = self.rule(S[:, :4].clone(), there[:, :4], pairs)[:2]
            others, with_gap = self.rule(gap, there, pairs)[:2]
        except (RuntimeError, IndexError, ValueError):  # it may want more than four candidates
            return False
        # NaN with a gap or without it: another fault than not coping.
        same = torch.allclose(others, values, equal_nan=True)
        same = same and torch.allclose(with_gap[:, :4], weights, equal_nan=True)
        return same and not bool(with_gap[:, 4].any())

    def check_form(self) -> None:
        """Refuse what is written in a way that the frame cannot work with; asked when its name is
        used for the first time."""

    def elementwise(self) -> Elementwise | None:
        """The rule in pieces, where it is written so (`family.py`)."""
        return None

    def __str__(self) -> str:
        return print_spec(self, {"direction": "both", "reduction": "published"})

    __repr__ = __str__

    def forward(
        self,
        images: Tensor,
        texts: Tensor,
        positives: "Tensor | Positives | None" = None,
        offline: Offline | None = None,
        *,
        ignore: Tensor | None = None,
        weights: Tensor | None = None,
        block: int | None = None,
    ) -> Tensor:
        """The loss of embeddings (n, d) and (m, d), normalised inside; `.backward()` applies W.

        `ignore`: pairs that are neither positives nor negatives, a mask (n, m) or a list (k, 2) of
        image and caption. `weights`: how much each positive pair counts, one for each caption (m,)
        or a matrix (n, m); a pair of weight 0.5 counts half. Large batches are worked in blocks of
        about `block` similarities (chosen if not given), so that memory grows with the batch, not
        with its square.
        """
        given = Given(positives, offline, ignore, weights, block)
        return weigh_embeddings(self, images, texts, given)

    if TYPE_CHECKING:  # nn.Module says nothing of what it is called with
        __call__ = forward

    def each(
        self,
        images: Tensor,
        texts: Tensor,
        positives: "Tensor | Positives | None" = None,
        offline: Offline | None = None,
        *,
        ignore: Tensor | None = None,
        weights: Tensor | None = None,
        block: int | None = None,
    ) -> Values:
        """The value of each query, to be weighted and added up by yourself; as for a call.

        Their gradient is exact whatever you multiply them with: a query's weights are multiplied
        with the same. The batch is weighed again for that, in backward. Two directions are
        returned; whoever wants one takes it.
        """
        self._require_rows()
        given = Given(positives, offline, ignore, weights, block)
        return Values(*weigh_each(self, images, texts, given))

    def _require_rows(self) -> None:
        if not self.separable:
            raise InputError(
                f"{self}: its rule sees all queries at once, so that they have no values of their "
                "own: reduction='none' has no meaning for it."
            )

    def within(self, embeddings: Tensor, labels: Tensor, *, block: int | None = None) -> Tensor:
        """The loss of one batch (n, d) among itself: an equal label (n,) makes a positive pair.

        No row is compared with itself. Each row is a query once; a row without a partner is only a
        negative of the others.

        Examples:
            >>> labels = torch.tensor([0, 0, 1, 1])
            >>> simgrad.objective("nt-xent").within(torch.eye(4)[[0, 0, 1, 1]], labels) < 0.001
            tensor(True)
        """
        positives, itself = pairs_within(labels, embeddings)
        loss = self(embeddings, embeddings, positives, ignore=itself, block=block)
        # Both directions are one and the same: a sum of them counts every row twice.
        return loss if self.mean or self.direction != "both" else loss / 2

    def on(
        self,
        similarities: Tensor,
        positives: "Tensor | Positives | None" = None,
        offline: Offline | None = None,
        *,
        ignore: Tensor | None = None,
        weights: Tensor | None = None,
    ) -> Tensor:
        """The loss of any similarity matrix (images x captions) with a gradient history."""
        check_similarities(similarities)
        affine = self.affine()
        inputs: list[Tensor | None] = [similarities, *(offline or ()), *affine]
        learned = is_followed(affine[0])

        @torch.no_grad()
        def calculate(S: Tensor, *rest: Tensor) -> tuple[Tensor, list[Tensor | None]]:
            *drawn, scale, bias = rest
            mined = Offline(*drawn) if drawn else None
            result = self._weighed(S, Given(positives, mined, ignore, weights), (scale, bias))
            W = result.i2t + result.t2i
            factor = torch.ones_like(result.value) if scale is None else scale.detach()
            # The weights carry the scale; its own derivative and the bias's do not.
            on_scale = (W * S).sum() / factor if learned else None
            on_bias = None if bias is None else W.sum() / factor
            return result.value, [W, *(result.offline or ()), on_scale, on_bias]

        if is_transformed(inputs):
            return weigh_functional(calculate, inputs)
        value, gradients = calculate(*inputs)  # type: ignore[arg-type]  # None among them
        return attach(value, inputs, gradients)

    @torch.no_grad()
    def weigh(
        self,
        similarities: Tensor,
        positives: "Tensor | Positives | None" = None,
        offline: Offline | None = None,
        *,
        ignore: Tensor | None = None,
        weights: Tensor | None = None,
    ) -> Weights:
        """dL/dS by direction, and the loss."""
        check_similarities(similarities)
        given = Given(positives, offline, ignore, weights)
        return self._weighed(similarities, given, self.affine())

    def explain(
        self,
        images: Tensor,
        texts: Tensor,
        positives: "Tensor | Positives | None" = None,
        offline: Offline | None = None,
        *,
        ignore: Tensor | None = None,
        weights: Tensor | None = None,
        block: int | None = None,
    ) -> str:
        """What it attends to in a batch (COCOS), in one line for a log; as for a call.

        By direction: the effective number of negatives, (sum w)² / sum w², and the share of the
        push on the one pushed hardest, means over the queries that push; and how many queries have
        no gradient. `simgrad.cocos` has them as numbers.

        Examples:
            >>> vectors = torch.eye(4)[[0, 0, 1, 2]]
            >>> print(simgrad.objective("triplet", direction="i2t").explain(vectors, vectors))
            triplet(direction=i2t) i2t: 1.0 effective negatives, 100% on the hardest, 2 of 4 queries silent
        """  # noqa: E501  # one line
        return explain(self, images, texts, Given(positives, offline, ignore, weights, block))

    def _weighed(
        self,
        similarities: Tensor,
        given: Given,
        affine: tuple[Tensor | None, Tensor | None],
    ) -> Weights:
        with without_autocast(similarities.device.type):
            S = at_least_float32(similarities.detach())
            checking = may_check(S)
            check_finite(S, "similarities", checking)
            pairs = Positives.read(
                given.positives, len(S), S.shape[1], S.device, checking, given.ignore, given.weights
            )
            outside = split_offline(self, given.offline, pairs, S)
            i2t, t2i = weigh_both(self, S, pairs, outside, affine)
            check_overflow(self, (i2t.weights, t2i.weights), similarities, checking)
            return Weights(
                i2t.weights,
                t2i.weights.t(),
                i2t.value + t2i.value,
                join_offline(i2t.outside, t2i.outside, pairs),
            )


def check_similarities(similarities: Tensor) -> None:
    """Refuse what is no similarity matrix."""
    check_matrix(similarities, "similarities", "(images, captions)")
    if not similarities.numel():
        raise InputError(f"similarities is empty: shape {tuple(similarities.shape)}.")


objectives: Registry[Objective] = Registry(
    "objective",
    "simgrad objectives",
    examine=lambda made: made.check_form(),
    common=(
        Parameter("direction", "str", "both", DIRECTIONS, "both directions, or one alone"),
        Parameter("reduction", "str", "published", REDUCTIONS, "mean or sum over queries"),
    ),
)
"""Every declared objective, ours and yours; `declare` adds one.

Examples:
    >>> for parameter in simgrad.objectives.objectives["triplet-sh"].parameters:
    ...     print(parameter, "-", parameter.description)
    margin=0.2 - how much closer than the hardest negative the positive must be
"""
