"""What a budget buys: the expected best validation score by number of trials.

Dodge, Gururangan, Card, Schwartz, Smith: Show your work: improved reporting of experimental
results, EMNLP 2019. Of V independent trials with scores v_1 <= ... <= v_V, the best of n has the
expectation sum over i of v_i ((i / V)^n - ((i - 1) / V)^n).
"""

from collections.abc import Sequence

import numpy as np


def expected_best(scores: Sequence[float]) -> list[float]:
    """Of 1, 2, ..., all trials."""
    ordered = np.sort(np.asarray(scores, dtype=np.float64))
    count = len(ordered)
    share = np.arange(count + 1) / max(1, count)
    return [float(ordered @ np.diff(share**n)) for n in range(1, count + 1)]


def best_so_far(scores: Sequence[float]) -> list[float]:
    """In the order in which they were tried."""
    return np.maximum.accumulate(np.asarray(scores, dtype=np.float64)).tolist() if scores else []
