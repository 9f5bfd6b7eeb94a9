"""results/generalise, parts 3 to 5: what their study files say; each is trained on made-up data."""

import csv
from pathlib import Path

import numpy as np
import pytest
import yaml

from simgrad import evaluate_similarities
from simgrad.core.errors import InputError
from simgrad.evaluation import Ranks, metrics_of
from simgrad.studies.plan import plan_from_dict, read_plan
from simgrad.studies.study import Study
from tests.processes import script as command
from tests.studies.rehearsal import RESULTS, rehearsed, resnet, script, train

pytest.importorskip("optuna")
FOLDER = RESULTS / "generalise"
PARTS = sorted(path.stem for path in FOLDER.glob("[3-5]*.yaml"))
SEARCHED = [part for part in PARTS if part.startswith("3")]


@pytest.mark.parametrize("part", SEARCHED)
def test_a_further_model_is_searched_as_was_registered(part: str) -> None:
    told = read_plan(FOLDER / f"{part}.yaml")
    first = read_plan(FOLDER / f"{part.split('-')[-1]}.yaml")
    assert told.tune is not None
    assert (told.tune.trials, told.tune.finalists * told.tune.repeats, len(told.seeds)) == (8, 4, 2)
    assert len(told.replicates) == 3
    assert told.base.resplit == first.base.resplit
    assert {row.label for row in told.rows} <= {row.label for row in first.rows}
    for one, other in zip(told.replicates, first.replicates, strict=False):
        assert one.rows[0].changes["resplit"] == other.rows[0].changes["resplit"]


def test_the_mechanism_is_what_was_registered() -> None:
    plan, first = read_plan(FOLDER / "4-mechanism.yaml"), read_plan(FOLDER / "flickr8k.yaml")
    assert (len(plan.rows), len(plan.runs())) == (4 * 4 * 3 * 2, 288)
    changed = {"reduction": "sum", "data": first.base.data}
    assert plan.base == first.base.replace(**changed)


def test_no_seed_is_used_twice() -> None:
    used: list[int] = []
    for part in [*PARTS, "flickr8k", "coco"]:
        for one in read_plan(FOLDER / f"{part}.yaml").replicates:
            used += [*one.seeds, *(one.tune.seeds if one.tune else ())]
    assert len(used) == len(set(used))


def test_the_minutes_are_computed_again() -> None:
    done = command(RESULTS / "minutes.py", FOLDER, "--check")
    assert done.returncode == 0, done.stdout + done.stderr


def test_part_five_is_what_part_one_chose() -> None:
    made = script("generalise", "longer").study_file("flickr8k", FOLDER / "flickr8k", 1)
    assert (FOLDER / "5-longer-flickr8k.yaml").read_text() == made


def test_steps_by_hand() -> None:
    """AOQ: a first round that rows share counts once; batches of images are counted as such."""
    minutes = script("", "minutes")
    plan = read_plan(RESULTS.parent / "recipes" / "flickr8k-aoq-further.yaml")
    # Three seeds: ten epochs of 10 batches once, three second rounds of four epochs.
    steps = minutes.steps_of(plan, 1280, 256)
    assert steps["pairs 128"] == 3 * 10 * 10
    assert steps["adap-off-quin"] == steps["off-tri"] == steps["triplet-sh"] == 3 * 4 * 10
    vsrn = minutes.steps_of(read_plan(RESULTS.parent / "recipes" / "flickr8k-vsrn.yaml"), 1281, 256)
    assert vsrn == {"pairs 128": 3 * 5 * 30 * 11, "images": 5 * 150 * 2}
    with pytest.raises(InputError, match="off-tri"):
        minutes.seconds_of(steps, {"pairs 128": 1.0}, "minutes.yaml")


