"""Is an objective right? Its weights against numerical derivatives, on a user's own embeddings.

For somebody who writes an objective. Each check compares two computations that must agree:

    value        the weights are the derivative of the value (central differences in float64)
    embeddings   the gradient that reaches the embeddings is the chain rule of the weights
    blocks       working in blocks changes nothing: a row does not need the others
    upstream     what comes from above (loss scaling) multiplies the gradient
    order        permuting the batch permutes the weights
    directions   swapping images and captions swaps the two directions
    form         what is no negative or is ignored (s = -inf) adds nothing and gets no weight
    extremes     weights stay finite with ties, duplicates and the ends of what a cosine can be

Before that a rule of one's own must return what it should (`rule`: shapes, and a gradient at all),
and numbers (`numbers`): else nothing more is compared.

An objective may write weights down that are the gradient of nothing (most cells of GOAL): then
`value` fails and all the others hold. `integrability` says more about that.
"""

import copy
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import normalize

from simgrad.core.errors import InputError
from simgrad.objectives import Objective, Offline, Positives
from simgrad.objectives import objective as read
from simgrad.objectives.declaring import WrongRule
from simgrad.objectives.engine.rules import weigh_both
from simgrad.objectives.pairs import split_offline

_STEP = 1e-5
_ENTRIES = 64  # similarities that are varied one by one
_BLOCK = 7  # rows that do not divide common batch sizes


@dataclass(frozen=True)
class Finding:
    """One check: the largest error, relative to the largest value compared."""

    name: str
    error: float
    tolerance: float
    where: str = ""

    @property
    def ok(self) -> bool:
        return self.error <= self.tolerance


