"""Slow references, in float64, straight from the papers' equations: one triplet at a time.

Every function sees one direction with rows as queries, `S[q][c]` similarities and `P[q]` the list
of positives of q, and returns (value, W) without the scale of the two directions. `both` turns it
into the two directions; nothing here is shared with the code under test.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

Result = tuple[float, np.ndarray]


def _negatives(S: np.ndarray, positives: list[int]) -> list[int]:
    return [c for c in range(S.shape[1]) if c not in positives]


def triplet(o: Any, S: np.ndarray, P: list[list[int]]) -> Result:
    """Bleeker & de Rijke eq. 2: every (query, positive, negative) within the margin."""
    value, W = 0.0, np.zeros_like(S)
    for q in range(len(S)):
        for p in P[q]:
            for n in _negatives(S, P[q]):
                cost = o.margin + S[q, n] - S[q, p]
                if cost > 0:
                    value += cost
                    W[q, n] += 1
                    W[q, p] -= 1
    return value, W


def triplet_sh(o: Any, S: np.ndarray, P: list[list[int]]) -> Result:
    """Eq. 3: the hardest negative of the query alone."""
    value, W = 0.0, np.zeros_like(S)
    for q in range(len(S)):
        negatives = _negatives(S, P[q])
        if not negatives:
            continue
        hardest = max(negatives, key=lambda n: S[q, n])
        for p in P[q]:
            cost = o.margin + S[q, hardest] - S[q, p]
            if cost > 0:
                value += cost
                W[q, hardest] += 1
                W[q, p] -= 1
    return value, W


def nt_xent(o: Any, S: np.ndarray, P: list[list[int]]) -> Result:
    """Eq. 4, averaged over a query's positives."""
    value, W = 0.0, np.zeros_like(S)
    for q in range(len(S)):
        if not _negatives(S, P[q]):
            continue
        total = sum(math.exp(s / o.tau) for s in S[q])
        for p in P[q]:
            value -= math.log(math.exp(S[q, p] / o.tau) / total) / len(P[q])
            W[q, p] -= 1 / (o.tau * len(P[q]))
        for c in range(S.shape[1]):
            W[q, c] += math.exp(S[q, c] / o.tau) / total / o.tau
    return value, W


def focused_deviance(o: Any, S: np.ndarray, P: list[list[int]]) -> Result:
    """Binomial deviance of the positives, and of a soft maximum of the negatives."""
    value, W = 0.0, np.zeros_like(S)
    for q in range(len(S)):
        negatives = _negatives(S, P[q])
        if not negatives:
            continue
        e = {c: math.exp(S[q, c] / o.focus) for c in negatives}
        h = o.focus * math.log(sum(e.values()))
        value += math.log1p(math.exp(o.beta * (h - o.lambda_))) / o.beta
        for c in negatives:
            W[q, c] += e[c] / sum(e.values()) / (1 + math.exp(-o.beta * (h - o.lambda_)))
        for p in P[q]:
            far = o.alpha * (o.lambda_ - S[q, p])
            value += math.log1p(math.exp(far)) / o.alpha / len(P[q])
            W[q, p] -= 1 / (1 + math.exp(-far)) / len(P[q])
    return value, W


def debiased(o: Any, S: np.ndarray, P: list[list[int]]) -> Result:
    """Chuang et al., eq. 7 and 8; the estimate takes the mean over a query's positives."""
    value, W = 0.0, np.zeros_like(S)
    for q in range(len(S)):
        negatives = _negatives(S, P[q])
        if not negatives:
            continue
        e, count = np.exp(S[q] / o.tau), len(negatives)
        mean_own = sum(e[p] for p in P[q]) / len(P[q])
        estimate = (sum(e[c] for c in negatives) / count - o.prior * mean_own) / (1 - o.prior)
        least = math.exp(-1 / o.tau)
        total = sum(e[p] for p in P[q]) + count * max(estimate, least)
        for p in P[q]:
            value += (math.log(total) - S[q, p] / o.tau) / len(P[q])
            W[q, p] += e[p] / total / o.tau - 1 / (o.tau * len(P[q]))
            if estimate > least:
                taken = count * o.prior / (1 - o.prior) / len(P[q])
                W[q, p] -= taken * e[p] / total / o.tau
        for c in negatives:
            if estimate > least:
                W[q, c] += e[c] / (1 - o.prior) / total / o.tau
    return value, W


