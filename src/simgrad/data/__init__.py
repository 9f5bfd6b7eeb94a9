"""Data: every layout of the field read into one shape, vocabularies, and batches.

Names load on first use, so that importing the package is quick.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from simgrad.data.base import Dataset, Features, Pictures, Split, open_dataset
    from simgrad.data.batches import Batch, IndexBatch, Sampler, Source
    from simgrad.data.candidates import read_candidates, write_candidates
    from simgrad.data.judgments import read_judgments
    from simgrad.data.vocabulary import Vocabulary, read_published, tokenizer_from_json
    from simgrad.data.wordpieces import WordPieces
    from simgrad.data.words import tokenize

_PUBLIC = {
    "Batch": "batches",
    "Dataset": "base",
    "Features": "base",
    "IndexBatch": "batches",
    "Pictures": "base",
    "Sampler": "batches",
    "Source": "batches",
    "Split": "base",
    "Vocabulary": "vocabulary",
    "WordPieces": "wordpieces",
    "open_dataset": "base",
    "read_candidates": "candidates",
    "read_judgments": "judgments",
    "read_published": "vocabulary",
    "tokenize": "words",
    "tokenizer_from_json": "vocabulary",
    "write_candidates": "candidates",
}

__all__ = [
    "Batch",
    "Dataset",
    "Features",
    "IndexBatch",
    "Pictures",
    "Sampler",
    "Source",
    "Split",
    "Vocabulary",
    "WordPieces",
    "open_dataset",
    "read_candidates",
    "read_judgments",
    "read_published",
    "tokenize",
    "tokenizer_from_json",
    "write_candidates",
]


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'simgrad.data' has no attribute '{name}'")
    return getattr(importlib.import_module(f"simgrad.data.{_PUBLIC[name]}"), name)
