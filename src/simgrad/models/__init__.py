"""Models: a batch to similarities. One published model per file, shared layers beside them.

Examples:
    >>> words = simgrad.data.Vocabulary.build(["a red heart", "a blue star"], min_count=1)
    >>> inputs = simgrad.models.Inputs.of("features", (16,), words)
    >>> model = simgrad.models.build("vse++(dimension=8)", inputs)
    >>> model.encode_images(torch.randn(2, 16)).vectors.shape
    torch.Size([2, 8])
"""

from simgrad.models import bfan, clip, light, scan, towers, vse_infinity, vsepp, vsrn, xvlm  # noqa: F401
from simgrad.models.base import Encoded, Inputs, ModelConfig, RetrievalModel, build, models
from simgrad.models.checkpoint import Checkpoint, load, save, weights_hash

__all__ = [
    "Checkpoint",
    "Encoded",
    "Inputs",
    "ModelConfig",
    "RetrievalModel",
    "build",
    "load",
    "models",
    "save",
    "weights_hash",
]
