"""What people call a metric, how it is printed, and what it means."""

import math
import re
from dataclasses import dataclass

WAYS = {"i2t": "image → text", "t2i": "text → image"}
_LABELS = {
    "medr": "median rank", "meanr": "mean rank", "mrr": "MRR", "map": "mAP", "map_at_r": "mAP@R",
    "rprecision": "R-precision", "average_recall": "mean recall", "rsum": "rsum",
}  # fmt: skip
_MEANINGS = {
    "medr": "median rank of the best true item; 1 is best",
    "meanr": "mean rank of the best true item; 1 is best",
    "mrr": "mean of 1 / rank of the best true item, 0 to 1",
    "map": "mean average precision over the whole list, 0 to 1",
    "map_at_r": "mean average precision among the first R, R being the number of true items",
    "rprecision": "share of true items among the first R, R being their number",
    "average_recall": "mean of R@1, R@5 and R@10, in percent",
    "rsum": "sum of R@1, R@5 and R@10 of both directions, 0 to 600: one number for the whole",
}


@dataclass(frozen=True)
class Label:
    """How a metric is shown."""

    name: str
    label: str  # R@1
    over: str  # image → text; "" where it has no direction
    meaning: str
    digits: int
    low_is_good: bool
    bounds: tuple[float, float]

    @property
    def whole(self) -> str:
        """image → text R@1"""
        return f"{self.over} {self.label}".strip()


def label_of(name: str) -> Label:
    """The label of a metric such as `i2t_r1` or `rsum`."""
    way, _, bare = name.partition("_") if name[:4] in ("i2t_", "t2i_") else ("", "", name)
    recall = re.fullmatch(r"r(\d+)", bare)
    depth = re.fullmatch(r"map(\d+)", bare)
    low_is_good = bare in ("medr", "meanr")
    digits, bounds = 1, (0.0, 100.0)
    if recall:
        label = f"R@{recall[1]}"
        first = "first" if recall[1] == "1" else f"among the first {recall[1]}"
        meaning = f"queries with a true item {first}, in percent"
    else:
        label = f"mAP@{depth[1]}" if depth else _LABELS.get(bare, bare.replace("_", " "))
        same = f"mean average precision among the first {depth[1]}, 0 to 1" if depth else ""
        meaning = same or _MEANINGS.get(bare, "")
        unit = bare.startswith(("map", "mrr")) or bare == "rprecision"
        digits, bounds = (3, (0.0, 1.0)) if unit else (1, (0.0, 600.0 if bare == "rsum" else 100.0))
        bounds = (1.0, math.inf) if low_is_good else bounds
    return Label(name, label, WAYS.get(way, ""), meaning, digits, low_is_good, bounds)
