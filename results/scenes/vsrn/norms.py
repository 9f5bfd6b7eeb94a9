"""VSRN whose batch norms have another momentum, or statistics that stay as they begin.

    simgrad --with results/scenes/vsrn/norms.py study results/scenes/vsrn/norms.yaml

Frozen, a batch norm has mean 0 and variance 1 for good: it scales and shifts, no more, and what it
does in training and in evaluation is the same.
"""

from dataclasses import dataclass

from torch import nn

from simgrad.core.spec import setting
from simgrad.models.base import Inputs, models
from simgrad.models.vsrn import Vsrn, VsrnModel


@models.declare("vsrn-norms", paper="", description="VSRN with other batch norms")
@dataclass(frozen=True)
class VsrnNorms(Vsrn):
    momentum: float = setting(0.1, "share of a batch in the running statistics")
    frozen: bool = setting(False, "statistics stay as they begin")

    def build(self, inputs: Inputs) -> "VsrnNormsModel":
        return VsrnNormsModel(self, inputs)


class VsrnNormsModel(VsrnModel):
    """VSRN with other batch norms."""

    config: VsrnNorms

    def __init__(self, config: VsrnNorms, inputs: Inputs) -> None:
        super().__init__(config, inputs)
        for norm in self._norms():
            norm.momentum = config.momentum

    def _norms(self) -> list[nn.BatchNorm1d]:
        return [part for part in self.modules() if isinstance(part, nn.BatchNorm1d)]

    def train(self, mode: bool = True) -> "VsrnNormsModel":
        super().train(mode)
        if self.config.frozen:
            for norm in self._norms():
                norm.eval()
        return self