def _sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x >= 0 else math.exp(x) / (1 + math.exp(x))


def smooth_ap(o: Any, S: np.ndarray, P: list[list[int]]) -> Result:
    """Eq. 5-8, and the derivative as equation 12 prints it, term by term.

    D_ij is s_j - s_i (the sign that makes a rank of it); R(i, set) = 1 + sum over the set of G.
    """
    value, W = 0.0, np.zeros_like(S)
    for q in range(len(S)):
        N = _negatives(S, P[q])
        for i in P[q]:

            def G(j: int, q: int = q, i: int = i) -> float:
                return _sigmoid((S[q, j] - S[q, i]) / o.tau)

            def sim(j: int, G: Callable[[int], float] = G) -> float:
                return G(j) * (1 - G(j)) / o.tau

            others = [j for j in P[q] if j != i]
            R_P = 1 + sum(G(j) for j in others)
            R_N = 1 + sum(G(j) for j in N)
            R_all = R_P + R_N - 1
            value += (1 - R_P / R_all) / len(P[q])
            scale = 1 / len(P[q]) / R_all**2
            # dAP/dq is a sum of (v_i - v_j): weight on i, and the opposite on j. W = -dAP/ds.
            for j in N:
                W[q, i] -= scale * R_P * sim(j)
                W[q, j] += scale * R_P * sim(j)
            for j in others:
                W[q, i] += scale * (R_N - 1) * sim(j)
                W[q, j] -= scale * (R_N - 1) * sim(j)
    return value, W


def siglip(o: Any, S: np.ndarray, P: list[list[int]]) -> Result:
    """Zhai et al., section 3.2: -log sigmoid(z (scale s + bias)), z = +1 for positives, else -1."""
    value, W = 0.0, np.zeros_like(S)
    scale, bias = float(o.log_scale.detach().exp()), float(o.bias.detach())
    for q in range(len(S)):
        for c in range(S.shape[1]):
            z = 1 if c in P[q] else -1
            logit = z * (scale * S[q, c] + bias)
            value -= math.log(_sigmoid(logit))
            W[q, c] -= z * scale * _sigmoid(-logit)
    return value, W


def goal(o: Any, S: np.ndarray, P: list[list[int]]) -> Result:
    """Xuan & Chen eq. 3 with triplet weights 5-8 and pair weights 9-13, one triplet per pair."""
    value, W = 0.0, np.zeros_like(S)
    every = [(q, p) for q in range(len(S)) for p in P[q]]
    smallest = min(S[pair] for pair in every)
    for q, p in every:
        negatives = _negatives(S, P[q])
        if not negatives:
            continue
        n = max(negatives, key=lambda c: S[q, c])
        s_pos, s_neg = S[q, p], S[q, n]
        above, below = s_neg + o.epsilon, smallest - o.epsilon
        if o.released:  # the public code includes the bounds
            set_P = [S[x] for x in every if x != (q, p) and S[x] <= above]
            set_N = [S[q, c] for c in negatives if c != n and S[q, c] >= below]
        else:
            set_P = [S[x] for x in every if x != (q, p) and S[x] < above]
            set_N = [S[q, c] for c in negatives if c != n and S[q, c] > below]
        T = _goal_triplet(o, s_pos, s_neg)
        pull, push = _goal_pair(o, s_pos, s_neg, set_P, set_N)
        W[q, p] -= T * pull
        W[q, n] += T * push
        value += _goal_value(o, s_pos, s_neg)
    return value, W


