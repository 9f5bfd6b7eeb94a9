"""Mining: hard negatives over the whole training set, from arrays."""

from simgrad.data.candidates import Candidates
from simgrad.mining.filters import Filters
from simgrad.mining.mine import mine

__all__ = ["Candidates", "Filters", "mine"]
