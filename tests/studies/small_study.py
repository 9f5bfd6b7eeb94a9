"""A small tuned study, as several files try it."""

import dataclasses
from pathlib import Path
from typing import Any

from simgrad.evaluation import Ranks
from simgrad.studies.plan import Plan, plan_from_dict

SMALL: dict[str, Any] = {
    "title": "small",
    "recipe": {
        "data": "scenes(train=60, val=20, test=20, features=global)",
        "model": "vse++(dimension=16, word_dimension=16)",
        "epochs": 2,
        "batch": 32,
        "lr": 5e-3,
        "device": "cpu",
        "workers": 0,
        "min_count": 1,
    },
    "grid": {"objective": ["triplet", "nt-xent"]},
    "seeds": 2,
    "baseline": "triplet",
    "tune": {"trials": 3},
}


def plan(**changes: Any) -> Plan:
    return plan_from_dict({**SMALL, **changes}, "test")


def change_rank(path: Path) -> None:
    ranks = Ranks.load(path)
    t2i = ranks.t2i.copy()
    t2i[0] = 1 if t2i[0] > 10 else 20
    dataclasses.replace(ranks, t2i=t2i).save(path)
