"""The scripts of results/flickr8k: studies that are run again are replaced, all else stays."""

import csv
import importlib
import shutil
from pathlib import Path
from typing import Any

import pytest

from simgrad.runs.run import Run, write_info
from simgrad.studies.plan import plan_from_dict
from simgrad.studies.study import Study
from simgrad.studies.worker import work
from tests.processes import script

RESULTS = Path(__file__).parents[2] / "results" / "flickr8k"
AOQ: dict[str, Any] = {
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
    "rows": [{"label": "VSRN online", "baseline": True}, {"label": "new", "set": {"lr": 1e-3}}],
    "seeds": 3,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Studies as they come back from another machine: no weights; two in part; one not begun."""
    made = tmp_path_factory.mktemp("runs")
    one_row = [{"label": recorded("finetune")[0]["label"]}]
    for name, seeds, rows in (
        ("aoq", 3, AOQ["rows"]),
        ("goal", 1, AOQ["rows"]),
        ("finetune", 1, one_row),
    ):
        plan = plan_from_dict({**AOQ, "seeds": seeds, "rows": rows}, name)
        assert work(Study.create(plan, made / name)) == 0
    Study.create(plan_from_dict(AOQ, "aoq-further"), made / "aoq-further")
    for name in ("goal", "finetune"):
        for path in (made / name / "runs").iterdir():  # as long as the recorded ones
            write_info(path, {**Run(path).info, "steps": int(recorded(name)[0]["steps"])})
    for weights in made.rglob("best"):
        shutil.rmtree(weights)
    return made


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory, folder: Path) -> Path:
    """The published folder after all of its scripts."""
    here = tmp_path_factory.mktemp("results") / "flickr8k"
    shutil.copytree(RESULTS, here, ignore=shutil.ignore_patterns("__pycache__"))
    judged = lines(here / "judgments.csv")[0] | {"study": "aoq", "label": "VSRN online"}
    with (folder / "judgments.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(judged))
        writer.writeheader()
        writer.writerow(judged)
    told = run(here / "make.py", folder)
    assert "goal: left out, it is a part" in told
    assert "finetune: left out, it is a part" in told
    run(here / "crossranks.py", folder / "aoq", folder / "aoq-further")
    run(here / "curves.py", folder / "aoq", folder / "aoq-further")
    return here


def recorded(study: str) -> list[dict[str, str]]:
    return [line for line in lines(RESULTS / "runs.csv") if line["study"] == study]


def run(*command: Path | str) -> str:
    done = script(*command)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def lines(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("name", ["runs.csv", "crossranks.csv", "curves.csv"])
def test_lines_of_one_study_are_replaced_and_all_others_stay(results: Path, name: str) -> None:
    before, after = lines(RESULTS / name), lines(results / name)
    assert [o for o in after if o["study"] != "aoq"] == [o for o in before if o["study"] != "aoq"]
    mine = [(line["label"], line["seed"]) for line in after if line["study"] == "aoq"]
    assert mine == [(label, str(seed)) for label in ("VSRN online", "new") for seed in range(3)]


def test_files_of_other_studies_stay(results: Path) -> None:
    def files(place: Path) -> dict[str, bytes]:
        paths = [*place.glob("table-*"), *(place / "ranks").rglob("*.parquet")]
        return {str(path.relative_to(place)): path.read_bytes() for path in paths}

    before, after = files(RESULTS), files(results)
    changed = {name for name in before | after if before.get(name) != after.get(name)}
    together = {"table-crossranks.md", "table-judgments.md"}
    assert all(name in together or "aoq" in name for name in changed)
    assert {"table-aoq.md", "table-aoq.csv"} | together <= changed
    assert len(list((results / "ranks" / "aoq").iterdir())) == 2  # the best seed of each row
    assert not any("further" in name or "finetune" in name for name in changed)


def test_judgments_stand_by_study_and_model(results: Path) -> None:
    text = (results / "table-judgments.md").read_text()
    heads = [line for line in text.splitlines() if line.startswith("## ")]
    assert heads[0] == "## aoq, VSE++"  # what this small study ran
    assert {"## objectives, VSE++", "## vsrn, VSRN"} <= set(heads)
    kept = [line for line in lines(results / "judgments.csv") if line["study"] != "aoq"]
    assert len(kept) == sum(o["study"] != "aoq" for o in lines(RESULTS / "judgments.csv"))


@pytest.mark.long
def test_judging_keeps_other_lines_and_names_runs_without_weights(
    folder: Path, tmp_path: Path
) -> None:
    output = tmp_path / "judgments.csv"
    output.write_text("study,label\nvsrn,triplet\n")
    told = run(RESULTS / "judge.py", tmp_path, output, folder / "goal", "--processes", "1")
    assert told.count("it has no weights") == 2
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
