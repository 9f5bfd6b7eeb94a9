"""A study file finds the user's own file that the folder it goes on in was begun with."""

import os
from pathlib import Path

from tests.processes import simgrad

OWN = """
import simgrad

@simgrad.objectives.declare("mine", description="pushes negatives by their similarity")
def mine(similarities, positives, pairs):
    return (similarities.masked_fill(positives, 0) ** 2).sum(1) - (similarities * positives).sum(1)
"""
PLAN = """
title: mine
recipe: {data: "scenes(train=8, val=4, test=4, features=global)", epochs: 1, batch: 8,
         model: "vse++(dimension=4, word_dimension=4)"}
grid: {objective: [mine]}
seeds: 1
"""


def test_it_need_not_be_named_again(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(OWN)
    (tmp_path / "plan.yaml").write_text(PLAN)
    environment = {**os.environ, "SIMGRAD_CACHE": str(tmp_path / "cache")}

    def study(*words: str) -> str:
        command = (*words, "study", "plan.yaml", "--output", "study", "--processes", "1")
        done = simgrad(*command, cwd=tmp_path, env=environment)
        assert done.returncode == 0, done.stderr
        return done.stderr

    study("--with", "mine.py")
    (tmp_path / "plan.yaml").write_text(PLAN.replace("seeds: 1", "seeds: 2"))
    assert "mine.py" in study()
