"""Other people's encoders: sentences and pictures in, vectors out; one kind per file.

Examples:
    >>> simgrad.models.embedders.embedders["onnx"].description
    'image.onnx and captions.onnx, as simgrad export writes them'
"""

from simgrad.models.base import models
from simgrad.models.embedders import dual, onnx_pair, open_clip, python, sentence_transformer
from simgrad.models.embedders.base import Embedder, embedder_of, embedders

__all__ = ["Embedder", "dual", "embedder_of", "embedders", "onnx_pair", "open_clip"]
__all__ += ["python", "sentence_transformer"]

for _name in [one.name for one in embedders]:
    models.hints[_name] = (
        f' It encodes, and is not trained: `simgrad embed "{_name}(...)" DATA --output vectors.npz`'
        " writes vectors, on which `choose` and `train` train heads."
    )
