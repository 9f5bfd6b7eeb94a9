"""The data of diagrams: what an objective does to one triplet, and to one pair.

`triplet_field`: the weights over the similarity of the positive and of the negative (figure 2 of
Xuan & Chen, WACV 2023). `pair_curves`: the weights over the similarity of one pair (figure 3).
Both ask the objective's rule, so they work for any objective; one that writes its weights as
triplet weight x pair weight, as GOAL does, also gets the two factors.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from simgrad.analysis.situations import weigh_situations
from simgrad.core.errors import InputError
from simgrad.core.files import read_npz
from simgrad.objectives import Objective
from simgrad.objectives import objective as read

Array = npt.NDArray[np.float64]
PHASES = ("early", "middle", "late")


@dataclass(frozen=True)
class TripletField:
    """Weights of one triplet on a grid; rows are s-, columns s+.

    Examples:
        >>> field = simgrad.analysis.triplet_field("triplet-sh", resolution=3)
        >>> field.push.tolist()  # rows: s- of 0, 0.5 and 1; columns: s+
        [[1.0, 0.0, 0.0], [1.0, 1.0, 0.0], [1.0, 1.0, 1.0]]
        >>> field.balanced
        True
    """

    objective: str
    s_pos: Array  # (resolution,)
    s_neg: Array  # (resolution,)
    pull: Array  # how hard the positive is pulled: minus its weight
    push: Array  # how hard the negative is pushed: its weight
    triplet: Array | None  # the triplet weight T, where the objective has one
    triplet_name: str = ""  # what the paper calls it

    @property
    def balanced(self) -> bool:
        """Pull and push are the same everywhere."""
        return bool(np.allclose(self.pull, self.push, rtol=1e-6, atol=1e-9))

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return _plain(self)


@dataclass(frozen=True)
class PairCurves:
    """Weights of one pair over its similarity, all else fixed.

    Examples:
        >>> curves = simgrad.analysis.pair_curves("nt-xent", resolution=3, others=(0.5,))
        >>> curves.push.round(1).tolist()  # of a negative at 0, 0.5 and 1 beside a positive at 0.5
        [[0.1, 5.0, 9.9]]
    """

    objective: str
    similarity: Array  # (resolution,)
    pull: Array  # of the positive, (others, resolution)
    push: Array  # of the negative
    others: tuple[float, ...]  # similarity of the other pair of the triplet; () for pair weights P
    factors: bool  # these are the pair weights P+ and P-, not their product with T
    pair_name: str = ""  # what the paper calls them

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return _plain(self)


def _plain(data: Any) -> dict[str, Any]:
    return {k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in vars(data).items()}


@torch.no_grad()
def triplet_field(
    objective: "str | Objective",
    resolution: int = 101,
    *,
    low: float = 0.0,
    high: float = 1.0,
    outside: float = 0.0,
) -> TripletField:
    """What an objective does to a query with one positive and one negative.

    `outside`: the similarity of mined pairs, for objectives that weigh those too.

    Examples:
        >>> field = simgrad.analysis.triplet_field("triplet", resolution=11)
        >>> tuple(field.push.shape)
        (11, 11)
    """
    rule = read(objective)
    axis = _axis(low, high, resolution)
    s_neg, s_pos = (x.flatten() for x in torch.meshgrid(axis, axis, indexing="ij"))
    weights = weigh_situations(rule, torch.stack([s_pos, s_neg], 1), outside=outside).weights
    factors = rule.factors(s_pos, s_neg)

    def grid(values: Tensor) -> Array:
        return cast(Array, values.view(resolution, resolution).numpy())

    return TripletField(
        str(rule),
        cast(Array, axis.numpy()),
        cast(Array, axis.numpy()),
        grid(-weights[:, 0] + 0.0),  # + 0.0: no minus zero in tables
        grid(weights[:, 1]),
        None if factors is None else grid(factors.triplet),
        "" if factors is None else factors.triplet_name,
    )


@torch.no_grad()
def pair_curves(
    objective: "str | Objective",
    resolution: int = 201,
    *,
    low: float = 0.0,
    high: float = 1.0,
    others: tuple[float, ...] = (0.2, 0.5, 0.8),
    relative: float | None = 0.1,
    outside: float = 0.0,
) -> PairCurves:
    """What an objective does to a pair as its similarity changes.

    For triplet weight x pair weight: the pair weights P+ and P-, with the relative terms m+ = m- of
    the ms variants set to `relative` (None: neutral, as in a batch without rivals). For others: the
    pull of a positive and the push of a negative while the other similarity stays at `others`.

    Examples:
        >>> curves = simgrad.analysis.pair_curves("goal(triplet=con, pair=sig)", resolution=5)
        >>> curves.similarity.tolist()
        [0.0, 0.25, 0.5, 0.75, 1.0]
    """
    rule = read(objective)
    axis = _axis(low, high, resolution)
    similarity = cast(Array, axis.numpy())
    factors = rule.factors(axis, axis, relative)
    if factors is not None:
        pull, push = factors.pull.numpy()[None], factors.push.numpy()[None]
        return PairCurves(str(rule), similarity, pull, push, (), True, factors.pair_name)
    pulls, pushes = [], []
    for other in others:
        fixed = torch.full_like(axis, other)
        on_pos = weigh_situations(rule, torch.stack([axis, fixed], 1), outside=outside).weights
        on_neg = weigh_situations(rule, torch.stack([fixed, axis], 1), outside=outside).weights
        pulls.append((-on_pos[:, 0] + 0.0).numpy())
        pushes.append(on_neg[:, 1].numpy())
    return PairCurves(str(rule), similarity, np.stack(pulls), np.stack(pushes), others, False)


def _axis(low: float, high: float, resolution: int) -> Tensor:
    if not low < high or resolution < 2:
        raise InputError(
            f"a diagram needs low < high and at least 2 points, not {low}, {high}, {resolution}."
        )
    return torch.linspace(low, high, resolution, dtype=torch.float64)


def read_triplets(run: str | Path) -> dict[str, Array]:
    """The real triplets a run recorded: (s+, hardest s-) early, in the middle and late."""
    path = Path(run) / "triplets.npz"
    if not path.is_file():
        raise InputError(f"{path}: there is no such file; did the run start training?")
    arrays = read_npz(path, PHASES)
    found = {name: arrays[name] for name in PHASES if name in arrays}
    for name, points in found.items():
        if points.dtype.kind not in "fiu":
            raise InputError(f"{path}: '{name}' holds {points.dtype}, not numbers.")
        if points.ndim != 2 or points.shape[1] != 2:
            raise InputError(f"{path}: '{name}' has shape {points.shape}, not (triplets, 2).")
    return {name: points.astype(float) for name, points in found.items() if len(points)}
