"""Of each k the rate with the highest mean validation, and its test against that of k = 1.

    simgrad --with results/flickr8k/why/top_k.py study STUDY --check
    python results/flickr8k/why/chosen.py STUDY

Writes k.csv beside this file and prints the trend of test rsum over log2 k, over single runs.
"""

import csv
import sys
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
from scipy.stats import linregress, t

from simgrad.core.extras import import_file
from simgrad.evaluation import compare_many
from simgrad.runs.run import Run
from simgrad.studies.study import Study

HERE = Path(__file__).resolve().parent


def by_k(study: Study) -> dict[int, dict[float, list[Run]]]:
    """Runs without a beginning of their own, by k and rate."""
    found: dict[int, dict[float, list[Run]]] = {}
    for runs in study.groups.values():
        recipe = runs[0].recipe
        if recipe.objective.startswith("triplet-k") and not recipe.first_epochs:
            k = int(recipe.objective.removeprefix("triplet-k(k=").removesuffix(")"))
            found.setdefault(k, {})[recipe.lr] = runs
    return found


def validation(runs: list[Run]) -> float:
    return mean(run.info["best"]["rsum"] for run in runs)


def main() -> None:
    import_file(HERE / "top_k.py")
    tried = by_k(Study.open(sys.argv[1]))
    chosen = {k: max(rates.values(), key=validation) for k, rates in sorted(tried.items())}
    ranks = {str(k): [run.ranks() for run in runs] for k, runs in chosen.items()}
    against = compare_many(ranks, "1")
    lines: list[dict[str, Any]] = []
    for k, runs in chosen.items():
        line: dict[str, Any] = {"k": k, "lr": runs[0].recipe.lr, "validation": validation(runs)}
        for rate, some in sorted(tried[k].items()):
            line[f"validation at {rate:g}"] = validation(some)
        line["rsum"] = mean(run.test["rsum"] for run in runs)
        line["seeds"] = " ".join(f"{run.test['rsum']:.1f}" for run in runs)
        line["best epoch"] = mean(run.info["best"]["step"] / run.info["steps"] for run in runs) * 30
        for way in ("i2t", "t2i"):
            last = [run.history[-1]["attention"][way]["effective"] for run in runs]
            line[f"effective {way}"] = mean(last)
        if k != 1:
            one = against[str(k)]
            line |= {"difference": one.difference, "low": one.low, "high": one.high}
            line["p (Holm)"] = one.corrected
        lines.append({n: round(v, 4) if isinstance(v, float) else v for n, v in line.items()})
    with open(HERE / "k.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, lines[-1].keys(), lineterminator="\n")
        writer.writeheader()
        writer.writerows(lines)
    every = [(np.log2(k), run.test["rsum"]) for k, runs in chosen.items() for run in runs]
    fit = linregress(*zip(*every, strict=True))
    reach = t.ppf(0.975, len(every) - 2) * fit.stderr
    low, high = fit.slope - reach, fit.slope + reach
    print(f"{fit.slope:+.2f} [{low:.2f}, {high:.2f}] rsum for twice the k, p = {fit.pvalue:.2g}")


if __name__ == "__main__":
    main()
