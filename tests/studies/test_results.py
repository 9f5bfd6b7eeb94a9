"""results/flickr8k/judge.py: runs that are judged again are replaced, all else stays."""

import csv
import importlib
import shutil
from pathlib import Path
from typing import Any

import pytest

from simgrad.studies.plan import plan_from_dict
from simgrad.studies.study import Study
from simgrad.studies.worker import work
from tests.processes import script

RESULTS = Path(__file__).parents[2] / "results" / "flickr8k"
SMALL: dict[str, Any] = {
    "title": "small",
    "recipe": {
        "data": "scenes(train=20, val=5, test=5, features=global)",
        "model": "vse++(dimension=8, word_dimension=8)",
        "epochs": 1,
        "batch": 32,
        "device": "cpu",
        "workers": 0,
        "min_count": 1,
    },
    "rows": [{"label": "as it is", "baseline": True}, {"label": "new", "set": {"lr": 1e-3}}],
    "seeds": 1,
}


def lines(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        return list(csv.DictReader(file))


@pytest.mark.long
def test_judging_keeps_other_lines_and_names_runs_without_weights(tmp_path: Path) -> None:
    """A study as it comes back from another machine."""
    study = tmp_path / "goal"
    assert work(Study.create(plan_from_dict(SMALL, "goal"), study)) == 0
    for weights in study.rglob("best"):
        shutil.rmtree(weights)
    output = tmp_path / "judgments.csv"
    output.write_text("study,label\nvsrn,triplet\n")
    done = script(RESULTS / "judge.py", tmp_path, output, study, "--processes", "1")
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("it has no weights") == 2
    assert lines(output) == [{"study": "vsrn", "label": "triplet"}]


def test_lines_of_runs_without_weights_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others of the same study are judged anew."""
    output = tmp_path / "judgments.csv"
    old = [
        {"study": study, "label": "triplet", "seed": seed}
        for study, seed in (("vsrn", "0"), ("goal", "0"), ("goal", "1"), ("goal", "7"))
    ]
    output.write_text("study,label,seed\n" + "".join(",".join(o.values()) + "\n" for o in old))
    new = [{"study": "goal", "label": "triplet", "seed": 0, "rsum": "9"}]
    monkeypatch.syspath_prepend(RESULTS)
    merged = importlib.import_module("judge").merged
    assert merged(output, new, {("goal", "triplet", "1")}) == [old[0], old[2], *new]


@pytest.mark.slow
def test_every_number_of_the_study_follows_from_its_ranks() -> None:
    done = script(RESULTS / "compute.py", "--check")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "all the same" in done.stdout


@pytest.mark.slow
def test_a_changed_number_of_the_study_is_noticed(tmp_path: Path) -> None:
    here = tmp_path / "flickr8k"
    shutil.copytree(RESULTS, here)
    runs, page = here / "study" / "runs.csv", here / "README.md"
    runs.write_text(runs.read_text().replace("253.18", "254.18", 1))
    page.write_text(page.read_text().replace("276.7", "279.7", 1))
    done = script(here / "compute.py", "--check")
    assert done.returncode == 1
    assert "triplet-sh-s0: rsum is 254.18" in done.stdout
    assert "README.md: 279.7 is nowhere" in done.stdout
