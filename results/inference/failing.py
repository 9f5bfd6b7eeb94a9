"""Could an interval of a mean hold where runs fail? `python results/inference/failing.py`.

It tries the honest one: the interval of the runs that trained, moved down by the shares of
failures that what was seen does not rule out (Clopper and Pearson), times what a failed run lacks.
It writes failing.md: how often it covers the truth, and how wide it is, where one run in five fails
and where none does. The second cannot be told from the first as long as no run has failed, so the
page also has the least that any interval with 95 % must do. Half a minute.
"""

import argparse
from collections.abc import Callable
from math import comb

import numpy as np
from simulate import FAILING, HERE, KINDS, LOST, Random, difficulty, repeated, system

from simgrad.evaluation.crossed import sureness
from simgrad.evaluation.declared import Floats
from simgrad.evaluation.distributions import share_bound
from simgrad.evaluation.standing import SURE

IMAGES, DUE = 1000, 100 * (1 - SURE)
SHARES = (0.0, FAILING)


def chance(failed: int, runs: int, share: float) -> float:
    """That so many of the runs fail."""
    return comb(runs, failed) * share**failed * (1 - share) ** (runs - failed)


def some(runs: int, failed: int, share: float) -> Callable[[Random, int], Floats]:
    """Whether the usual and the honest interval cover the truth; half of both widths.

    The mean of runs that train is 0; runs that fail lack LOST of it, which the interval may know.
    """
    most = share_bound(failed, runs, SURE / 2)
    least = 1 - share_bound(runs - failed, runs, SURE / 2)

    def found(random: Random, size: int) -> Floats:
        hard = difficulty(random, IMAGES, size)
        every = system(random, runs, hard, KINDS[1])
        every.values[:failed] -= LOST / IMAGES  # `values` add up over images
        trained = type(every)(every.names, every.values[failed:], every.fold)
        truth, reach = -LOST * share, sureness(trained).reach(1 - SURE)
        low, high = trained.mean - reach - LOST * most, trained.mean + reach - LOST * least
        usual = sureness(every).reach(1 - SURE)
        covered = abs(every.mean - truth) <= usual, (low <= truth) & (truth <= high)
        return np.stack([*covered, usual, (high - low) / 2])

    return found


def row(runs: int, share: float, trials: int) -> str:
    """Over all numbers of failed runs, each as often as it happens; all failed: never covered."""
    told = np.zeros(4)
    for failed in range(runs):
        weight = chance(failed, runs, share)
        if weight:
            what = f"{runs} runs, {failed} failed, a share of {share}"
            found = repeated(what, trials, 20, some(runs, failed, share))
            told += weight * np.array(found) / (1, 1, 100, 100)  # `repeated` gives percents
    unseen = chance(0, runs, FAILING)
    forced = max(0.0, 100 - (100 - DUE) / unseen)
    fails = f"{share:.0%} of runs fail" if share else "none fails"
    usual, honest, width, wide = told
    numbers = f"{usual:.1f} | {width:.0f} | {honest:.1f} | {wide:.0f} | {forced:.0f}"
    return f"| {runs} seeds, {fails} | {numbers} |"


def page(trials: int) -> str:
    lines = ["# What an interval that holds where runs fail would cost", ""]
    lines += ["By `python results/inference/failing.py`; what it means: [README](README.md)."]
    lines += [f"{IMAGES:,} images, seeds with a standard deviation of 15; a failed run lacks "]
    lines[-1] += f"{LOST:g} rsum; {trials:,} trials for each number of failed runs."
    forced = (
        f"For a system that never fails it must then reach {LOST * FAILING:g} rsum below the mean"
    )
    lines.append(
        f"Forced: suppose an interval covers {DUE:g} % where one run in five fails. {forced} "
    )
    lines[-1] += "in at least so many percent of studies."
    lines += ["", "| | usual: covers, % | half its width | honest: covers, % | half its width | "]
    lines[-1] += "forced, % |"
    lines += ["|---" * 6 + "|"]
    lines += [row(runs, share, trials) for share in SHARES for runs in (2, 3, 5, 10)]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=500)
    (HERE / "failing.md").write_text(page(parser.parse_args().trials))
