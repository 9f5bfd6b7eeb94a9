"""Why `_SPARE` of evaluation/crossed.py is 0.25: `python results/inference/spare.py`, a minute.

It simulates some cells of simulate.py, from which the constant was chosen, with several values of
it, all on the same draws, and writes spare.md. `--trials 100` is quicker.
"""

import argparse
from itertools import product

import numpy as np
from simulate import HERE, KINDS, Random, difficulty, p_of, repeated, system

from simgrad.evaluation import crossed
from simgrad.evaluation.declared import Floats
from simgrad.evaluation.standing import SURE

VALUES = (0.0, 0.25, 0.5, 1.0, 2.0)


def cell(what: str, kind: str, runs: int, images: int, trials: int) -> list[float]:
    """Of each value: the error of a pair of equal systems, and the coverage of a mean."""

    def some(random: Random, size: int) -> Floats:
        hard = difficulty(random, images, size, kind)
        first, second = (system(random, runs, hard, kind, place) for place in range(2))
        found = []
        for value in VALUES:
            crossed._SPARE = value
            found += [p_of(first, second) < SURE]
            found += [crossed.sureness(second).p(second.mean) >= SURE]
        return np.stack(found)

    return repeated(what, trials, 20, some)


def page(trials: int) -> str:
    lines = ["# What the one tuned constant does", ""]
    lines += ["By `python results/inference/spare.py`; why: [README](README.md#what-is-tuned)."]
    lines += [f"Error of a pair / coverage of a mean, % of {trials:,} trials; due are 5 / 95."]
    lines += ["0 is Behrens and Fisher's distribution as it is.", ""]
    lines += ["| | " + " | ".join(f"{value:g}" for value in VALUES) + " |"]
    lines += ["|---" * (1 + len(VALUES)) + "|"]
    for kind, runs, images in product(KINDS[:3], (2, 3), (300, 1000, 5000)):
        what = f"{kind}, {runs} seeds, {images:,} images"
        found = cell(what, kind, runs, images, trials)
        told = zip(found[::2], found[1::2], strict=True)
        lines.append(f"| {what} | " + " | ".join(f"{a:.1f} / {b:.1f}" for a, b in told) + " |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=4000)
    (HERE / "spare.md").write_text(page(parser.parse_args().trials))
