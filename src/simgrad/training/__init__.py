"""Training: the loop, checkpoints to resume from, two rounds."""

from simgrad.runs.recipe import Recipe, read_recipe
from simgrad.runs.run import Run
from simgrad.training.rounds import train

__all__ = ["Recipe", "Run", "read_recipe", "train"]
