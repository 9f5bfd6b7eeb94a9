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

from simgrad.core.lazy import lazy

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
        "WordPieces": "simgrad.data.wordpieces",
        "layouts": "simgrad.data.layouts",
        "difference": "simgrad.data.fingerprint",
        "open_dataset": "simgrad.data.opening",
        "read_judgments": "simgrad.data.judgments",
        "read_published": "simgrad.data.vocabulary",
        "tokenize": "simgrad.data.words",
        "tokenizer_from_json": "simgrad.data.vocabulary",
    },
)
