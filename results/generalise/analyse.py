"""The pre-registered analysis: hypotheses, falsifier, variances, from all replicates' test runs.

    python results/generalise/analyse.py             # runs.csv -> verdicts.md
    python results/generalise/analyse.py --made-up   # the same on made-up runs with a known answer

runs.csv has a line for each test run: data, replicate, objective, seed, outcome, rsum, photo (the
variance of a photo's part in the rsum, divided by the number of photos). It is made from the kept
ranks by collect.py. Written and committed before the first run; see preregistration.md.
"""

import argparse
import csv
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import numpy as np
from scipy import stats

HERE = Path(__file__).resolve().parent
OURS, NCA = "focused-deviance", "goal(triplet=nca, pair=sig)"
CON, CIR = "goal(triplet=con, pair=sig)", "goal(triplet=cir, pair=sig-ms)"
OBJECTIVES = (OURS, NCA, CIR, CON, "nt-xent", "triplet-sh")
# Test photos over training photos.
SHARES = {"flickr8k": 1000 / 6000, "coco": 2000 / 9339}
REPLICATES = {"flickr8k": 8, "coco": 5}
AHEAD = {
    "H1": (OURS, "triplet-sh"),
    "H2": (OURS, "nt-xent"),
    "H3": (NCA, "nt-xent"),
    "H4": ("nt-xent", "triplet-sh"),
}
EQUAL = {"H5": (OURS, NCA)}
MARGIN, LEVEL = 6.0, 0.05
FIRST_TWO = {"flickr8k": 5, "coco": 3}  # replicates in which ours has to be among the first two


@dataclass(frozen=True)
class TestRun:
    """One run that was tested."""

    data: str
    replicate: int
    objective: str
    seed: int
    outcome: str  # trained, plateau, collapsed, diverged
    rsum: float
    photo: float


@dataclass(frozen=True)
class Estimate:
    """A difference with its standard error and degrees of freedom."""

    difference: float
    error: float
    freedom: float

    def interval(self, level: float = LEVEL) -> tuple[float, float]:
        """Two-sided."""
        reach = float(stats.t.ppf(1 - level / 2, self.freedom)) * self.error
        return self.difference - reach, self.difference + reach

    def p_of_difference(self) -> float:
        """Two-sided, of no difference."""
        return float(2 * stats.t.sf(abs(self.difference) / self.error, self.freedom))

    def p_of_equivalence(self) -> float:
        """Of a difference of MARGIN or more, whichever side is nearer."""
        nearer = (MARGIN - abs(self.difference)) / self.error
        return float(stats.t.sf(nearer, self.freedom))


def replicate_means(runs: Sequence[TestRun]) -> dict[tuple[str, int, str], float]:
    """Mean test rsum of an objective in a replicate. Failed runs count with what they scored."""
    groups: dict[tuple[str, int, str], list[float]] = {}
    for run in runs:
        groups.setdefault((run.data, run.replicate, run.objective), []).append(run.rsum)
    return {key: float(np.mean(values)) for key, values in groups.items()}


def differences(runs: Sequence[TestRun], first: str, second: str) -> dict[str, np.ndarray]:
    """By data set, a paired difference for each replicate."""
    means = replicate_means(runs)
    found: dict[str, list[float]] = {}
    for data, replicate, objective in sorted(means):
        if objective == first:
            other = means[data, replicate, second]
            found.setdefault(data, []).append(means[data, replicate, first] - other)
    return {data: np.array(values) for data, values in found.items()}


def over_data_sets(
    found: dict[str, np.ndarray], *, overlap: bool = False, pooled: bool = True
) -> Estimate:
    """The mean of the data sets' means; `overlap`: Nadeau & Bengio's variance."""
    sets = len(found)
    more = {data: SHARES[data] if overlap else 0.0 for data in found}
    weight = {data: (1 / len(d) + more[data]) / sets**2 for data, d in found.items()}
    freedom = {data: len(d) - 1 for data, d in found.items()}
    spread = {data: float(d.var(ddof=1)) for data, d in found.items()}
    mean = float(np.mean([d.mean() for d in found.values()]))
    if pooled:
        every = sum(freedom.values())
        common = sum(freedom[data] * spread[data] for data in found) / every
        return Estimate(mean, math.sqrt(common * sum(weight.values())), every)
    parts = {data: weight[data] * spread[data] for data in found}
    total = sum(parts.values())
    welch = total**2 / sum(parts[data] ** 2 / freedom[data] for data in found)
    return Estimate(mean, math.sqrt(total), welch)


