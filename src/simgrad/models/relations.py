"""VSRN's relation layer: R = theta(v) phi(v)ᵀ / regions without a softmax, then W R g(v).

Four linear layers of regions. Where there are more regions in the batch than dimensions, theta is
merged with phi, and W with g: two products of regions and two of weights take the place of four of
regions, forward and backward, and what is in between is never made. In bfloat16 both ways are
equally far from the exact result.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from simgrad.models.layers import cast_once


def related(regions: Tensor, ask: nn.Linear, out: nn.Linear) -> Tensor:
    """(n, k, d) -> (n, k, d); `ask` is theta, phi and g, one below the other."""
    n, k, d = regions.shape
    if n * k > d:
        merged: Callable[..., Tensor] = Merged.apply
        parts = (regions, ask.weight, ask.bias, out.weight, out.bias)
        return merged(*(cast_once(part) for part in parts))
    theta, phi, told = ask(regions).chunk(3, dim=-1)
    relations = theta @ phi.transpose(1, 2) / k
    return F.linear(relations @ told, out.weight, out.bias)


class Merged(torch.autograd.Function):
    """theta(v) . phi(w) = (v M + m) . w + v . s + c, W g(w) = w N + n: M and N of weights alone."""

    @staticmethod
    def forward(
        context: Any, x: Tensor, ask: Tensor, ask_bias: Tensor, out: Tensor, out_bias: Tensor
    ) -> Tensor:
        rows, k = x.flatten(0, 1), x.shape[1]
        (theta, phi, told), (a, b, c) = ask.chunk(3), ask_bias.chunk(3)
        asking, telling, own = theta.T @ phi, (out @ told).T, theta.T @ b
        asked = torch.addmm(phi.T @ a, rows, asking).view_as(x)
        answers = torch.addmm(out @ c, rows, telling).view_as(x)
        alone = (torch.mv(rows, own) + torch.dot(a, b)).view(-1, k, 1)
        relations = torch.baddbmm(alone, asked, x.transpose(1, 2), beta=1 / k, alpha=1 / k)
        context.save_for_backward(
            x, ask, ask_bias, out, asking, telling, own, asked, answers, relations
        )
        return torch.baddbmm(out_bias, relations, answers)

    @staticmethod
    def backward(context: Any, above: Tensor) -> tuple[Tensor, ...]:  # type: ignore[override]
        x, ask, ask_bias, out, asking, telling, own, asked, answers, relations = (
            context.saved_tensors
        )
        rows, (k, d) = x.flatten(0, 1), x.shape[1:]
        (theta, phi, told), (a, b, c) = ask.chunk(3), ask_bias.chunk(3)
        of_relations = torch.baddbmm(relations, above, answers.transpose(1, 2), beta=0, alpha=1 / k)
        of_answers = (relations.transpose(1, 2) @ above).flatten(0, 1)
        of_asked = (of_relations @ x).flatten(0, 1)
        of_alone = of_relations.sum(2).flatten()
        of_x = (of_relations.transpose(1, 2) @ asked).flatten(0, 1)
        of_x.addmm_(of_asked, asking.T).addmm_(of_answers, telling.T).addr_(of_alone, own)

        of_asking, of_telling = rows.T @ of_asked, of_answers.T @ rows
        of_m, of_n, of_s, of_c = (
            of_asked.sum(0),
            of_answers.sum(0),
            rows.T @ of_alone,
            of_alone.sum(),
        )
        of_ask = torch.empty_like(ask)
        torch.mm(phi, of_asking.T, out=of_ask[:d]).addr_(b, of_s)
        torch.mm(theta, of_asking, out=of_ask[d : 2 * d]).addr_(a, of_m)
        torch.mm(out.T, of_telling, out=of_ask[2 * d :])
        of_ask_bias = torch.cat([phi @ of_m + b * of_c, theta @ of_s + a * of_c, out.T @ of_n])
        of_out = (of_telling @ told.T).addr_(of_n, c)
        return of_x.view_as(x), of_ask, of_ask_bias, of_out, above.sum((0, 1))
