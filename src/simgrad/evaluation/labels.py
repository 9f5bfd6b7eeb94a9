"""What people call a metric, how it is printed, and what it means."""

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass

DIRECTIONS = {"i2t": "image → text", "t2i": "text → image"}
_LABELS = {
    "medr": ("median rank", "median rank of the best true item; 1 is best"),
    "meanr": ("mean rank", "mean rank of the best true item; 1 is best"),
    "mrr": ("MRR", "mean of 1 / rank of the best true item, 0 to 1"),
    "map": ("mAP", "mean average precision over the whole list, 0 to 1"),
    "map_at_r": ("mAP@R", "mean average precision among the first R, R the number of true items"),
    "rprecision": ("R-precision", "share of true items among the first R, R being their number"),
    "average_recall": ("mean recall", "mean of R@1, R@5 and R@10, in percent"),
    "rsum": ("rsum", "sum of R@1, R@5 and R@10 of both directions, 0 to 600"),
}


@dataclass(frozen=True)
class Label:
    """How a metric is shown."""

    name: str
    label: str  # R@1
    direction: str  # i2t, t2i, or "" where it has none
    description: str
    digits: int
    better: str  # high or low
    bounds: tuple[float, float]

    @property
    def title(self) -> str:
        """image → text R@1"""
        return f"{DIRECTIONS.get(self.direction, '')} {self.label}".strip()

    def format(self, value: float) -> str:
        """A value with its digits."""
        return "–" if math.isnan(value) else f"{value:.{self.digits}f}"

    def best(self, values: Iterable[float]) -> float:
        """The best of several systems' values; those that are missing do not count."""
        known = [value for value in values if not math.isnan(value)]
        return (max if self.better == "high" else min)(known, default=math.nan)


def metric_of(name: str) -> Label:
    """The label of a metric such as `i2t_r1` or `rsum`."""
    way, _, bare = name.partition("_") if name[:4] in ("i2t_", "t2i_") else ("", "", name)
    label, meaning = _LABELS.get(bare, (bare.replace("_", " "), ""))
    digits, bounds, better = 1, (0.0, 600.0 if bare == "rsum" else 100.0), "high"
    if found := re.fullmatch(r"r(\d+)", bare):
        first = "first" if found[1] == "1" else f"among the first {found[1]}"
        label, meaning = f"R@{found[1]}", f"queries with a true item {first}, in percent"
    elif found := re.fullmatch(r"map(\d+)", bare):
        label = f"mAP@{found[1]}"
        meaning = f"mean average precision among the first {found[1]}, 0 to 1"
    if bare.startswith(("map", "mrr")) or bare == "rprecision":
        digits, bounds = 3, (0.0, 1.0)
    elif bare in ("medr", "meanr"):
        bounds, better = (1.0, math.inf), "low"
    return Label(name, label, way, meaning, digits, better, bounds)
