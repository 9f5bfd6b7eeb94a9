"""`simgrad demo`: six objectives, two seeds each, on the embedded world, in a few minutes."""

from pathlib import Path
from typing import Any

from simgrad.cli.report import report as write_report
from simgrad.cli.study import adapt, conclude
from simgrad.cli.tables import print_general
from simgrad.core.console import say
from simgrad.runs.counting import count_run
from simgrad.studies.engine import run_local
from simgrad.studies.plan import plan_from_dict
from simgrad.studies.study import Study

DEMO: dict[str, Any] = {
    "title": "Which objective? Six of them on the embedded world",
    "recipe": {
        "data": "scenes(features=global)",
        "model": "vse++(dimension=128, word_dimension=64)",
        "epochs": 6,
        "lr": 1e-3,
        "decay_every": 4,
        "first_objective": "triplet",
        "first_epochs": 1,
    },
    "grid": {
        "objective": [
            "triplet",
            "triplet-sh",
            "nt-xent",
            "goal(triplet=con, pair=sig)",
            "goal(triplet=cir, pair=sig-ms)",
        ]
    },
    "rows": [
        {  # as published: images with all their captions, about as many captions in a batch
            "label": "smooth-ap",
            "set": {
                "objective": "smooth-ap",
                "sampler": "images",
                "captions_per_image": 5,
                "batch": 26,
            },
        }
    ],
    "seeds": 2,
    "baseline": "triplet-sh",
}


def demo(*, output: str = "demo", seeds: int | None = None, report: bool = True) -> None:
    """Compare six objectives on the embedded world; a second call continues.

    Args:
        output: folder of the study.
        seeds: how many seeds; 2 if left out.
        report: write the HTML report too.
    """
    plan = adapt(plan_from_dict(DEMO, "demo"), seeds=seeds)
    made = Study.create(plan, output)
    say(f"{plan.title}: {len(plan.runs())} runs in {output}", stderr=True)
    run_local(made)
    conclude(made)
    _show_counts(made)
    if report:
        write_report((output,), output=Path(output) / "report.html")


def _show_counts(made: Study) -> None:
    """What each objective does to the gradient, from one run of each."""

    print()
    print_general([count_run(runs[0], batches=10) for runs in made.groups.values() if runs])
    print()
