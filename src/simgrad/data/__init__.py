"""Data: every layout of the field read into one shape, vocabularies, and batches."""

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