def _goal_triplet(o: Any, s_pos: float, s_neg: float) -> float:
    if o.triplet == "con":
        return 1.0 if o.released or o.margin + s_neg - s_pos > 0 else 0.0
    if o.triplet == "nca":
        return 1 / (1 + math.exp(o.tau * (s_pos - s_neg)))
    circle = s_pos * (2 - s_pos) - s_neg**2
    return 1 / (1 + math.exp(o.tau * (circle - (0.5 if o.released else 0.0))))


def _goal_pair(
    o: Any, s_pos: float, s_neg: float, set_P: list[float], set_N: list[float]
) -> tuple[float, float]:
    if o.pair == "con":
        return 1.0, 1.0
    if o.pair == "lin":
        return 1 - s_pos, s_neg
    pull_exp = math.exp(o.alpha * (s_pos - o.lambda_))
    push_exp = math.exp(-o.beta * (s_neg - o.lambda_))
    if o.pair == "sig":
        return 1 / (1 + pull_exp), 1 / (1 + push_exp)
    if o.pair == "lin-ms":
        m_pos = float(np.mean([s_pos - r for r in set_P])) if set_P else 0.0
        m_neg = float(np.mean([s_neg - r for r in set_N])) if set_N else 0.0
        return (1 - m_pos) * (1 - s_pos), (1 + m_neg) * s_neg
    empty = 0.0 if o.released else 1.0
    m_pos = float(np.mean([math.exp(o.alpha * (s_pos - r)) for r in set_P])) if set_P else empty
    m_neg = float(np.mean([math.exp(-o.beta * (s_neg - r)) for r in set_N])) if set_N else empty
    return 1 / (m_pos + pull_exp), 1 / (m_neg + push_exp)


def _goal_value(o: Any, s_pos: float, s_neg: float) -> float:
    """The potential of the three cells that have one (public variant: none but its own sum)."""
    cell = (o.triplet, o.pair)
    if not o.released and cell == ("con", "con"):
        return max(0.0, o.margin + s_neg - s_pos)
    if not o.released and cell == ("nca", "con"):
        return math.log(1 + math.exp(o.tau * (s_neg - s_pos))) / o.tau
    if not o.released and cell == ("cir", "lin"):
        circle = s_pos * (2 - s_pos) - s_neg**2
        return math.log(1 + math.exp(-o.tau * circle)) / (2 * o.tau)
    return s_neg - s_pos


def offline(
    o: Any, S: np.ndarray, P: list[list[int]], outside: dict[tuple[int, int], tuple[float, float]]
) -> tuple[float, np.ndarray, dict[tuple[int, int], tuple[float, float]]]:
    """AOQ, one direction; `outside[q, p]` are the mined and the unanchored similarity."""
    value, W, out = 0.0, np.zeros_like(S), {}
    for q in range(len(S)):
        negatives = _negatives(S, P[q])
        for p in P[q]:
            s, (mined, unanchored) = S[q, p], outside[q, p]
            on_mined = on_unanchored = 0.0
            if negatives:
                n = max(negatives, key=lambda c: S[q, c])
                w, slope = 1.0, 0.0
                if o.name == "adap-off-quin":
                    w = o.beta - (mined - S[q, n]) / o.alpha
                    slope = 1 / o.alpha  # dw/ds_n; dw/d mined is its opposite
                hinge = max(0.0, o.online - s + S[q, n])
                value += w * hinge
                if hinge > 0:
                    W[q, p] -= w
                    W[q, n] += w + slope * hinge
                    on_mined -= slope * hinge
            if o.offline - s + mined > 0:
                value += o.offline - s + mined
                W[q, p] -= 1
                on_mined += 1
            if o.name != "off-tri" and o.offline - s + unanchored > 0:
                value += o.offline - s + unanchored
                W[q, p] -= 1
                on_unanchored += 1
            out[q, p] = (on_mined, on_unanchored)
    return value, W, out


