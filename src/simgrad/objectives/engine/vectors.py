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
        # What each is multiplied with: nothing for what has no length.
        self.factors = torch.threshold(self.norms, _TINY, torch.inf).reciprocal_()
        if scale is not None:
            self.factors.mul_(self.scale**0.5)
        # `given` is a copy: its memory is used again.
        if given.dtype == self.exact:
            self.used = given.mul_(self.factors).to(kind)
        else:
            self.used = given if given.dtype == kind else torch.empty_like(given, dtype=kind)
            torch.mul(given, self.factors, out=self.used)

    def go_back(self, gradients: Tensor) -> Tensor | None:
        """In place: gradients by the vectors become gradients by what was given; by the scale.

        With u = f x, that is f (g - u (g.u) / scale): what turns a vector, and not what lengthens it.
        """
        along: list[Tensor] = []
        for part in chunks(len(gradients), gradients):
            some, factor = gradients[part], self.factors[part]
            vectors = self.used[part] if self.kind == self.exact else self._given(part)
            product = (some * vectors).sum(1, keepdim=True)
            if self.kind != self.exact:
                product.mul_(factor)
                vectors = vectors.to(self.exact).mul_(factor)
            if self.learned:
                along.append(product.sum())
            some.addcmul_(vectors, product.div_(self.scale), value=-1).mul_(factor)
        if not self.learned:
            return None
        return torch.stack(along).sum().div_(2 * self.scale)  # images and texts: twice the same

    def _given(self, part: slice) -> Tensor:
        """Some of the vectors as they were given."""
        images = len(self.images)
        if part.stop <= images:
            return self.images[part]
        if part.start >= images:
            return self.texts[part.start - images : part.stop - images]
        return torch.cat((self.images[part.start :], self.texts[: part.stop - images]))