@dataclass(frozen=True)
class Check:
    """What was found about an objective.

    Examples:
        >>> found = simgrad.analysis.check("goal(triplet=cir, pair=sig)", *torch.randn(2, 6, 8))
        >>> found.ok, found.is_loss
        (True, False)
    """

    objective: str
    findings: tuple[Finding, ...]
    note: str = ""  # what may be meant so, and is more often a mistake

    @property
    def ok(self) -> bool:
        """Everything holds that must hold for any rule; `is_loss` is a question of its own."""
        return all(finding.ok for finding in self.findings if finding.name != "value")

    @property
    def is_loss(self) -> bool:
        """The weights are the derivative of the value."""
        return all(finding.ok for finding in self.findings if finding.name == "value")

    @property
    def verdict(self) -> str:
        """Which kind of rule it is, in words."""
        if not self.ok:
            told = (f.where for f in self.findings if not f.ok and f.name != "value")
            return ": ".join(["WRONG", *[where for where in told if where][:1]])
        if self.is_loss:
            return "a loss: its weights are the derivative of its value"
        (how,) = (f.where.partition("; ")[2] for f in self.findings if f.name == "value")
        if how.startswith("points uphill"):
            return f"WRONG SIGN: {how}: training would raise the value returned"
        return (
            f"written weights: consistent, but NOT the derivative of the value returned ({how}). "
            "Fine for weights that are written down on purpose (most cells of GOAL), a mistake "
            "for a loss"
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        findings = [{**asdict(f), "ok": f.ok} for f in self.findings]
        return {
            "objective": self.objective,
            "ok": self.ok,
            "is_loss": self.is_loss,
            "findings": findings,
            "note": self.note,
        }

    def __str__(self) -> str:
        lines = [f"{self.objective}: {self.verdict}"]
        lines += [f"  note: {self.note}"] if self.note else []
        for f in self.findings:
            verdict = "ok" if f.ok else ("not its" if f.name == "value" else "WRONG")
            lines.append(f"  {f.name:<11} {verdict:<8} largest error {f.error:.1e}  {f.where}")
        return "\n".join(lines)


def check(
    objective: "str | Objective",
    images: Tensor,
    texts: Tensor,
    positives: Tensor | None = None,
    *,
    offline: Offline | None = None,
    seed: int = 0,
) -> Check:
    """Check an objective on embeddings (n, d) and (m, d); everything is done in float64.

    Examples:
        >>> images, texts = torch.randn(6, 8), torch.randn(6, 8)
        >>> print(simgrad.analysis.check("triplet", images, texts))
        triplet: a loss: its weights are the derivative of its value
          value       ok       largest error ...
    """
    try:
        made = read(objective)
        made.check_form()
    except WrongRule as error:
        return Check(str(objective), (Finding("rule", float("inf"), 0.0, str(error)),))
    except InputError:  # of a family; told below
        made = read(objective)
    rule = copy.deepcopy(made).cpu().double()  # the caller's keeps its precision
    x, y = (embeddings.detach().cpu().double() for embeddings in (images, texts))
    positives = None if positives is None else positives.cpu()
    offline = None if offline is None else Offline(*(s.detach().cpu().double() for s in offline))
    S = normalize(x, dim=1) @ normalize(y, dim=1).T
    random = torch.Generator().manual_seed(seed)
    numbers = _numbers(rule, S, positives, offline)
    if not numbers.ok:
        return Check(str(rule), (numbers,))
    return Check(
        str(rule),
        (
            _value(rule, S, positives, offline, random),
            *_embeddings(rule, x, y, positives, offline),
            _order(rule, S, positives, offline, random),
            _directions(rule, S, positives, offline),
            _form(rule),
            _extremes(rule, S, positives, offline),
        ),
        _note(rule, S, positives, offline),
    )


def _relative(a: Tensor, b: Tensor) -> float:
    """The largest difference, relative to the largest entry; inf where either is not finite."""
    if not bool(torch.isfinite(a).all() and torch.isfinite(b).all()):
        return float("inf")
    return float((a - b).abs().max() / a.abs().max().clamp(min=1e-12))


def _total(rule: Objective, S: Tensor, positives: Tensor | None, offline: Offline | None) -> Tensor:
    weights = rule.weigh(S, positives, offline)
    return weights.i2t + weights.t2i


def _numbers(
    rule: Objective, S: Tensor, positives: Tensor | None, offline: Offline | None
) -> Finding:
    with torch.no_grad():
        pairs = Positives.read(positives, len(S), S.shape[1], S.device)
        both = weigh_both(rule, S, pairs, split_offline(rule, offline, pairs, S), rule.affine())
    for what in ("", "weights that are "):
        of_queries = (one.weights.sum(1) if what else one.values for one in both)
        wrong = ~torch.isfinite(torch.cat(list(of_queries)))
        if wrong.any():
            where = (
                f"returns {what}NaN or infinity for {int(wrong.sum())} of {len(wrong)} queries at "
                f"ordinary similarities ({float(S.min()):.2g} to {float(S.max()):.2g})"
            )
            return Finding("numbers", float("inf"), 0.0, where)
    if rule.own and not any(one.weights.any() for one in both):
        where = "no query has a gradient on these embeddings: all weights are 0"
        return Finding("numbers", float("inf"), 0.0, where)
    return Finding("numbers", 0.0, 0.0)


def _note(rule: Objective, S: Tensor, positives: Tensor | None, offline: Offline | None) -> str:
    """Whether the weights, added up, go the other way than those of a loss for retrieval."""
    W, mask = _total(rule, S, positives, offline), _mask(S, positives)
    least = 1e-6 * float(W.abs().sum())
    told = ["pushes positives apart"] if float(W[mask].sum()) > least else []
    told += ["pulls negatives together"] if float(W[~mask].sum()) < -least else []
    return f"on these embeddings it {' and '.join(told)}: is its sign right?" if told else ""


def _value(
    rule: Objective,
    S: Tensor,
    positives: Tensor | None,
    offline: Offline | None,
    random: torch.Generator,
) -> Finding:
    W = _total(rule, S, positives, offline)
    # Half the entries are those with most weight, half are drawn.
    heavy = W.abs().flatten().argsort(descending=True)[: _ENTRIES // 2]
    drawn = torch.randperm(W.numel(), generator=random)[: _ENTRIES // 2]
    scale = W.abs().max().clamp(min=1e-12)
    worst, where = 0.0, ""
    compared: list[tuple[float, float]] = []  # derivative, weight
    value = float(rule.weigh(S, positives, offline).value)
    for place in sorted({*heavy.tolist(), *drawn.tolist()}):
        i, j = divmod(place, S.shape[1])
        ends = []
        for sign in (1, -1):
            moved = S.clone()
            moved[i, j] += sign * _STEP
            ends.append(float(rule.weigh(moved, positives, offline).value))
        right, left = (ends[0] - value) / _STEP, (value - ends[1]) / _STEP
        if abs(right - left) > 1e-2 * float(scale):
            continue  # a corner: there is no derivative here
        compared.append(((right + left) / 2, float(W[i, j])))
        error = abs(compared[-1][0] - compared[-1][1]) / float(scale)
        if error > worst:
            worst, where = error, f"image {i}, caption {j}"
    found = Finding("value", worst, 1e-4, where)
    return found if found.ok else replace(found, where=f"{where}; {_direction(compared)}")


def _direction(compared: list[tuple[float, float]]) -> str:
    """How weights lie to the derivative that they are not."""
    derivative, weights = torch.tensor(compared, dtype=torch.float64).T
    cosine = float(torch.cosine_similarity(derivative, weights, dim=0))
    if cosine > 0.9999:
        times = float(weights.norm() / derivative.norm())
        return f"the derivative's direction, {times:.3g} times as long"
    uphill = "points uphill: " if cosine < -0.9 else ""
    return f"{uphill}cosine with the derivative {cosine:.2f}"


def _embeddings(
    rule: Objective, x: Tensor, y: Tensor, positives: Tensor | None, offline: Offline | None
) -> tuple[Finding, Finding, Finding]:
    left, right = x.clone().requires_grad_(), y.clone().requires_grad_()

    def gradients(factor: float = 1.0, block: int | None = None) -> Tensor:
        loss = factor * rule(left, right, positives, offline, block=block)
        return torch.cat(torch.autograd.grad(loss, (left, right)))

    S = normalize(left, dim=1) @ normalize(right, dim=1).T
    chained = (S * _total(rule, S.detach(), positives, offline)).sum()
    expected = torch.cat(torch.autograd.grad(chained, (left, right)))
    plain = gradients()
    rows = _BLOCK * max(len(x), len(y))
    return (
        Finding("embeddings", _relative(expected, plain), 1e-6),
        Finding("blocks", _relative(plain, gradients(block=rows)), 1e-6),
        Finding("upstream", _relative(3 * plain, gradients(3.0)), 1e-6),
    )


def _mask(S: Tensor, positives: Tensor | None) -> Tensor:
    n, m = S.shape
    return Positives.read(positives, n, m, S.device).i2t.mask()


def _order(
    rule: Objective,
    S: Tensor,
    positives: Tensor | None,
    offline: Offline | None,
    random: torch.Generator,
) -> Finding:
    rows = torch.randperm(S.shape[0], generator=random)
    columns = torch.randperm(S.shape[1], generator=random)
    mask = _mask(S, positives)
    W = _total(rule, S, positives, offline)[rows][:, columns]
    turned = None if offline is None else Offline(*(s[columns] for s in offline))
    permuted = _total(rule, S[rows][:, columns], mask[rows][:, columns], turned)
    found = Finding("order", _relative(W, permuted), 1e-6)
    where = (
        "in another order the same pairs get other weights: find positives by `positives` and "
        "`pairs.per_query`, not by the diagonal"
    )
    return found if found.ok else replace(found, where=where)


def _directions(
    rule: Objective, S: Tensor, positives: Tensor | None, offline: Offline | None
) -> Finding:
    mask = _mask(S, positives)
    weights = rule.weigh(S, mask, offline)
    if offline is not None:  # pairs are the captions': swapped, they would be the images'
        return Finding("directions", 0.0, 1e-6, "not compared with offline similarities")
    swapped = rule.weigh(S.T, mask.T.contiguous())
    error = max(_relative(weights.i2t, swapped.t2i.T), _relative(weights.t2i, swapped.i2t.T))
    return Finding("directions", error, 1e-6)


def _form(rule: Objective) -> Finding:
    try:
        rule.check_form()
    except InputError as error:
        return Finding("form", float("inf"), 0.0, str(error))
    if not rule.copes_with_gaps():
        where = "an ignored pair (similarity -inf) changes the values or gets a weight"
        return Finding("form", float("inf"), 0.0, where)
    return Finding("form", 0.0, 0.0)


def _extremes(
    rule: Objective, S: Tensor, positives: Tensor | None, offline: Offline | None
) -> Finding:
    cases = {
        "all similarities 1": torch.ones_like(S),
        "all similarities -1": -torch.ones_like(S),
        "all similarities 0": torch.zeros_like(S),
        "similarities of -1 and 1": S.sign(),
        "rounded to ties": (4 * S).round() / 4,
    }
    for name, extreme in cases.items():
        for dtype in (torch.float32, torch.float64):
            outside = None if offline is None else Offline(*(s.to(dtype) for s in offline))
            try:
                _total(rule, extreme.to(dtype), positives, outside)
            except InputError:  # the frame refuses weights that are not finite
                where = f"weights that are not finite at {name}, {dtype}"
                return Finding("extremes", float("inf"), 0.0, where)
    return Finding("extremes", 0.0, 0.0)