@pytest.mark.long
@pytest.mark.parametrize("part", [part for part in SEARCHED if "coco" not in part])
def test_a_part_is_trained_on_made_up_data(
    part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    resnet(tmp_path / "weights" / "resnet50")
    study = train(rehearsed(read_plan(FOLDER / f"{part}.yaml")), tmp_path / "study")
    assert study.complete
    collect = script("generalise", "collect")
    collect.keep(study, tmp_path / part)
    lines = list(collect.collect(tmp_path / part))
    assert len(lines) == len(study.plan.rows) * 2 * 2
    assert all(line["rsum"] > 0 for line in lines)


@pytest.fixture(scope="module")
def mechanism(tmp_path_factory: pytest.TempPathFactory) -> tuple[Study, Path]:
    """The mechanism's study with two of its rates' rows, kept."""
    folder = tmp_path_factory.mktemp("mechanism")
    plan = rehearsed(read_plan(FOLDER / "4-mechanism.yaml"), resplit=None)  # what is right is known
    rows = [row for row in plan.rows if row.changes["lr"] != 4e-3 and "0.5" in row.label]
    study = train(plan.__class__(plan.title, plan.base, tuple(rows), plan.seeds), folder / "s")
    script("generalise", "collect").keep(study, folder / "4-mechanism")
    return study, folder / "4-mechanism"


@pytest.mark.long
def test_pictures_and_the_mechanism_from_a_made_up_study(mechanism: tuple[Study, Path]) -> None:
    study, folder = mechanism
    why = script("generalise", "why")
    drawn = why.draw([folder], folder)
    assert [path.name for path in drawn] == ["curves.png", "similarities.png"]
    lines = list(why.count(study))
    assert {line["direction"] for line in lines} == {"i2t", "t2i"}
    assert len(lines) == 2 * len(study.runs)
    assert all(0 <= line["false_share"] <= 1 for line in lines)
    with (folder / "pushes.csv").open("w") as file:
        writer = csv.DictWriter(file, why.COLUMNS)
        writer.writeheader()
        writer.writerows(lines)
    assert why.draw([folder], folder)[2].name == "pushes.png"
    assert all((folder / f"{name}.png").stat().st_size > 10_000 for name in ("curves", "pushes"))
    page = why.mechanism(folder)
    assert page.count("(lr ") == 4  # objectives at one lambda
    assert "goal(triplet=con, pair=sig)" in page


def test_the_mechanism_takes_the_best_on_validation(tmp_path: Path) -> None:
    """A row with the better test score and the worse validation is not taken."""
    why, collect = script("generalise", "why"), script("generalise", "collect")
    nca, cir = "goal(triplet=nca, pair=sig, lambda=0.5)", "goal(triplet=cir, pair=sig, lambda=0.5)"
    rows = (("a", nca, 50.0, 0.0), ("b", nca, 40.0, 9.0), ("c", cir, 10.0, 4.0))
    told = [{"label": label, "set": {"objective": objective}} for label, objective, *_ in rows]
    plan = plan_from_dict({"rows": told, "seeds": 2}, "test")
    (tmp_path / "study.yaml").write_text(yaml.safe_dump(plan.to_dict()))
    tests, curves = [], []
    random = np.random.default_rng(0)
    (tmp_path / "ranks").mkdir()
    for label, _, validation, signal in rows:
        for seed in range(2):
            run = f"{label}-s{seed}"
            S = random.normal(size=(12, 12)) + signal * np.eye(12)
            evaluate_similarities(S, range(12)).ranks.save(tmp_path / "ranks" / f"{run}.parquet")
            tests.append({"run": run, "objective": label, "seed": seed, "outcome": "trained"})
            line = {"run": run, "epoch": 1, "val": validation, "spread": 1}
            curves.append(line | {"i2t_effective": "nan", "t2i_effective": 2})
    tests[-1]["outcome"] = "diverged"
    collect._write(tmp_path / "tests.csv", tests)
    collect._write(tmp_path / "curves.csv", curves)
    page = why.mechanism(tmp_path)
    (line,) = [line for line in page.splitlines() if line.startswith("| 0.5")]
    shown = line.split("|")
    assert "| lambda | goal(triplet=cir, pair=sig) | goal(triplet=nca, pair=sig) |" in page
    low = np.mean([_rsum(tmp_path, "a-s0"), _rsum(tmp_path, "a-s1")])
    assert float(shown[3].split()[0]) == pytest.approx(low, abs=0.06)
    assert float(shown[2].split()[0]) == pytest.approx(_rsum(tmp_path, "c-s0") / 2, abs=0.06)


def _rsum(folder: Path, run: str) -> float:
    return metrics_of(Ranks.load(folder / "ranks" / f"{run}.parquet"))["rsum"]


def test_pictures_need_what_was_kept(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"tests.csv: not there yet: .*collect.py keep"):
        script("generalise", "why").draw([tmp_path / "4-mechanism"], tmp_path)


@pytest.mark.long
def test_part_five_follows_from_what_was_chosen(tmp_path: Path) -> None:
    longer, collect = script("generalise", "longer"), script("generalise", "collect")
    with pytest.raises(InputError, match="nothing is kept"):
        longer.study_file("flickr8k", tmp_path / "flickr8k", 1)
    study = train(rehearsed(read_plan(FOLDER / "flickr8k.yaml")), tmp_path / "study")
    collect.keep(study, tmp_path / "flickr8k")
    (tmp_path / "five.yaml").write_text(longer.study_file("flickr8k", tmp_path / "flickr8k", 2))
    plan = read_plan(tmp_path / "five.yaml")
    assert len(plan.runs()) == 6 * 2 * 5
    assert (plan.base.epochs, plan.base.decay_every, plan.base.reduction) == (30, 20, "sum")
    tested = {
        run.recipe.objective: run.recipe for runs in study.groups.values() for run in runs[2:]
    }
    for row in plan.rows:
        own = tested[row.changes["objective"]]
        assert own.resplit == plan.base.resplit
        share = 1 if row.baseline else 0.5
        assert row.changes["lr"] == pytest.approx(share * own.lr)
        assert row.changes["first_epochs"] == own.first_epochs
    with pytest.raises(InputError, match="2 replicates: no 3"):
        longer.study_file("flickr8k", tmp_path / "flickr8k", 3)
