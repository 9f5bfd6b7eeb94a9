"""An objective over a batch that lies on several processes.

Each process passes its own share, as in examples/ddp_loop.py. Every process gets the loss of the
whole batch and, after backward, the exact gradient of its own share, as if one process had seen all
of it. Shares may differ in size; positives are indices into the own images, and pairs to ignore are
pairs of the own share. `gradients="mean"` is for loops that average the processes' gradients (DDP,
FSDP), `"sum"` for those that add them: with the wrong one every step is as many times too long or
too short as there are processes. `check=True` looks, once:

1. When the first loss is made, the gradient of every weight behind the embeddings is found as one
   process would have it: from the gradient of the own share, added up over the processes.
2. At the optimizer's first step the loop has done what it does with gradients. Those of the same
   direction, but as many times too long or too short as there are processes, are the mistake.
"""

import warnings
from typing import TYPE_CHECKING, Any, Literal

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_pre_hook

from simgrad.core.errors import InputError
from simgrad.objectives.base import Objective, Values, objectives
from simgrad.objectives.engine.embeddings import check_shapes, weigh_each, weigh_spread
from simgrad.objectives.engine.ring import Processes, Transport
from simgrad.objectives.engine.work import Given
from simgrad.objectives.gathered import Share, weigh_gathered
from simgrad.objectives.pairs import Offline
from simgrad.objectives.positives import Positives

_LARGEST_CHECK = 4096  # pairs of a batch that `check` gathers


def distributed(
    objective: "str | Objective",
    group: "dist.ProcessGroup | None" = None,
    gradients: Literal["mean", "sum"] = "mean",
    *,
    check: bool = False,
) -> "Distributed":
    """An objective over one batch that is spread over several processes; each passes its share.

    `group`: the processes; all of them if not given. `gradients`: "mean" for loops that average
    gradients (DDP, FSDP), "sum" for those that add them.
    `check`: compare the first batch, if it is small, with one process that sees all of it, and at
    the optimizer's first step whether the loop averages or adds.

    Examples:
        >>> images, texts = torch.randn(4, 8), torch.randn(4, 8)  # this process's share
        >>> spread = simgrad.distributed("nt-xent")
        >>> loss = spread(images, texts)  # of the whole batch
        >>> bool(loss == simgrad.objective("nt-xent")(images, texts))  # here one process has it all
        True
    """
    found = objective if isinstance(objective, Objective) else objectives.parse(objective)
    return Distributed(found, group, gradients, check)


class Distributed(nn.Module):
    """Called like the objective itself, with the own share of the batch."""

    def __init__(
        self,
        objective: Objective,
        group: "dist.ProcessGroup | None" = None,
        gradients: Literal["mean", "sum"] = "mean",
        check: bool = False,
        transport: Transport | None = None,
    ) -> None:
        super().__init__()
        if gradients not in ("mean", "sum"):
            raise InputError(
                "distributed: gradients is 'mean' (loops that average them, as DDP and FSDP do) or "
                f"'sum', not {gradients!r:.40}."
            )
        self.objective, self.group, self.gradients = objective, group, gradients
        self.check, self.transport = check, transport

    def extra_repr(self) -> str:
        return f"gradients={self.gradients!r}"

    def forward(
        self,
        images: Tensor,
        texts: Tensor,
        positives: "Tensor | Positives | None" = None,
        offline: Offline | None = None,
        *,
        ignore: Tensor | None = None,
        weights: Tensor | None = None,
    ) -> Tensor:
        """The loss of the whole batch."""
        transport = self._several()
        if transport is None:
            loss: Tensor = self.objective(
                images, texts, positives, offline, ignore=ignore, weights=weights
            )
            return loss
        check_shapes(images, texts, spread=True)
        factor = float(transport.size) if self.gradients == "mean" else 1.0
        given = Share(images, texts, positives, offline, ignore, weights)
        if self.objective.separable:
            belonging = Given(positives, offline, ignore, weights)
            loss = weigh_spread(self.objective, images, texts, belonging, transport, factor)
        else:  # its rule must see all queries at once
            loss = weigh_gathered(self.objective, given, transport, factor)
        if self.check:
            self.check = False
            _compare(self.objective, given, transport, loss, factor, self.gradients)
        return loss

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
    ) -> Values:
        """The value of each query of this process, among the candidates of all.

        What the loop minimises is then the mean, or the sum, of what each process makes of its own
        values: `gradients` makes no difference. All processes call backward.
        """
        transport = self._several()
        if transport is None:
            return self.objective.each(
                images, texts, positives, offline, ignore=ignore, weights=weights
            )
        self.objective._require_rows()
        given = Given(positives, offline, ignore, weights)
        return Values(*weigh_each(self.objective, images, texts, given, transport))

    def _several(self) -> Transport | None:
        """The processes, if there are several."""
        transport = self.transport
        if transport is None and dist.is_available() and dist.is_initialized():
            transport = Processes(self.group)
        return transport if transport is not None and transport.size > 1 else None


