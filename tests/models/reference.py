"""The models' equations, slowly, in numpy: one item at a time, loops and all."""

from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[np.float64]]


def array(tensor: Any) -> Array:
    return tensor.detach().double().numpy()


def unit(x: Array, axis: int = -1) -> Array:
    return x / np.linalg.norm(x, axis=axis, keepdims=True)


def softmax(x: Array, axis: int = -1) -> Array:
    e = np.exp(x - x.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def gru(x: Array, rnn: Any) -> Array:
    """One sequence (steps, d) -> its states (steps, hidden)."""
    w_in, w_state = array(rnn.weight_ih_l0), array(rnn.weight_hh_l0)
    b_in, b_state = array(rnn.bias_ih_l0), array(rnn.bias_hh_l0)
    state = np.zeros(w_state.shape[1])
    states = []
    for step in x:
        ri, zi, ni = np.split(w_in @ step + b_in, 3)
        rh, zh, nh = np.split(w_state @ state + b_state, 3)
        reset, update = sigmoid(ri + rh), sigmoid(zi + zh)
        state = (1 - update) * np.tanh(ni + reset * nh) + update * state
        states.append(state)
    return np.stack(states)


def two_way_gru(x: Array, rnn: Any) -> Array:
    back = gru(x[::-1], rnn.backward_)[::-1]
    return (gru(x, rnn.onward) + back) / 2


def cosine(a: Array, b: Array) -> float:
    return float(a @ b / (np.linalg.norm(a) * np.linalg.norm(b)))


def attention_cosines(
    queries: Array,
    context: Array,
    smooth: float,
    focal: str | None = None,
    norm: str = "clipped_l2norm",
) -> list[float]:
    """Each query's cosine with what it sees of the context, straight from the definitions."""
    clipped = context @ queries.T  # (context, queries)
    if norm.startswith("clipped"):
        clipped = np.where(clipped > 0, clipped, 0.1 * clipped)
    if norm.endswith("l2norm"):
        clipped = clipped / np.linalg.norm(clipped, axis=1, keepdims=True)
    elif norm == "softmax":
        clipped = np.stack([softmax(row) for row in clipped])
    cosines = []
    for i, query in enumerate(queries):
        weights = softmax(smooth * clipped[:, i])
        if focal is not None:
            trust = np.ones_like(weights) if focal == "equal" else np.sqrt(weights)
            score = [float(((w - weights) * trust).sum()) for w in weights]
            if len(weights) > 1:  # one word cannot stand out
                weights = np.where(np.array(score) > 0, weights, 0.0)
            weights = weights / weights.sum()
        cosines.append(cosine(query, weights @ context))
    return cosines


def aggregate(cosines: list[float], how: str, sharpness: float) -> float:
    r = np.array(cosines)
    if how == "lse":
        return float(np.log(np.exp(sharpness * r).sum()) / sharpness)
    return float({"mean": r.mean, "max": r.max, "sum": r.sum}[how]())


def relation_layer(regions: Array, layer: Any) -> Array:
    """v + BN(W R g(v)) with R_ij = theta(v_i) . phi(v_j) / regions."""
    d = regions.shape[1]
    w, b = array(layer.ask.weight), array(layer.ask.bias)
    theta, phi, g = (regions @ w[k * d : (k + 1) * d].T + b[k * d : (k + 1) * d] for k in range(3))
    n = len(regions)
    update = np.zeros_like(regions)
    for i in range(n):
        for j in range(n):
            update[i] += theta[i] @ phi[j] / n * g[j]
    update = update @ array(layer.out.weight).T + array(layer.out.bias)
    norm = layer.norm
    centred = (update - array(norm.running_mean)) / np.sqrt(array(norm.running_var) + norm.eps)
    return regions + centred * array(norm.weight) + array(norm.bias)


def gpo(features: Array, pool: Any) -> Array:
    """One set (k, d): sort each dimension, weigh the ranks by a two-way GRU over their codes."""
    k = len(features)
    codes = np.zeros((k, 32))
    for rank in range(k):
        for i in range(16):
            angle = rank / 10000 ** (2 * i / 32)
            codes[rank, 2 * i], codes[rank, 2 * i + 1] = np.sin(angle), np.cos(angle)
    scores = two_way_gru(codes, pool.gru) @ array(pool.linear.weight)[0]
    weights = softmax(scores / 0.1)
    return weights @ -np.sort(-features, axis=0)
