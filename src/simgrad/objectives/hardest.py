"""What the hardest-negative objectives share: finding it, in one piece or in several."""

from torch import Tensor

from simgrad.objectives.streamed import Streamed, Summary


class Hardest(Streamed):
    """Sees of a query's negatives the hardest: summary (its similarity, which it is, ...)."""

    tile = "hardest"

    @property
    def sparse(self) -> bool:
        return self.stream() is not None  # not where a subclass has a rule of its own

    def summarise(
        self, negatives: Tensor, before: Summary, first: int = 0
    ) -> tuple[Summary, Tensor | None]:
        hardest, where = lying(negatives).max(1)
        return (hardest, where + first if first else where), None

    def merge(self, parts: Summary) -> Summary:
        hardest, part = parts[0].max(0, keepdim=True)
        where = parts[1].gather(0, part)
        return hardest.squeeze(0), where.squeeze(0), *super().merge(parts[2:])


def lying(negatives: Tensor) -> Tensor:
    """Rows one after the other in memory, where maxima over anything else are slow."""
    return negatives if negatives.is_cuda else negatives.contiguous()
