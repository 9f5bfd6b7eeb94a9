"""Does `simgrad choose` on two cores say what long searches of the same model find?

    simgrad choose FLICKR8K --minutes 60 --output choose/60     # two cores
    python results/light/choose.py keep choose/60 60 44.6       # 44.6 minutes by the clock
    python results/light/choose.py                              # -> choose.md; --check compares

The long searches are first/ and second/: 24 settings of each objective, ten seeds, the same test
photos (compute.py).
"""

import csv
import json
import shutil
import sys
from pathlib import Path

from compute import gaps_of, short
from compute import ranks_of as ranks_of_long

from simgrad.choosing.answer import ANSWER
from simgrad.choosing.choice import Choice
from simgrad.evaluation import Ranks
from simgrad.evaluation.standing import Standing, stand
from simgrad.runs.outcome import outcome_of
from simgrad.runs.run import RANKS
from simgrad.studies.study import Study

HERE = Path(__file__).resolve().parent
KEPT = HERE / "choose"
LONG = ("first", "second")


def keep(folder: Path, name: str, took: float) -> None:
    """The answer, its plan and the ranks of every test run; without the places of this machine."""
    study, choice, to = Study.open(folder), Choice.read(folder), KEPT / name
    assert choice is not None
    (to / "ranks").mkdir(parents=True, exist_ok=True)
    with open(to / "tests.csv", "w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("run", "objective", "replicate", "outcome"))
        for row, draws in study.draws.items():
            label = next(one.recipe.objective for draw in draws for one in draw)
            for number, draw in enumerate(draws, 1):
                for run in draw:
                    writer.writerow((run.path.name, label or row, number, outcome_of(run)))
                    shutil.copy(run.path / RANKS, to / "ranks" / f"{run.path.name}.parquet")
    size = choice.size
    plan = {"minutes": choice.minutes, "expected": choice.expected, "took": took}
    plan |= {"epochs": size.epochs, "full_epochs": size.full_epochs, "trials": size.trials}
    plan |= {"replicates": size.replicates, "objectives": choice.objectives}
    plan |= {"left_out": choice.left_out}
    (to / "plan.json").write_text(json.dumps(plan, indent=1) + "\n")
    told = (folder / ANSWER).read_text("utf-8").replace(str(folder.resolve()), "OUTPUT")
    (to / ANSWER).write_text(told.replace(str(folder), "OUTPUT"), "utf-8")


def systems(folder: Path) -> dict[str, list[list[Ranks]]]:
    """By objective, the test runs of each replicate."""
    found: dict[str, dict[str, list[Ranks]]] = {}
    with open(folder / "tests.csv", newline="") as file:
        for line in csv.DictReader(file):
            ranks = Ranks.load(folder / "ranks" / f"{line['run']}.parquet")
            found.setdefault(_name(line["objective"]), {}).setdefault(line["replicate"], []).append(
                ranks
            )
    return {name: list(draws.values()) for name, draws in found.items()}


def _name(objective: str) -> str:
    """As compute.py calls it, without the parameters that a search chose."""
    name, _, rest = objective.partition("(")
    if name != "goal":
        return name
    parts = [x for x in rest.rstrip(")").split(", ") if x.startswith(("triplet=", "pair="))]
    return f"goal({', '.join(parts)})"


def part(name: str, long: dict[str, dict[tuple[str, str], tuple[float, float, float]]]) -> str:
    """One run of choose: its plan, its answer, and each gap beside the long searches."""
    folder = KEPT / name
    plan = json.loads((folder / "plan.json").read_text())
    found: Standing = stand(systems(folder))
    what = (
        f"Plan: {len(plan['objectives'])} objectives, {', '.join(plan['left_out']) or 'none'} "
        f"left out; {plan['epochs']} of {plan['full_epochs']} epochs, {plan['replicates']} "
        f"searches of {plan['trials']} settings each; {plan['expected']:.0f} minutes. It took "
        f"{plan['took']:g}. It answered:"
    )
    answer = (folder / ANSWER).read_text("utf-8").splitlines()
    lines = [f"## {plan['minutes']:g} minutes", "", what, "", *(f"> {line}  " for line in answer)]
    lines += [
        "",
        f"| {short(found.leader)} minus | choose | | first long search | second |",
        "|---|---|---|---|---|",
    ]
    against = []
    for rival in found.rivals:
        cells = []
        for one in long.values():
            gap, reach, p = _turned(one, found.leader, rival.label)
            cells.append(f"{gap:+.1f} [{gap - reach:.1f}, {gap + reach:.1f}]")
            if rival.word == "behind" and gap < 0 and p < 0.05:
                against.append(rival.label)
        told = f"{rival.behind:+.1f} [{rival.low:.1f}, {rival.high:.1f}]"
        lines.append(f"| {short(rival.label)} | {told} | {rival.word} | {' | '.join(cells)} |")
    behind = [rival.label for rival in found.rivals if rival.word == "behind"]
    told = f"Told apart by choose: {len(behind)}; of these the contrary in a long search: "
    return "\n".join([*lines, "", f"{told}{len(against)}."])


def _turned(
    gaps: dict[tuple[str, str], tuple[float, float, float]], first: str, second: str
) -> tuple[float, float, float]:
    if (first, second) in gaps:
        return gaps[first, second]
    gap, reach, p = gaps[second, first]
    return -gap, reach, p


def page() -> str:
    long = {name: gaps_of(ranks_of_long(HERE / name)) for name in LONG}
    names = sorted((one.name for one in KEPT.iterdir()), key=float)
    head = [
        "# What `choose` says on two cores, beside long searches",
        "",
        "By `python results/light/choose.py`: Flickr8k's official split, `light`, two cores; other",
        "work on them had the lowest priority (nice 19), but for two minutes at the start of the",
        "longer run. Gaps in test rsum; 95 % intervals: of `choose` for all rivals together, over",
        "searches and photos; of the long searches for all 28 pairs together, over ten seeds and",
        "photos, without the luck of the search.",
        "",
    ]
    return "\n".join([*head, "\n\n".join(part(name, long) for name in names), ""])


if __name__ == "__main__":
    if sys.argv[1:2] == ["keep"]:
        keep(Path(sys.argv[2]), sys.argv[3], float(sys.argv[4]))
    elif "--check" in sys.argv:
        same = (HERE / "choose.md").read_text("utf-8") == page()
        print("choose.md: the same" if same else "choose.md: differs")
        sys.exit(not same)
    else:
        (HERE / "choose.md").write_text(page(), "utf-8")
