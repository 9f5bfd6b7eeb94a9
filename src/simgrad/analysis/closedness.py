"""Is it a loss? Whether an objective's weights are the gradient of anything.

A rule may write weights down directly (GOAL does). They are the gradient of a potential exactly if
the field W(S) is closed: going round any loop in the space of similarities gains nothing. Three
numerical checks, in float64:

1. curl: for one triplet, d W(s+) / d s- must equal d W(s-) / d s+ wherever both exist.
2. loops: integrals of W around closed polygons in the space of one query's similarities. They also
   see jumps of the weights, such as a margin, where derivatives say nothing.
3. batch: the matrix d W(ij) / d S(kl) of whole small batches, both directions together, must be
   symmetric. It sees weights that depend on other pairs which feel nothing in return.

A field that passes all three is called a gradient; `potential` integrates it, and the check also
says whether the value that the rule returns is that potential. These are numerical checks: a
violation found is a proof, its absence on thousands of points is not.
"""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from simgrad.analysis.situations import independent, weigh_situations
from simgrad.objectives import Goal, Objective, Offline
from simgrad.objectives import objective as read
from simgrad.objectives.goal import PAIR_WEIGHTS, TRIPLET_WEIGHTS

# Largest violation, relative to the field, that rounding and step sizes explain.
CURL_TOLERANCE = 1e-3
LOOP_TOLERANCE = 2e-3
BATCH_TOLERANCE = 1e-3
_STEP = 1e-5
_STEPS = 1024  # along an edge of a loop
# A field this flat is constant: its derivatives are rounding.
_FLAT = 1e-6


@dataclass(frozen=True)
class Integrability:
    """The verdict on one objective.

    Examples:
        >>> simgrad.analysis.integrability("goal(triplet=cir, pair=sig)").reasons[0]
        'within one triplet, most at s+ = ...'
    """

    objective: str
    gradient: bool  # the weights are the gradient of a potential
    value_is_potential: bool  # and the value that the rule returns is it
    curl: float  # relative to the largest derivative
    curl_at: tuple[float, float]  # (s+, s-) where it is largest
    loop: float  # largest circulation / (largest weight x perimeter)
    loop_at: tuple[float, ...]  # centre of that loop: (s+, s-), or with more candidates
    batch: float  # asymmetry of the batch's second derivatives, relative to the largest

    @property
    def reasons(self) -> tuple[str, ...]:
        """Where the weights fail to be a gradient; empty if they are one."""
        found = []
        if self.curl > CURL_TOLERANCE:
            found.append(f"within one triplet, most at s+ = {_at(self.curl_at)}")
        elif self.loop > LOOP_TOLERANCE:
            found.append(f"where the weights jump, e.g. round s+ = {_at(self.loop_at)}")
        if self.batch > BATCH_TOLERANCE and self.curl <= CURL_TOLERANCE:
            found.append("weights depend on other pairs, which feel nothing in return")
        return tuple(found)

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {**asdict(self), "reasons": list(self.reasons)}


def _at(point: tuple[float, ...]) -> str:
    return ", s- = ".join(f"{value:.2f}" for value in point[:2])


@torch.no_grad()
def integrability(
    objective: "str | Objective", *, low: float = -1.0, high: float = 1.0, seed: int = 0
) -> Integrability:
    """Check whether an objective's weights are the gradient of something, and where not.

    Examples:
        >>> simgrad.analysis.integrability("nt-xent").gradient
        True
        >>> simgrad.analysis.integrability("goal(triplet=cir, pair=sig)").gradient
        False
    """
    rule = read(objective)
    random = torch.Generator().manual_seed(seed)
    curl, curl_at = _curl(rule, low, high, random)
    loop, loop_at = _loops(rule, low, high, random)
    batch, value = _batches(rule, low, high, random)
    closed = curl <= CURL_TOLERANCE and loop <= LOOP_TOLERANCE and batch <= BATCH_TOLERANCE
    return Integrability(
        str(rule), closed, closed and value <= BATCH_TOLERANCE, curl, curl_at, loop, loop_at, batch
    )


def goal_cells(**settings: Any) -> list[Goal]:
    """The 15 cells of GOAL's table: pair weights x triplet weights.

    Examples:
        >>> [str(cell) for cell in simgrad.analysis.goal_cells()][:2]
        ['goal(triplet=con, pair=con)', 'goal(triplet=nca, pair=con)']
    """
    return [Goal(triplet=t, pair=p, **settings) for p in PAIR_WEIGHTS for t in TRIPLET_WEIGHTS]


