"""Heads on vectors as two matrices, for whatever makes and keeps the vectors.

heads.safetensors: images (c, d), texts (c, d). A vector x of either side becomes
normalise(normalise(x) @ matrix), and a similarity is the product of two of them.
"""

from pathlib import Path
from typing import Any

HEADS = "heads.safetensors"
_HOW = (
    "y = normalise(normalise(x) @ matrix), row by row; a similarity is a product of two such rows"
)


def write_heads(model: Any, folder: Path) -> None:
    """Both matrices of a model with linear heads."""
    from safetensors.torch import save_file

    matrices = {
        "images": model.image_projection.weight.detach().T.contiguous().cpu(),
        "texts": model.text_projection.weight.detach().T.contiguous().cpu(),
    }
    save_file(matrices, folder / HEADS, metadata={"how": _HOW})