def holm(p: dict[str, float]) -> dict[str, float]:
    """Holm's adjusted p."""
    adjusted: dict[str, float] = {}
    largest = 0.0
    for place, name in enumerate(sorted(p, key=lambda name: p[name])):
        largest = max(largest, min(1.0, (len(p) - place) * p[name]))
        adjusted[name] = largest
    return adjusted


def verdicts(runs: Sequence[TestRun]) -> dict[str, tuple[str, Estimate, Estimate, float, float]]:
    """For each hypothesis: its verdict, estimate, sensitivity, Holm's p of both."""
    found = {name: differences(runs, *pair) for name, pair in {**AHEAD, **EQUAL}.items()}
    primary = {name: over_data_sets(each) for name, each in found.items()}
    careful = {name: over_data_sets(each, overlap=True) for name, each in found.items()}
    first, second = (
        holm(
            {
                n: e.p_of_equivalence() if n in EQUAL else e.p_of_difference()
                for n, e in every.items()
            }
        )
        for every in (primary, careful)
    )
    told = {}
    for name, estimate in primary.items():
        holds = first[name] < LEVEL and (name in EQUAL or estimate.difference > 0)
        contrary = first[name] < LEVEL and name in AHEAD and estimate.difference < 0
        word = "holds" if holds else "the contrary holds" if contrary else "open"
        if word != "open" and second[name] >= LEVEL:
            word = "suggested" if holds else "the contrary is suggested"
        told[name] = (word, estimate, careful[name], first[name], second[name])
    return told


def first_two(runs: Sequence[TestRun], objective: str = OURS) -> dict[str, int]:
    """By data set, in how many replicates an objective is among the first two of the six."""
    means = replicate_means(runs)
    count: dict[str, int] = {}
    for data, replicate in sorted({(d, r) for d, r, _ in means}):
        order = sorted(OBJECTIVES, key=lambda one: -means[data, replicate, one])
        count[data] = count.get(data, 0) + (objective in order[:2])
    return count


def variances(runs: Sequence[TestRun], data: str) -> tuple[float, float, float]:
    """Standard deviations of split and search (photos taken out), of a seed, of the photos."""
    seeds, splits, photos = [], [], []
    for objective in OBJECTIVES:
        of = [run for run in runs if (run.data, run.objective) == (data, objective)]
        by: dict[int, list[TestRun]] = {}
        for run in of:
            by.setdefault(run.replicate, []).append(run)
        within = float(
            np.mean([np.var([run.rsum for run in each], ddof=1) for each in by.values()])
        )
        between = float(
            np.var([np.mean([run.rsum for run in each]) for each in by.values()], ddof=1)
        )
        photo = float(np.mean([run.photo for run in of]))
        each = len(of) / len(by)
        seeds.append(within)
        photos.append(photo)
        splits.append(max(0.0, between - within / each - photo))
    return tuple(math.sqrt(float(np.mean(part))) for part in (splits, seeds, photos))  # type: ignore[return-value]


def beats(runs: Sequence[TestRun], first: str, second: str) -> float:
    """P(a run of the first beats one of the second) in the same replicate; ties count half."""
    wins, pairs = 0.0, 0
    for a in runs:
        for b in runs:
            same = (a.data, a.replicate) == (b.data, b.replicate)
            if same and (a.objective, b.objective) == (first, second):
                wins += 1.0 if a.rsum > b.rsum else 0.5 if a.rsum == b.rsum else 0.0
                pairs += 1
    return wins / pairs


def complete(runs: Sequence[TestRun]) -> None:
    """R is fixed: no analysis of a part of it."""
    for data, wanted in REPLICATES.items():
        for objective in OBJECTIVES:
            of = [run for run in runs if (run.data, run.objective) == (data, objective)]
            if (
                sorted({run.replicate for run in of}) != list(range(1, wanted + 1))
                or len(of) != 2 * wanted
            ):
                raise SystemExit(
                    f"{data}, {objective}: {len(of)} test runs of {2 * wanted}: "
                    "nothing is analysed before both parts have ended"
                )


