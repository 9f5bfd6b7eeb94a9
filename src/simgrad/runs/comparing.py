"""`simgrad.compare`: runs by their folders too."""

from pathlib import Path
from typing import Any

from simgrad.core.lazy import lazy
from simgrad.evaluation import Comparison
from simgrad.evaluation import compare as compare_ranks
from simgrad.evaluation.comparison import Runs
from simgrad.evaluation.uncertainty import LEVEL

# Arrays are compared without the packages that a run needs.
_later = lazy(__name__, {"Run": "simgrad.runs.run"})[0]


def compare(
    first: Runs | str | Path | list[str] | list[Path],
    second: Runs | str | Path | list[str] | list[Path],
    *,
    names: tuple[str, str] | None = None,
    level: float = LEVEL,
) -> Comparison:
    """Every metric of two systems on the same queries: difference, interval, p.

    Each is a `Run` or its folder, or what `evaluate` gave (or its `ranks`), or a list of these, one
    for each seed. By default runs are called as their folders are.

    Examples:
        >>> images, texts = torch.eye(20), torch.eye(20)
        >>> first = simgrad.evaluate(images, texts, range(20))
        >>> second = simgrad.evaluate(images, texts.roll(1, 0), range(20))  # all captions wrong
        >>> result = simgrad.compare(first, second)
        >>> result["i2t_r1"].difference, result["i2t_r1"].p < 0.001
        (-100.0, True)
    """
    return compare_ranks(_opened(first), _opened(second), names=names, level=level)


def _opened(runs: Any) -> Any:
    if isinstance(runs, list | tuple):
        return [_opened(run) for run in runs]
    return _later("Run").open(runs) if isinstance(runs, str | Path) else runs
