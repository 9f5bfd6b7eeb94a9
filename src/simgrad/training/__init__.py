"""Training: recipes, the loop, checkpoints to resume from, mining, two rounds."""

from simgrad.training.recipe import Recipe, read_recipe
from simgrad.training.run import Run

__all__ = ["Recipe", "Run", "read_recipe"]
