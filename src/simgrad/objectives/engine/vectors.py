"""Vectors that are multiplied, all of one length; and the way back to those that were given.

The length is the root of the similarities' scale, 1 without one. So the scale costs nothing; its
derivative is the product of the vectors and their gradient. A vector of length 0 has no direction
to turn: it stays 0, and gets no gradient.
"""

import torch
from torch import Tensor

from simgrad.core.errors import InputError
from simgrad.objectives.engine.tensors import chunks, exact_type

_TINY = 1e-12


class Unit:
    """Images and texts, one after the other in memory: what is done to both is one operation."""

    def __init__(
        self,
        images: Tensor,
        texts: Tensor,
        scale: Tensor | None,
        kind: torch.dtype,
        learned: bool = False,  # the scale wants a gradient
    ) -> None:
        self.images, self.texts = images.detach(), texts.detach()
        given = torch.cat((self.images, self.texts))
        self.exact, self.kind = exact_type(given), kind
        self.scale: Tensor | float = 1.0
        self.learned = learned
        if scale is not None:
            # A number where it can be one without waiting for a GPU.
            known = scale.device.type == "cpu" and not learned
            self.scale = float(scale) if known else scale.detach().to(self.exact)
            if known and not self.scale > 0:
                raise InputError(f"the scale of similarities is {self.scale}; it must be above 0.")
        self.norms = torch.linalg.vector_norm(given, dim=1, keepdim=True, dtype=self.exact)
        self.divisors = torch.threshold(self.norms, _TINY, torch.inf)
        if scale is not None:
            self.divisors.div_(self.scale**0.5)
        # `given` is a copy: its memory is used again.
        if given.dtype == self.exact:
            self.used = given.div_(self.divisors).to(kind)
        else:
            self.used = given if given.dtype == kind else torch.empty_like(given, dtype=kind)
            for part in chunks(len(given), given):
                self.used[part] = given[part] / self.divisors[part]

    def go_back(self, gradients: Tensor) -> Tensor | None:
        """In place: gradients by the vectors become gradients by what was given; by the scale."""
        along: list[Tensor] | None = [] if self.learned else None
        for part in chunks(len(gradients), gradients):
            some, unit = gradients[part], self._exactly(part)
            share = (some * unit).sum(1, keepdim=True)
            if along is not None:
                along.append(share.sum())
            some.addcmul_(unit, share / self.scale, value=-1).div_(self.divisors[part])
        if along is None:
            return None
        return torch.stack(along).sum().div_(2 * self.scale)  # images and texts: twice the same

    def _exactly(self, part: slice) -> Tensor:
        """Some of the vectors, not rounded."""
        if self.kind == self.exact:
            return self.used[part]
        images = len(self.images)
        if part.stop <= images:
            given = self.images[part]
        elif part.start >= images:
            given = self.texts[part.start - images : part.stop - images]
        else:
            given = torch.cat((self.images[part.start :], self.texts[: part.stop - images]))
        return given.to(self.exact) / self.divisors[part]