def verdicts(objectives: "Iterable[str | Objective] | None" = None) -> list[Integrability]:
    """The verdict on each; on GOAL's 15 cells if none are given.

    Examples:
        >>> [one.gradient for one in simgrad.analysis.verdicts(["triplet", "nt-xent"])]
        [True, True]
    """
    return [integrability(o) for o in (goal_cells() if objectives is None else objectives)]


def _uniform(shape: tuple[int, ...], low: float, high: float, random: torch.Generator) -> Tensor:
    return low + (high - low) * torch.rand(shape, generator=random, dtype=torch.float64)


def _weights(rule: Objective, S: Tensor, positives: int = 1) -> Tensor:
    return weigh_situations(rule, S, positives).weights


def _curl(
    rule: Objective, low: float, high: float, random: torch.Generator
) -> tuple[float, tuple[float, float]]:
    """The largest disagreement of the two cross derivatives of one triplet's weights."""
    points = 4096 if independent(rule) else 256
    at = _uniform((points, 2), low + _STEP, high - _STEP, random)
    moves = torch.eye(2, dtype=torch.float64)

    def derivatives(step: float) -> Tensor:  # (points, 2): dW+/ds-, dW-/ds+
        ends = torch.cat([at + s * step * moves[k] for k in (1, 0) for s in (1, -1)])
        W = _weights(rule, ends).view(2, 2, points, 2)
        return torch.stack([W[k, 0, :, k] - W[k, 1, :, k] for k in (0, 1)], 1) / (2 * step)

    coarse, fine = derivatives(_STEP), derivatives(_STEP / 2)
    largest = fine.abs()
    smooth = ((coarse - fine).abs() <= 1e-3 * largest + _FLAT).all(1)  # no jump between the ends
    scale = float(largest[smooth].max()) if bool(smooth.any()) else 0.0
    if scale < _FLAT:
        return 0.0, (0.0, 0.0)
    curl = ((fine[:, 0] - fine[:, 1]).abs() / scale).where(smooth, 0.0)
    worst = int(curl.argmax())
    return float(curl[worst]), (float(at[worst, 0]), float(at[worst, 1]))


