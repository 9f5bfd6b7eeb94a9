"""Does a short study order the objectives as a long one does?

    python results/scenes/agree.py LONG SHORT

LONG and SHORT are folders of studies with the same objectives, such as the study of
recipes/scenes-long.yaml and the folder that `simgrad demo` writes. Prints every pair of objectives
that the long study tells apart (test rsum, Holm's p < 0.05 over all pairs), with both differences;
exits with 1 if the short study has any of them the other way round.
"""

import itertools
import sys

from simgrad.evaluation import compare, holm
from simgrad.runs.run import Run
from simgrad.studies.study import Study

METRIC = "rsum"


def runs_of(folder: str) -> dict[str, list[Run]]:
    found: dict[str, list[Run]] = {}
    for run in Study.open(folder).runs:
        found.setdefault(run.recipe.objective, []).append(run)
    return found


def mean(runs: list[Run]) -> float:
    return sum(run.test[METRIC] for run in runs) / len(runs)


def main(long: str, short: str) -> int:
    there, here = runs_of(long), runs_of(short)
    ranks = {name: [run.ranks() for run in runs] for name, runs in there.items()}
    pairs = list(itertools.combinations(sorted(there), 2))
    found = [compare(ranks[b], ranks[a])[METRIC] for a, b in pairs]
    wrong = 0
    for (a, b), one, p in zip(pairs, found, holm([one.p for one in found]), strict=True):
        if p < 0.05:
            short_one = mean(here[a]) - mean(here[b])
            same = (short_one > 0) == (one.difference > 0)
            wrong += not same
            told = "same" if same else "REVERSED"
            print(f"{a} - {b}: {one.difference:+.1f}, p = {p:.3f}; short {short_one:+.1f}, {told}")
    print(f"{len(pairs)} pairs; of those that the long study tells apart, {wrong} are reversed.")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
