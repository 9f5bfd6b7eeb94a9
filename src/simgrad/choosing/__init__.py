"""`choose`: which objective for these data? A plan that fits a time, a comparison, an answer."""

from simgrad.choosing.answer import Answer as Answer
from simgrad.choosing.procedure import choose as choose

__all__ = ["Answer", "choose"]