def _loops(
    rule: Objective, low: float, high: float, random: torch.Generator
) -> tuple[float, tuple[float, ...]]:
    """The largest relative circulation: squares in (s+, s-), triangles with a third candidate."""
    loops = 48 if independent(rule) else 6
    span = high - low
    side = _uniform((loops, 1, 1), 0.05 * span, 0.4 * span, random)
    corner = _uniform((loops, 1, 2), low, high, random)
    corner = corner - (corner + side - high).clamp(min=0)
    unit = torch.tensor([[0, 0], [1, 0], [1, 1], [0, 1]], dtype=torch.float64)
    shapes = [(corner + side * unit, 1)]
    # Triangles: two negatives of one positive, and two positives of one negative. A rule in which
    # one positive pair sees another is left to the check of batches.
    shapes += [
        (_uniform((loops // 2, 3, 3), low, high, random), k)
        for k in (1, 2)
        if independent(rule, 3, k)
    ]
    worst, centre = 0.0, (0.0, 0.0)
    for corners, positives in shapes:
        gain = _circulation(rule, corners, positives)
        index = int(gain.argmax())
        if float(gain[index]) > worst:
            worst = float(gain[index])
            centre = tuple(corners[index].mean(0).tolist())
    return worst, centre


def _circulation(rule: Objective, corners: Tensor, positives: int) -> Tensor:
    """|integral of W dS| round closed polygons, relative to (largest weight x perimeter).

    `corners`: (loops, corners, candidates). The midpoint rule errs by at most the jump times half
    a step wherever the weights jump.
    """
    loops, count, candidates = corners.shape
    edge = corners.roll(-1, 1) - corners
    t = (torch.arange(_STEPS, dtype=torch.float64) + 0.5) / _STEPS
    points = corners[:, :, None] + t[None, None, :, None] * edge[:, :, None]
    W = _weights(rule, points.reshape(-1, candidates), positives)
    W = W.view(loops, count, _STEPS, candidates)
    gain = (W.mean(2) * edge).sum((1, 2)).abs()
    perimeter = edge.norm(dim=2).sum(1)
    largest = W.norm(dim=3).amax((1, 2))
    relative: Tensor = gain / (perimeter * largest).clamp(min=_FLAT)
    return relative


def _batches(
    rule: Objective, low: float, high: float, random: torch.Generator
) -> tuple[float, float]:
    """Asymmetry of d W / d S, and how far W is from the derivative of the value, both relative."""
    asymmetry = value = 0.0
    several = torch.tensor([0, 0, 1, 2])  # image 0 has two captions
    for image_of_caption in (None, several) * 2:
        images = 4 if image_of_caption is None else 3
        S = _uniform((images, 4), max(low, -0.3), high, random)
        offline = None
        if rule.needs_offline:
            offline = Offline(*(_uniform((4,), max(low, -0.3), high, random) for _ in range(4)))
        found = _second_derivatives(rule, S, image_of_caption, offline)
        asymmetry, value = max(asymmetry, found[0]), max(value, found[1])
    return asymmetry, value


def _second_derivatives(
    rule: Objective, S: Tensor, positives: Tensor | None, offline: Offline | None
) -> tuple[float, float]:
    def field(at: Tensor) -> tuple[Tensor, Tensor]:
        weights = rule.weigh(at, positives, offline)
        return (weights.i2t + weights.t2i).flatten(), weights.value

    moves = torch.eye(S.numel(), dtype=S.dtype).view(-1, *S.shape)

    def derivatives(step: float) -> tuple[Tensor, Tensor]:
        ends = [(field(S + step * move), field(S - step * move)) for move in moves]
        J = torch.stack([(a[0] - b[0]) / (2 * step) for a, b in ends])
        return J, torch.stack([(a[1] - b[1]) / (2 * step) for a, b in ends])

    (coarse, _), (fine, slope) = derivatives(_STEP), derivatives(_STEP / 2)
    smooth = ((coarse - fine).abs() <= 1e-3 * fine.abs() + _FLAT).all(1)
    both = smooth[:, None] & smooth[None, :]
    scale = float(fine.abs().where(both, 0.0).max())
    asymmetry = (
        float((fine - fine.T).abs().where(both, 0.0).max()) / scale if scale > _FLAT else 0.0
    )
    W = field(S)[0]
    error = (slope - W).abs().where(smooth, 0.0).max()
    return asymmetry, float(error / W.abs().max().clamp(min=_FLAT))


@dataclass(frozen=True)
class Potential:
    """What one triplet's weights integrate to, from a solved triplet (s+ high, s- low)."""

    s_pos: Tensor  # (points,)
    s_neg: Tensor  # (points,)
    value: Tensor  # (s_neg, s_pos)
    path_dependence: float  # largest difference between two paths: 0 for a gradient


@torch.no_grad()
def potential(
    objective: "str | Objective", *, low: float = -1.0, high: float = 1.0, points: int = 401
) -> Potential:
    """Integrate the weights of one triplet along two paths; they agree for a gradient.

    Examples:
        >>> simgrad.analysis.potential("nt-xent", points=101).path_dependence < 1e-3
        True
    """
    rule = read(objective)
    axis = torch.linspace(low, high, points, dtype=torch.float64)
    s_neg, s_pos = torch.meshgrid(axis, axis, indexing="ij")
    W = _weights(rule, torch.stack([s_pos.flatten(), s_neg.flatten()], 1)).view(points, points, 2)
    step = (high - low) / (points - 1)
    along_pos = _cumulative(W[..., 0].flip(1), step, 1).flip(1).neg()  # from s+ = high down
    along_neg = _cumulative(W[..., 1], step, 0)  # from s- = low up
    first = along_neg[:, -1:] + along_pos
    second = along_pos[:1] + along_neg
    return Potential(axis, axis, first, float((first - second).abs().max()))


def _cumulative(values: Tensor, step: float, dim: int) -> Tensor:
    """Integrals from the start, by trapezoids."""
    count = values.shape[dim]
    middle = (values.narrow(dim, 1, count - 1) + values.narrow(dim, 0, count - 1)) / 2
    start = torch.zeros_like(values.narrow(dim, 0, 1))
    return torch.cat([start, middle.cumsum(dim) * step], dim)
