"""Part 5's study file, from the settings that a search chose: thirty epochs.

    python results/generalise/longer.py flickr8k   # flickr8k/tuned/ -> 5-longer-flickr8k.yaml

Settings and photos are those of one replicate, by default the first, so that no test photo of the
other replicates had a say: six objectives, the chosen rate and half of it, five seeds.
"""

import argparse
from pathlib import Path
from typing import Any

import yaml

from simgrad.core.derived import read_checked
from simgrad.core.errors import InputError
from simgrad.core.typed import read_yaml
from simgrad.studies.plan import plan_from_dict
from simgrad.studies.space import apply, base_of
from simgrad.studies.tuned import setting_of

HERE = Path(__file__).resolve().parent
EPOCHS, DECAY_EVERY = 30, 20  # the rate falls after two thirds, as in parts 1 and 2
SHARES = (1.0, 0.5)  # of the chosen rate
SEEDS = {"flickr8k": 410_000, "coco": 420_000}
HEAD = """\
# Does it matter that twelve epochs are few? Part 5 of the pre-registered study: {part}
#
#   python results/generalise/longer.py {part} --replicate {replicate}       # writes this file
#   simgrad study results/generalise/5-longer-{part}.yaml --data {data} --features features/{part}
#   python results/generalise/collect.py keep studies/5-longer-{part} 5-longer-{part}
#
# What replicate {replicate} chose, on its photos, with {epochs} epochs in place of 12 (the rate
# a tenth after {decay}, not 8).
#
# Published: nothing
# Ours: not run yet
# Time: {runs} runs of {epochs} epochs
"""


def rows_of(folder: Path, replicate: int) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """What all runs share; two rows for each objective whose search found a setting."""
    path = folder / "study.yaml"
    if not path.is_file():
        raise InputError(
            f"{folder}: nothing is kept there yet: collect.py keep STUDY {folder.name}."
        )
    plan = plan_from_dict(read_yaml(path), str(path))
    if not 1 <= replicate <= len(plan.replicates) or plan.tune is None:
        raise InputError(
            f"{path}: a tuned study of {len(plan.replicates)} replicates: no {replicate}."
        )
    one = plan.replicates[replicate - 1]
    rows = []
    for row, told in zip(one.rows, plan.rows, strict=True):
        setting = setting_of(read_checked(folder / "tuned" / f"{row.name}.json"))
        if setting is None:
            continue  # every trial failed: there is nothing to train longer
        recipe = apply(base_of(plan.tune, one.recipe(row, 0)), setting)
        for share in SHARES:
            changes = {
                "objective": recipe.objective,
                "lr": share * recipe.lr,
                "first_epochs": recipe.first_epochs,
            }
            label = f"{told.label}, {share:g} of the rate"
            rows.append(
                {"label": label, "group": told.label, "baseline": share == 1, "set": changes}
            )
    shared = {
        **plan.base.to_dict(),
        "resplit": one.rows[0].changes.get("resplit", plan.base.resplit),
    }
    shared |= {"epochs": EPOCHS, "decay_every": DECAY_EVERY, "reduction": recipe.reduction}
    defaults = type(plan.base)().to_dict()
    elsewhere = ("data", "features", "device", "workers", "threads", *rows[0]["set"])
    kept = {k: v for k, v in shared.items() if v != defaults[k] and k not in elsewhere}
    kept["epochs"] = EPOCHS
    return kept, rows


def study_file(part: str, folder: Path, replicate: int) -> str:
    """The whole file."""
    recipe, rows = rows_of(folder, replicate)
    seeds = [SEEDS[part] + 1000 * (replicate - 1) + number for number in range(5)]
    told = {"title": f"Thirty epochs, {part}, replicate {replicate}", "recipe": recipe}
    told |= {"rows": rows, "seeds": seeds}
    head = HEAD.format(
        part=part, data=part.upper(), replicate=replicate, epochs=EPOCHS, decay=DECAY_EVERY,
        runs=len(rows) * len(seeds),
    )  # fmt: skip
    return head + yaml.safe_dump(told, sort_keys=False, allow_unicode=True, width=120)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("part", choices=SEEDS)
    parser.add_argument("--replicate", type=int, default=1)
    told = parser.parse_args()
    path = HERE / f"5-longer-{told.part}.yaml"
    path.write_text(study_file(told.part, HERE / told.part, told.replicate))
    print(f"wrote {path}")


if __name__ == "__main__":
    main()