def multi_similarity_loss(o: Any, S: np.ndarray, P: list[list[int]]) -> Result:
    """Wang et al. eq. 15, every pair taken."""
    value, W = 0.0, np.zeros_like(S)
    for q in range(len(S)):
        negatives = _negatives(S, P[q])
        if not negatives:
            continue
        far = {p: math.exp(-o.alpha * (S[q, p] - o.lambda_)) for p in P[q]}
        near = {n: math.exp(o.beta * (S[q, n] - o.lambda_)) for n in negatives}
        value += math.log(1 + sum(far.values())) / o.alpha
        value += math.log(1 + sum(near.values())) / o.beta
        for p, e in far.items():
            W[q, p] -= e / (1 + sum(far.values()))
        for n, e in near.items():
            W[q, n] += e / (1 + sum(near.values()))
    return value, W


def nca_loss(o: Any, S: np.ndarray, P: list[list[int]]) -> Result:
    """Goldberger et al., section 2: -log p_i."""
    value, W = 0.0, np.zeros_like(S)
    for q in range(len(S)):
        if not _negatives(S, P[q]):
            continue
        e = [math.exp(s / o.tau) for s in S[q]]
        right = sum(e[p] for p in P[q])
        value -= math.log(right / sum(e))
        for c in range(S.shape[1]):
            W[q, c] += e[c] / sum(e) / o.tau - (e[c] / right / o.tau if c in P[q] else 0)
    return value, W


LOOPS: dict[str, Callable[[Any, np.ndarray, list[list[int]]], Result]] = {
    "triplet": triplet,
    "triplet-sh": triplet_sh,
    "nt-xent": nt_xent,
    "debiased-nt-xent": debiased,
    "smooth-ap": smooth_ap,
    "siglip": siglip,
    "goal": goal,
    "focused-deviance": focused_deviance,
    "multi-similarity-loss": multi_similarity_loss,
    "nca-loss": nca_loss,
}
OFFLINE = ("off-tri", "off-quin", "adap-off-quin")


def both(o: Any, S: np.ndarray, mask: np.ndarray, outside: Any = None) -> dict[str, Any]:
    """Both directions on their published scale: i2t, t2i (images x captions), value."""
    i_lists = [list(np.flatnonzero(row)) for row in mask]
    t_lists = [list(np.flatnonzero(column)) for column in mask.T]
    if o.name in OFFLINE:
        return _both_offline(o, S, i_lists, t_lists, mask, outside)
    i_value, i2t = LOOPS[o.name](o, S, i_lists)
    t_value, t2i = LOOPS[o.name](o, S.T.copy(), t_lists)
    i_scale = t_scale = 1.0
    if o.name in (
        "nt-xent",
        "nca-loss",
        "multi-similarity-loss",
        "debiased-nt-xent",
        "smooth-ap",
        "siglip",
    ):  # half the sum of the directions' means
        i_scale, t_scale = 0.5 / S.shape[0], 0.5 / S.shape[1]
    value = i_value * i_scale + t_value * t_scale
    return {"i2t": i2t * i_scale, "t2i": t2i.T * t_scale, "value": value}


def _both_offline(
    o: Any, S: np.ndarray, i_lists: Any, t_lists: Any, mask: np.ndarray, outside: np.ndarray
) -> dict[str, Any]:
    """`outside` (4, pairs): S(I, T̂), S(Î, T), S(Î, T̂), S(Ĩ, T̃), pairs in caption order."""
    pairs = [(i, c) for c in range(S.shape[1]) for i in np.flatnonzero(mask[:, c])]
    i_outside = {pair: (outside[0, k], outside[2, k]) for k, pair in enumerate(pairs)}
    t_outside = {(c, i): (outside[1, k], outside[3, k]) for k, (i, c) in enumerate(pairs)}
    i_value, i2t, i_out = offline(o, S, i_lists, i_outside)
    t_value, t2i, t_out = offline(o, S.T.copy(), t_lists, t_outside)
    four = np.zeros_like(outside)
    for k, (i, c) in enumerate(pairs):
        four[0, k], four[2, k] = i_out[i, c]
        four[1, k], four[3, k] = t_out[c, i]
    return {"i2t": i2t, "t2i": t2i.T, "value": i_value + t_value, "offline": four}
