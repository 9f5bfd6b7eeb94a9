"""Models: a batch to similarities. One published model per file, shared layers beside them."""

from simgrad.models import bfan, clip, scan, towers, vse_infinity, vsepp, vsrn, xvlm  # noqa: F401
from simgrad.models.base import Encoded, Inputs, ModelConfig, RetrievalModel, build, models
from simgrad.models.checkpoint import Loaded, load, save, weights_hash

__all__ = [
    "Encoded",
    "Inputs",
    "Loaded",
    "ModelConfig",
    "RetrievalModel",
    "build",
    "load",
    "models",
    "save",
    "weights_hash",
]
