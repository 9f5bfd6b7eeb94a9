"""Data: data sets in any common layout, vocabularies, and batches.

Examples:
    >>> dataset = simgrad.data.open_dataset("scenes(train=40, val=10, test=10)")  # or a folder
    >>> dataset
    <Dataset scenes(train=40, val=10, test=10), layout scenes
      train: 40 images, 200 captions, pictures
      val: 10 images, 50 captions, pictures
      test: 10 images, 50 captions, pictures>
    >>> dataset.split("test").image_of_caption[:6]
    array([0, 0, 0, 0, 0, 1])
"""

from typing import TYPE_CHECKING

from simgrad.core.lazy import lazy

# For type checkers and editors, which cannot follow names that are loaded on first use.
if TYPE_CHECKING:
    from simgrad.data import layouts as layouts
    from simgrad.data.base import Dataset as Dataset
    from simgrad.data.base import Features as Features
    from simgrad.data.base import Pictures as Pictures
    from simgrad.data.base import Split as Split
    from simgrad.data.batches import Batch as Batch
    from simgrad.data.batches import Source as Source
    from simgrad.data.fingerprint import Fingerprint as Fingerprint
    from simgrad.data.fingerprint import difference as difference
    from simgrad.data.judgments import read_judgments as read_judgments
    from simgrad.data.layouts import Layout as Layout
    from simgrad.data.layouts.building import Growth as Growth
    from simgrad.data.log import Log as Log
    from simgrad.data.opening import open_dataset as open_dataset
    from simgrad.data.sampling import IndexBatch as IndexBatch
    from simgrad.data.sampling import Sampler as Sampler
    from simgrad.data.subwords import WordPieces as WordPieces
    from simgrad.data.vocabulary import Vocabulary as Vocabulary
    from simgrad.data.vocabulary import read_published as read_published
    from simgrad.data.vocabulary import tokenizer_from_json as tokenizer_from_json
    from simgrad.data.words import tokenize as tokenize
else:
    __getattr__, __dir__, __all__ = lazy(
        __name__,
        {
            "Batch": "simgrad.data.batches",
            "Dataset": "simgrad.data.base",
            "Features": "simgrad.data.base",
            "Fingerprint": "simgrad.data.fingerprint",
            "Growth": "simgrad.data.layouts.building",
            "IndexBatch": "simgrad.data.sampling",
            "Layout": "simgrad.data.layouts",
            "Log": "simgrad.data.log",
            "Pictures": "simgrad.data.base",
            "Sampler": "simgrad.data.sampling",
            "Source": "simgrad.data.batches",
            "Split": "simgrad.data.base",
            "Vocabulary": "simgrad.data.vocabulary",
            "WordPieces": "simgrad.data.subwords",
            "layouts": "simgrad.data.layouts",
            "difference": "simgrad.data.fingerprint",
            "open_dataset": "simgrad.data.opening",
            "read_judgments": "simgrad.data.judgments",
            "read_published": "simgrad.data.vocabulary",
            "tokenize": "simgrad.data.words",
            "tokenizer_from_json": "simgrad.data.vocabulary",
        },
    )
