"""The runs of the tests of retrievers."""

from tests.retriever.conftest import easy, runs, searcher

__all__ = ["easy", "runs", "searcher"]
