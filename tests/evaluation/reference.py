"""The slow way: sort every query's list, ties against us, and read the metrics off it."""

import numpy as np


def sorted_lists(similarities, pairing):
    """[(query's list of true/false, best first)] for both directions."""
    images, captions = similarities.shape
    i2t = [ordered(similarities[i], pairing == i) for i in range(images)]
    t2i = [ordered(similarities[:, c], np.arange(images) == pairing[c]) for c in range(captions)]
    return {"i2t": i2t, "t2i": t2i}


def ordered(scores, true):
    """True flags in order of falling score; at equal scores false items first."""
    order = sorted(range(len(scores)), key=lambda j: (-scores[j], true[j]))
    return [bool(true[j]) for j in order]


def places_of(flags):
    return [place for place, flag in enumerate(flags, 1) if flag]


def average_precision(places, depth, divisor):
    found = [p for p in places if p <= depth]
    return sum(j / p for j, p in enumerate(found, 1)) / divisor(found) if found else 0.0


def metrics(similarities, pairing, ks=(1, 5, 10)):
    values = {}
    for direction, lists in sorted_lists(similarities, pairing).items():
        places = [places_of(flags) for flags in lists]
        best = np.array([p[0] for p in places])

        def mean(function, places=places):
            return float(np.mean([function(p) for p in places]))

        found = {f"r{k}": 100 * float(np.mean(best <= k)) for k in ks}
        found["average_recall"] = np.mean([found[f"r{k}"] for k in (1, 5, 10)])
        found["medr"] = float(np.floor(np.median(best - 1)) + 1)
        found["meanr"] = float(np.mean(best - 1) + 1)
        found["mrr"] = mean(lambda p: 1 / p[0])
        found["map"] = mean(lambda p: average_precision(p, np.inf, lambda f, p=p: len(p)))
        for depth in (5, 10):
            found[f"map{depth}"] = mean(
                lambda p, d=depth: average_precision(p, d, lambda f: min(len(p), d))
            )
            found[f"map{depth}_hits"] = mean(lambda p, d=depth: average_precision(p, d, len))
        found["map_at_r"] = mean(lambda p: average_precision(p, len(p), lambda f: len(p)))
        found["rprecision"] = mean(lambda p: sum(x <= len(p) for x in p) / len(p))
        values |= {f"{direction}_{name}": value for name, value in found.items()}
    six = [values[f"{d}_r{k}"] for d in ("i2t", "t2i") for k in (1, 5, 10)]
    values["rsum"], values["average_recall"] = sum(six), np.mean(six)
    tied = [0, 0]
    for i, row in enumerate(similarities):
        tied[0] += bool(np.any(row[pairing != i] == row[pairing == i].max()))
    for c, column in enumerate(similarities.T):
        tied[1] += bool(np.any(np.delete(column, pairing[c]) == column[pairing[c]]))
    return values | {"i2t_ties": tied[0], "t2i_ties": tied[1], "ties": sum(tied)}
