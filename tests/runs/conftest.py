"""The small run of the training tests."""

from tests.training.conftest import scenes, small, weights

__all__ = ["scenes", "small", "weights"]