def _compare(
    objective: Objective,
    given: Share,
    transport: Transport,
    loss: Tensor,
    factor: float,
    gradients: Literal["mean", "sum"],
) -> None:
    """The same batch on one process: the gradient of the own share now, and that of the weights
    when the loop has done with them what it does."""
    texts = given.texts
    both = {"images": given.images, "texts": texts}
    learned = {what: x for what, x in both.items() if x.requires_grad}  # a tower may be locked
    if not learned:
        return
    if sum(len(part) for part in transport.gather(texts.new_zeros(len(texts), 1))) > _LARGEST_CHECK:
        return
    inputs = list(learned.values())
    expected = torch.autograd.grad(weigh_gathered(objective, given, transport, factor), inputs)
    found = torch.autograd.grad(loss, inputs, retain_graph=True)
    for what, ours, wanted in zip(learned, found, expected, strict=True):
        size = float(wanted.abs().max()) if wanted.numel() else 0.0
        if not torch.allclose(ours, wanted, rtol=1e-3, atol=1e-3 * size):
            raise InputError(
                f"distributed: the gradient of this process's {what} is not {factor:g} times that "
                "of one process that sees the whole batch. Are these shares of one batch?"
            )
    whole = [g / factor for g in expected]
    watch_first_step(inputs, whole, transport, gradients)


_CLOSE = 0.01  # of a length, and of a direction


def watch_first_step(
    outputs: list[Tensor],
    gradients: list[Tensor],
    transport: Transport,
    given: Literal["mean", "sum"],
) -> None:
    """`gradients` are those of one process that sees the whole batch, by the own `outputs`."""
    weights = _leaves(outputs)
    if not weights:  # embeddings that nothing encodes
        return
    own = torch.autograd.grad(outputs, weights, gradients, retain_graph=True, allow_unused=True)
    filled = (torch.zeros_like(w) if g is None else g for w, g in zip(weights, own, strict=True))
    wanted = dict(zip(weights, map(transport.sum, filled), strict=True))

    def look(optimizer: torch.optim.Optimizer, *_: Any) -> None:
        theirs = [p for group in optimizer.param_groups for p in group["params"]]
        here = [p for p in theirs if p in wanted and p.grad is not None]
        if here:
            handle.remove()
            _judge(here, [wanted[p] for p in here], transport.size, given)

    handle = register_optimizer_step_pre_hook(look)


def _judge(
    weights: list[Tensor], wanted: list[Tensor], size: int, given: Literal["mean", "sum"]
) -> None:
    found = torch.cat([w.grad.flatten().double().cpu() for w in weights if w.grad is not None])
    expected = torch.cat([g.flatten().double().cpu() for g in wanted])
    length = float(expected.norm())
    if length == 0:
        return
    times = float(found @ expected) / length**2
    cosine = times * length / max(float(found.norm()), 1e-30)
    if cosine >= 1 - _CLOSE and abs(times / size - 1) < _CLOSE:
        _refuse("adds the processes' gradients", "sum", times, given)
    if cosine >= 1 - _CLOSE and abs(times * size - 1) < _CLOSE:
        _refuse("averages the processes' gradients", "mean", times, given)
    if cosine < 1 - _CLOSE or abs(times - 1) >= _CLOSE:
        warnings.warn(
            "distributed: the first step's gradient cannot be compared with that of one process: "
            f"it is {times:.3g} times as long, with a cosine of {cosine:.3f}. Is it clipped, or is "
            "there more than this loss and this batch in it?",
            stacklevel=2,
        )


def _refuse(what: str, better: str, times: float, given: str) -> None:
    raise InputError(
        f"distributed: gradients={given!r}, but this loop {what}: the first step's gradient is "
        f"{times:.3g} times that of one process that sees the whole batch. Use "
        f"gradients={better!r}."
    )


def _leaves(outputs: list[Tensor]) -> list[Tensor]:
    """The weights behind some tensors, in an order that all processes share."""
    found: list[Tensor] = []
    waiting, seen = [x.grad_fn for x in outputs if x.grad_fn is not None], set[Any]()
    while waiting:
        node: Any = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if hasattr(node, "variable"):
            found.append(node.variable)
        waiting += [before for before, _ in node.next_functions]
    return found
