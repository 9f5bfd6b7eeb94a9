"""How similar own pairs, hard negatives and kept negatives are, and what filters take away."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from simgrad.core.files import atomic_path
from simgrad.evaluation.declared import DIRECTIONS
from simgrad.evaluation.scores import Scores
from simgrad.mining.filters import Filters
from simgrad.mining.product import LargestScores, largest

_QUERIES = 1000  # that are looked at, of each direction
_NO_PAIR = 1e4  # the bound of an image without captions
_BINS = 60
# Beside the filters that were asked for: what these would take away.
_USUAL = (
    Filters(absolute_margin=0.0),
    Filters(relative_margin=0.05),
    Filters(relative_margin=0.1),
    Filters(absolute_margin=0.1),
)


def weakest(own: Tensor, owner: Tensor, images: int) -> Tensor:
    """(images,) the least similar of each image's own captions."""
    start = torch.full((images,), _NO_PAIR, dtype=own.dtype, device=own.device)
    return start.scatter_reduce_(0, owner, own, "amin")


def survey(
    scores: Scores,
    owner: Tensor,
    own: Tensor,
    sides: tuple[LargestScores, LargestScores],
    depth: int,
    filters: Filters,
) -> dict[str, Any]:
    """By direction: summaries of scores and margins, and what each filter takes away.

    Filters are tried on the first `depth` candidates of up to 1,000 queries, evenly spread.
    """
    owner, own = owner.cpu(), own.cpu()
    result: dict[str, Any] = {}
    bounds = (weakest(own, owner, scores.num_images), own)
    for way, found, bound in zip(DIRECTIONS, sides, bounds, strict=True):
        flipped = way == "t2i"
        queries = _spread(len(found.rows))
        hard = _hardest(scores.transposed() if flipped else scores, owner, queries, depth, flipped)
        asked = _single(filters)
        told = [_taken(each, hard, bound[queries]) for each in [*asked, *_USUAL]]
        assert found.scores is not None
        kept = torch.from_numpy(np.ascontiguousarray(found.scores[queries.numpy()]))
        has = bound[queries, None] < _NO_PAIR
        margins = (bound[queries, None] - kept)[has & (kept > -torch.inf)]
        result[way] = {
            "queries": len(found.rows),
            "short": int((found.rows < 0).any(1).sum()),
            "kept": int((found.rows >= 0).sum()),
            "looked_at": len(queries),
            # How well the model knows its own pairs: that of a query is better than the last one.
            "own_among": float((bound[queries] >= hard.amin(1)).float().mean()),
            "positive": _summary(own),
            "hardest": _summary(hard[hard > -torch.inf]),
            "negative": _summary(kept[kept > -torch.inf]),
            "margin": _summary(margins),
            "histogram": _histogram(own, kept[kept > -torch.inf]),
            "filters": list({line["filter"]: line for line in told}.values()),
        }
    return result


def _spread(count: int) -> Tensor:
    return torch.linspace(0, count - 1, min(count, _QUERIES)).round().long()


def _hardest(scores: Scores, owner: Tensor, queries: Tensor, depth: int, flipped: bool) -> Tensor:
    """(queries, depth) the highest scores of what is not a query's own."""
    every = torch.arange(scores.num_captions)
    parts = []
    for start, stop, block in scores.select(queries, every).blocks():
        rows = queries[start:stop]
        same = (owner[rows, None] == every) if flipped else (owner == rows[:, None])
        block = block.float().masked_fill(same.to(block.device), -torch.inf)
        parts.append(largest(block, min(depth, block.shape[1]))[0].cpu())
    return torch.cat(parts)


def _single(filters: Filters) -> list[Filters]:
    names = ("absolute_margin", "relative_margin", "min_score", "max_score")
    told = filters.told()
    return [Filters(**{name: told[name]}) for name in names if name in told]  # type: ignore[arg-type]


def _taken(filters: Filters, hard: Tensor, own: Tensor) -> dict[str, Any]:
    ceiling = filters.ceiling(own)
    there = hard > -torch.inf
    gone = hard > ceiling[:, None] if ceiling is not None else hard < (filters.min_score or 0)
    gone &= there
    name, value = next(iter(filters.told().items()))
    share = float(gone.sum() / there.sum().clamp(min=1))
    whole = float((gone | ~there).all(1).float().mean())
    return {"filter": f"{name} {value:g}", "removed": share, "queries_left_without": whole}


def _summary(values: Tensor) -> dict[str, float]:
    if not len(values):
        return {"count": 0}
    numbers = values.double().numpy().ravel()
    low, quarter, middle, upper, high = np.quantile(numbers, [0, 0.25, 0.5, 0.75, 1]).tolist()
    return {
        "count": len(numbers),
        "mean": float(numbers.mean()),
        "std": float(numbers.std()),
        "min": low,
        "25%": quarter,
        "50%": middle,
        "75%": upper,
        "max": high,
    }


def _histogram(own: Tensor, kept: Tensor) -> dict[str, Any]:
    """Shares of own pairs and kept negatives over the scale of similarities."""
    parts = [values.double().numpy().ravel() for values in (own, kept)]
    every = np.concatenate(parts)
    edges = np.linspace(every.min(), every.max() + 1e-6, _BINS + 1)
    shares = [np.histogram(part, edges)[0] / max(1, len(part)) for part in parts]
    return {"edges": edges.tolist(), "own": shares[0].tolist(), "negative": shares[1].tolist()}


def draw(path: Path, statistics: dict[str, Any]) -> None:
    """A picture file: own pairs and kept negatives, and below, what filters take away."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 5), layout="constrained")
    above, below = figure.subplots(2, len(statistics), squeeze=False, height_ratios=(3, 2))
    for shares, removed, (way, told) in zip(above, below, statistics.items(), strict=True):
        found = told["histogram"]
        shares.stairs(found["own"], found["edges"], label="own pairs")
        shares.stairs(found["negative"], found["edges"], label="kept negatives")
        shares.set(title=DIRECTIONS[way], xlabel="similarity", ylabel="share")
        names = [line["filter"].replace("_", " ") for line in told["filters"]]
        bars = removed.barh(names, [100 * line["removed"] for line in told["filters"]])
        removed.bar_label(bars, fmt="%.0f%%", padding=3)
        removed.invert_yaxis()
        removed.set(xlim=(0, 125), xticks=range(0, 101, 25), xlabel="removed of the hardest (%)")
    above[0].legend(frameon=False)
    with atomic_path(path) as temporary:
        figure.savefig(temporary, format=path.suffix[1:])
