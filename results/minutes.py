"""How long a folder's studies would take: `python results/minutes.py results/claims`.

minutes.yaml of the folder names each study file, what is trained on and the milliseconds of a step
of each kind, with where they are from. Steps follow from the study files. It writes minutes.md;
with `--check` it only compares.
"""

import argparse
import math
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import yaml

from simgrad.core.errors import InputError
from simgrad.runs.recipe import Recipe
from simgrad.studies.plan import Plan, read_plan


def kinds_of(recipe: Recipe, pairs: int, images: int) -> Counter[str]:
    """Steps of one round: `pairs`, `images` (with several captions each) or `finetune`."""
    many = images if recipe.sampler == "images" else pairs
    each = many // recipe.batch if recipe.drop_last else math.ceil(many / recipe.batch)
    kind = "images" if recipe.sampler == "images" else f"pairs {recipe.batch}"
    return Counter({kind: each * recipe.epochs, "finetune": each * recipe.finetune_epochs})


def steps_of(plan: Plan, pairs: int, images: int) -> Counter[str]:
    """Steps of all runs by kind, with searches; a first round that rows share counts once."""
    seen, found = set(), Counter[str]()
    trials = 0 if plan.tune is None else plan.tune.trainings
    for one in plan.replicates:
        for row in one.rows:
            if row.ensemble:
                continue
            for number, seed in enumerate(one.seeds):
                recipe = one.recipe(row, seed)
                first = recipe.replace(second_round=None)
                if repr(first) not in seen:
                    seen.add(repr(first))
                    several = 1 + (trials if number == 0 else 0)
                    for kind, count in kinds_of(first, pairs, images).items():
                        found[kind] += several * count
                if recipe.second_round is not None:
                    again = recipe.round_two()
                    own = again.objective.partition("(")[0]
                    found[own] += sum(kinds_of(again, pairs, images).values())
    return +found


def seconds_of(steps: Counter[str], rates: dict[str, float], where: str) -> float:
    """At so many milliseconds a step of each kind."""
    unknown = sorted(set(steps) - set(rates))
    if unknown:
        raise InputError(f"{where}: say in `ms` how long a step takes: {', '.join(unknown)}.")
    return sum(count * rates[kind] for kind, count in steps.items()) / 1000


def tables_of(folder: Path) -> list[dict[str, Any]]:
    """The entries of minutes.yaml with runs, steps and minutes."""
    path = folder / "minutes.yaml"
    if not path.is_file():
        raise InputError(f"{folder}: there is no minutes.yaml to read.")
    entries: list[dict[str, Any]] = yaml.safe_load(path.read_text())
    for one in entries:
        file = folder / one["file"]
        plan = read_plan(file)
        steps = steps_of(plan, one["captions"], one["images"])
        seconds = seconds_of(steps, one["ms"], f"{path}: {one['file']}")
        runs = len(plan.runs()) + plan.trainings
        one |= {"runs": runs, "steps": sum(steps.values()), "minutes": seconds / 60}
    return entries


def page(folder: Path) -> str:
    """minutes.md: in the order in which they are to be run."""
    before = ["", "Part 2 (coco.yaml, 540 runs) comes before all of these."] * (
        folder.name == "generalise"
    )
    lines = [
        "# How long these studies would take",
        "",
        f"By `python results/minutes.py results/{folder.name}`: steps of the study files times",
        "milliseconds of a step on one NVIDIA H200. A rate that names runs and the time they took",
        "is of a whole study: all is in it, and what runs side by side gain. The others are of a",
        "step alone, without reading data, validation and the start of a command. A guessed rate",
        "is called so.",
        *before,
        "",
        "| order | study | runs | steps | minutes | minutes so far | a step |",
        "|---|---|---|---|---|---|---|",
    ]
    total = 0.0
    for place, one in enumerate(tables_of(folder), 1):
        total += one["minutes"]
        numbers = f"{one['runs']} | {one['steps']:,} | {one['minutes']:.1f} | {total:.0f}"
        lines.append(f"| {place} | [{one['file']}]({one['file']}) | {numbers} | {one['because']} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--check", action="store_true")
    told = parser.parse_args()
    made, path = page(told.folder), told.folder / "minutes.md"
    if told.check:
        same = path.read_text() == made
        print(f"{path} computed again: {'the same' if same else 'DIFFERS'}")
        sys.exit(not same)
    path.write_text(made)
    print(made, end="")


if __name__ == "__main__":
    main()
