"""Whether a loop averages the processes' gradients or adds them up: looked at once, at its first
step.

1. When the first loss is made, the gradient of every weight behind the embeddings is found as one
   process would have it: from the gradient of the own share, added up over the processes.
2. At the optimizer's first step the loop has done what it does with gradients. Those of the same
   direction, but as many times too long or too short as there are processes, are the classic
   mistake.
"""

import warnings
from typing import Any, Literal

import torch
from torch import Tensor
from torch.optim.optimizer import register_optimizer_step_pre_hook

from simgrad.core.errors import InputError
from simgrad.objectives.engine.ring import Transport

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