def page(runs: Sequence[TestRun]) -> str:
    """All of it as Markdown."""
    complete(runs)
    lines = [
        "# Verdicts",
        "",
        (
            "By `python results/generalise/analyse.py`, as pre-registered. "
            "Differences in test rsum; 95 % intervals."
        ),
        "",
    ]
    signs = []
    for name, pair in {**AHEAD, **EQUAL}.items():
        means = {data: float(d.mean()) for data, d in differences(runs, *pair).items()}
        if len({value > 0 for value in means.values()}) > 1:
            signs.append(
                f"{name}: {', '.join(f'{data} {value:+.1f}' for data, value in means.items())}"
            )
    if signs:
        lines += ["**The sign differs between the data sets**: " + "; ".join(signs) + ".", ""]
    lines += [
        "| | hypothesis | verdict | estimate | Holm's p | Nadeau & Bengio | Holm's p | Welch |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, (word, estimate, careful, p, q) in verdicts(runs).items():
        pair = {**AHEAD, **EQUAL}[name]
        welch = over_data_sets(differences(runs, *pair), pooled=False)
        between = " = " if name in EQUAL else " > "
        lines.append(
            f"| {name} | {between.join(pair)} | **{word}** | {_shown(estimate)} | {p:.4f} "
            f"| {_shown(careful)} | {q:.4f} | {_shown(welch)} |"
        )
    count = first_two(runs)
    passed = all(count[data] >= FIRST_TWO[data] for data in FIRST_TWO)
    told = ", ".join(
        f"{count[data]} of {REPLICATES[data]} ({data}, {FIRST_TWO[data]} needed)"
        for data in FIRST_TWO
    )
    lines += [
        "",
        f"**Falsifier**: focused-deviance is among the first two in {told}: "
        + ("passed." if passed else "FAILED."),
        "",
    ]
    lines += [
        "| pair | flickr8k | coco | P(a run of the first beats one of the second) |",
        "|---|---|---|---|",
    ]
    for first, second in combinations(OBJECTIVES, 2):
        found = differences(runs, first, second)
        alone = [_shown(over_data_sets({data: found[data]})) for data in REPLICATES]
        lines.append(
            f"| {first} - {second} | {alone[0]} | {alone[1]} | {beats(runs, first, second):.2f} |"
        )
    lines += [
        "",
        "| objective | data | mean | worst seed | failed | by replicate |",
        "|---|---|---|---|---|---|",
    ]
    means = replicate_means(runs)
    for objective in OBJECTIVES:
        for data, wanted in REPLICATES.items():
            of = [run for run in runs if (run.data, run.objective) == (data, objective)]
            failed = sum(run.outcome != "trained" for run in of)
            each = " ".join(f"{means[data, r, objective]:.1f}" for r in range(1, wanted + 1))
            mean = float(np.mean([run.rsum for run in of]))
            lines.append(
                f"| {objective} | {data} | {mean:.1f} | {min(run.rsum for run in of):.1f} "
                f"| {failed} of {len(of)} | {each} |"
            )
    lines += ["", "| standard deviation | split and search | seed | photos |", "|---|---|---|---|"]
    for data in REPLICATES:
        lines.append(
            f"| {data} | " + " | ".join(f"{part:.1f}" for part in variances(runs, data)) + " |"
        )
    return "\n".join(lines) + "\n"


def _shown(estimate: Estimate) -> str:
    low, high = estimate.interval()
    return f"{estimate.difference:+.1f} [{low:.1f}, {high:.1f}]"


def made_up(
    truth: dict[str, float], seed: int, search: float = 3.5, each: float = 2.0
) -> list[TestRun]:
    """Test runs with a known answer; standard deviations `search` by replicate, `each` by seed."""
    random = np.random.default_rng(seed)
    runs = []
    for data, wanted in REPLICATES.items():
        for replicate in range(1, wanted + 1):
            split = random.normal(0, 6)
            for objective in OBJECTIVES:
                mean = 260 + truth.get(objective, 0.0) + split + random.normal(0, search)
                runs += [
                    TestRun(
                        data,
                        replicate,
                        objective,
                        number,
                        "trained",
                        mean + random.normal(0, each),
                        9.0,
                    )
                    for number in range(2)
                ]
    return runs


def read(path: Path) -> list[TestRun]:
    """The lines of runs.csv."""
    kinds: dict[str, Callable[[str], object]] = {
        "replicate": int,
        "seed": int,
        "rsum": float,
        "photo": float,
    }
    with path.open(newline="") as lines:
        return [
            TestRun(**{name: kinds.get(name, str)(text) for name, text in row.items()})  # type: ignore[arg-type]
            for row in csv.DictReader(lines)
        ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--made-up", action="store_true")
    if parser.parse_args().made_up:
        truth = {OURS: 8.0, NCA: 8.0, "nt-xent": -4.0, "triplet-sh": -12.0}
        print(page(made_up(truth, seed=1)), end="")
        return
    (HERE / "verdicts.md").write_text(page(read(HERE / "runs.csv")))
    print((HERE / "verdicts.md").read_text(), end="")


if __name__ == "__main__":
    main()
