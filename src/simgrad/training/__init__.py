"""Training: the loop, checkpoints to resume from, two rounds.

Examples:
    >>> with open("recipe.yaml", "w") as file:
    ...     _ = file.write("objective: nt-xent\\nepochs: 3")
    >>> simgrad.training.read_recipe("recipe.yaml").epochs
    3
"""

from simgrad.runs.recipe import Recipe, read_recipe
from simgrad.runs.run import Run
from simgrad.training.rounds import train

__all__ = ["Recipe", "Run", "read_recipe", "train"]
