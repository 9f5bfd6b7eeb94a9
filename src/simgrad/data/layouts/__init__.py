"""Layouts: one per file, declared there; `base.py` finds the one that a path has.

Imported in the order from general to particular, because the last is asked first. `list` comes
after `pairs`: a folder with both has a list for a reason.

Examples:
    >>> simgrad.data.layouts.layouts["pairs"].description
    'IMAGE.jpg + IMAGE.txt, a caption per line'
"""

from simgrad.data.layouts import (  # noqa: I001  # the order decides
    scenes,
    hub,
    pairs,
    listed,
    captions,
    parquet,
    xvlm,
    karpathy,
    coco,
    precomputed,
    vse_infinity,
    webdataset,
    huggingface,
    features,
    embeddings,
)
from simgrad.data.layouts.base import Layout, declare, layouts, recognise

__all__ = [
    "Layout",
    "captions",
    "coco",
    "declare",
    "embeddings",
    "features",
    "hub",
    "huggingface",
    "karpathy",
    "layouts",
    "listed",
    "pairs",
    "parquet",
    "precomputed",
    "recognise",
    "scenes",
    "vse_infinity",
    "webdataset",
    "xvlm",
]
