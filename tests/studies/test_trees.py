"""Recipes on trees with the names and numbers of Flickr30k and COCO: what is tested, beside which
published numbers, with which form of VSRN and which schedule."""

import re
from pathlib import Path
from typing import Any

import pytest

from simgrad.cli.datasets import datasets
from simgrad.cli.study import study as command
from simgrad.core.errors import InputError
from simgrad.data.benchmarks import BENCHMARKS, benchmark_of, find_tree
from simgrad.runs.data import what_is_tested
from simgrad.studies.papers import beside
from simgrad.studies.placing import placed, places
from simgrad.studies.plan import Plan, read_plan
from simgrad.studies.study import Study
from simgrad.studies.study_file import Row
from simgrad.studies.table import build_table, printed
from tests import trees
from tests.studies.test_settings import CASES, TABLES
from tests.studies.world import World, run_short

# By table: (images tested, captions tested, folds) on each data set.
pytestmark = pytest.mark.usefixtures("forked_workers")
F30K, COCO5K, COCO1K = (1_000, 5_000, 1), (5_000, 25_000, 1), (5_000, 25_000, 5)
_FLICKR = "region_norm=false, batch_norm=true, published_axis=true"
VSRN = {
    ("bleeker", "f30k"): f"vsrn({_FLICKR})",
    ("bleeker", "coco"): "vsrn(batch_norm=true, published_axis=true)",
    (
        "aoq",
        "f30k",
    ): "vsrn(region_norm=false, batch_norm=true, published_axis=true, captioner=true)",
    ("aoq", "coco"): "vsrn(published_axis=true, captioner=true)",
}
# First rounds of rows that take the paper's common road: (epochs, decay_every, lr)
SCHEDULES = {
    ("bleeker", "vsrn", "f30k"): (30, 10, 2e-4),
    ("bleeker", "vsrn", "coco"): (30, 15, 2e-4),
    ("bleeker", "vse++", "f30k"): (30, 15, 2e-4),
    ("bleeker", "vse++", "coco"): (30, 15, 2e-4),
    ("aoq", "vsrn", "f30k"): (30, 10, 2e-4),
    ("aoq", "vsrn", "coco"): (30, 15, 2e-4),
    ("aoq", "bfan", "f30k"): (15, 15, 2e-4),
    ("aoq", "bfan", "coco"): (20, 15, 5e-4),
    ("aoq", "scan", "f30k"): (30, 15, 2e-4),
    ("aoq", "scan", "coco"): (20, 10, 5e-4),
    ("goal", "vse++", "f30k"): (30, 15, 2e-4),
    ("goal", "vse++", "coco"): (30, 15, 2e-4),
    ("goal", "vse-infinity", "f30k"): (25, 15, 5e-4),
    ("goal", "vse-infinity", "coco"): (25, 15, 5e-4),
    ("goal", "x-vlm", "f30k"): (10, 15, 3e-5),
    ("goal", "x-vlm", "coco"): (10, 15, 3e-5),
}


VOCABULARIES: dict[str, str | None] = {
    "vse++": "_vocab.pkl",
    "vsrn": "_precomp_vocab.pkl",
    "bfan": "_precomp_vocab.json",
    "scan": "_precomp_vocab.json",
    "vse-infinity": None,
    "x-vlm": None,
}
SEEDS = {"bleeker": 5, "goal": 3, "aoq": 2, "aoq-supplement3": 1}
# Rows that stand beside published ones; of AOQ's normal draws nothing is published.
BESIDE = {
    "aoq-main-coco": 12, "aoq-main-f30k": 6, "aoq-supplement-draws": 0, "aoq-supplement1": 3,
    "aoq-supplement2": 5, "aoq-supplement3": 4, "bleeker-table1": 8, "bleeker-table2": 4,
    "bleeker-table3": 2, "bleeker-table4": 2, "goal-appendix1": 6, "goal-appendix2": 30,
    "goal-appendix3": 30, "goal-table2": 6, "goal-table3": 30, "goal-table4": 30,
    "goal-table5": 30, "goal-table6": 8,
}  # fmt: skip


def expected(stem: str, name: str) -> tuple[int, int, int]:
    return F30K if name == "f30k" else COCO1K if stem.startswith("aoq") else COCO5K


def check(world: World, path: Path, name: str) -> None:
    (place,) = places(read_plan(path).offers, str(world.root), only=name)
    plan = placed(path, place)
    paper = path.stem.split("-")[0]
    assert (plan.dataset, place.known) == (name, BENCHMARKS[name])
    assert len(plan.seeds) == SEEDS.get(path.stem, SEEDS[paper])
    assert sum(bool(row.published) for row in plan.rows) == BESIDE[path.stem]
    for row in plan.rows:
        recipe = plan.recipe(row, 0)
        paper_row = beside(plan.published, row)
        if row.published:
            assert paper_row.comparable(recipe), row.label
            assert paper_row.dataset == name
        if not row.ensemble:
            check_row(world, plan, row, paper, name)


def check_row(world: World, plan: Plan, row: Row, paper: str, name: str) -> None:
    recipe, config = plan.recipe(row, 0), plan.model(row)
    data = world.dataset(recipe.data)
    asked = what_is_tested(recipe, data)
    assert asked is not None
    found = asked.to_dict()
    assert (found["images"], found["captions"], found["folds"]) == expected(paper, name)
    assert benchmark_of(data) == BENCHMARKS[name]
    if config.name == "vsrn":
        assert str(config) == VSRN[paper, name]
    schedule = SCHEDULES[paper, config.name, name]
    if recipe.objective.startswith("smooth-ap"):  # five times as many epochs of a fifth
        schedule = (5 * schedule[0], 5 * schedule[1], schedule[2])
    assert (recipe.epochs, recipe.decay_every, recipe.lr) == schedule, row.label
    if recipe.second_round is not None:
        again = recipe.round_two()
        epochs = 20 if config.name == "vsrn" else 15
        assert (again.epochs, again.decay_every, again.lr, again.depth) == (epochs, 10, 2e-4, 300)
    words = VOCABULARIES[config.name]
    assert recipe.vocabulary == (words and str(world.root / "vocab" / f"{name}{words}"))
    assert words is None or Path(str(recipe.vocabulary)).is_file()
    assert recipe.rerank == ({"f30k": 128, "coco": 256}[name] if config.name == "x-vlm" else None)
    if config.reads == "regions":
        assert recipe.data == str(world.root / f"{name}_precomp")
    else:
        assert recipe.data.endswith(BENCHMARKS[name].splits)


@pytest.mark.parametrize(("path", "name"), CASES, ids=lambda x: getattr(x, "stem", x))
def test_every_recipe_on_small_trees(small: World, path: Path, name: str) -> None:
    check(small, path, name)


@pytest.mark.slow
@pytest.mark.parametrize(("path", "name"), CASES, ids=lambda x: getattr(x, "stem", x))
def test_every_recipe_opens_data_and_model_on_whole_trees(
    whole: World, pretrained: Path, path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """By the command: it fails where a row cannot be run."""
    check(whole, path, name)
    command(str(path), data=str(whole.root), only=name, dry_run=True)
    told = capsys.readouterr().out
    images, captions, folds = expected(path.stem, name)
    assert f"{images:,} images, {captions:,} captions" in told
    assert ("mean over 5 folds" in told) == (folds == 5)
    train = {"f30k": "train: 29,000 images", "coco": "train: 113,287 images"}[name]
    assert train in told
    assert told.count("NOT like ours") == 0
    if BESIDE[path.stem]:
        assert f"{name}, " in told
        counts = [int(n) for n in re.findall(r"\(rows with them: (\d+)\)", told)]
        assert sum(counts) == BESIDE[path.stem]
    labels = [row.label for row in read_plan(path, name).rows]
    assert all(label in told for label in labels)
    weights = re.findall(r"(?:pictures|regions) [\dx ]+?  +([\d,]+) ", told)
    assert weights  # of models that were built
    assert "–" not in told


def test_missing_weights_are_named_and_all_else_is_opened(
    small: World,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def offline(*_: object, **__: object) -> None:
        raise OSError("no network")

    monkeypatch.setenv("SIMGRAD_CACHE", str(tmp_path))
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.snapshot_download", offline)
    path = next(p for p in TABLES if p.stem == "goal-table6")
    with pytest.raises(InputError, match="8 of 8 rows"):
        command(str(path), data=str(small.root), only="f30k", dry_run=True)
    told = capsys.readouterr()
    for place in ("resnet152.pth", "bert-base-uncased", "weights/x-vlm-4m", "simgrad import"):
        assert place in told.err
    assert str(tmp_path / "weights") in told.err
    assert "test: 1,000 images, 5,000 captions, pictures" in told.out
    assert "test: 1,000 images, 5,000 captions, features 36 x 4" in told.out
    assert "published vocabulary f30k_vocab.pkl" in told.out
    assert "(rows with them: 8)" in told.out
    assert "30 + 15" in told.out


def test_a_dry_run_says_what_a_second_round_begins_with(
    small: World, capsys: pytest.CaptureFixture[str]
) -> None:
    path = next(p for p in TABLES if p.stem == "aoq-supplement3")
    told = []
    for fast in (False, True):
        command(str(path), data=str(small.root), dry_run=True, fast=fast)
        told.append(capsys.readouterr().out)
    begins = ("VSRN, round two from scratch ", "VSRN, round two from round one ")
    assert [[words in text for words in begins] for text in told] == [[True, False], [False, True]]


@pytest.mark.slow
def test_whole_trees_are_known_and_looked_at(
    whole: World, capsys: pytest.CaptureFixture[str]
) -> None:
    tree = find_tree(whole.root)
    assert set(tree.pictures) == set(tree.regions) == {"f30k", "coco"}
    counts = {}
    for path in (*tree.pictures.values(), *tree.regions.values()):
        dataset = whole.dataset(str(path))
        sizes = {n: (s.num_images, s.num_captions) for n, s in dataset.splits.items()}
        counts[path.parent.name if path.is_file() else path.name] = sizes
    assert counts["f30k"]["train"] == (29_000, 145_000)
    assert counts["coco"]["train"][0] == 113_287
    assert sum(images for images, _ in counts["coco"].values()) == 123_287
    assert counts["coco_precomp"]["testall"] == (5_000, 25_000)
    datasets(str(whole.root))
    told = capsys.readouterr().out
    assert "31,783" in told
    assert "123,287" in told
    tables = told.split("blocked by\n")[1].split("Pretrained")[0].splitlines()
    assert {line.split()[-1] for line in tables if line} == {"nothing"}
    assert "--dry-run" in told


def test_what_a_tree_lacks_is_named_by_table(
    small: World, capsys: pytest.CaptureFixture[str]
) -> None:
    datasets(str(small.root))
    told = capsys.readouterr().out
    lacking = [line.split()[0] for line in told.splitlines() if line.endswith("x-vlm-4m")]
    assert lacking == ["goal-table6"] * 2


@pytest.fixture
def regions_alone(small: World, tmp_path: Path) -> Path:
    """A folder with f30k_precomp and nothing else."""
    root = tmp_path / "data"
    root.mkdir()
    (root / "f30k_precomp").symlink_to(small.root / "f30k_precomp")
    return root


def test_a_folder_with_one_form_of_one_data_set_is_enough(
    regions_alone: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    datasets(str(regions_alone))
    told = capsys.readouterr().out
    lines = {line.split("  ")[0]: line for line in told.splitlines()}
    assert " 20 of 20 " in lines["aoq-main-f30k"]
    assert lines["aoq-main-f30k"].endswith("nothing")
    assert " 4 of 8 " in lines["bleeker-table1 --only f30k"]
    assert lines["bleeker-table1 --only f30k"].endswith("flickr30k-images")
    assert " 0 of 8 " in lines["bleeker-table1 --only coco"]
    assert "made from the training captions: vocab/" in told

    path = next(p for p in TABLES if p.stem == "bleeker-table1")
    with pytest.raises(InputError, match="4 of 8 rows cannot be run; the other 4 are ready"):
        command(str(path), data=str(regions_alone), dry_run=True)
    told_twice = capsys.readouterr()
    assert "blocked: vse++: " in told_twice.err
    assert "dataset_flickr30k.json" in told_twice.err
    # 200 captions in batches of 128, or 40 images at once; 30 epochs, or 150; 5 seeds
    steps = 5 * (3 * 30 * 2 + 150 * 1)
    (ready,) = [line for line in told_twice.out.splitlines() if line.startswith("ready: vsrn")]
    assert f"20 runs, {steps:,} steps" in ready
    coco = next(p for p in TABLES if p.stem == "goal-table2")
    with pytest.raises(InputError, match="the folder holds Flickr30k"):
        command(str(coco), data=str(regions_alone), dry_run=True)


@pytest.mark.long
def test_rows_that_can_run_do(
    regions_alone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    path = next(p for p in TABLES if p.stem == "bleeker-table3")
    monkeypatch.setenv("SIMGRAD_CACHE", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    told: dict[str, Any] = {"data": str(regions_alone), "fast": True, "seeds": 1, "device": "cpu"}
    with pytest.raises(InputError, match="1 runs did not finish"):
        command(str(path), **told, output="s", processes=1)
    out = capsys.readouterr()
    assert "VSRN nt-xent" in out.out
    assert "dataset_flickr30k.json" in out.err
    assert Study.open("s").groups["VSRN nt-xent"][0].finished
    with pytest.raises(InputError, match="1 of 2 rows cannot be run"):
        command(str(path), **told, dry_run=True, time=True)
    (ready,) = [x for x in capsys.readouterr().out.splitlines() if x.startswith("ready: ")]
    assert re.search(r"about [\d,]+ minutes", ready)


@pytest.mark.slow
def test_an_average_of_two_models_stands_beside_the_published_one(
    small: World, tmp_path: Path
) -> None:
    labels = ("VSRN online", "VSRN average online")
    study = run_short(small, "aoq-main-coco", "coco", tmp_path / "s", *labels, batch=100)
    table = build_table(study)
    single, average = table.rows
    assert (single.seeds, average.seeds) == (2, 1)
    assert not single.published
    assert average.published["i2t_r1"] == (76.2, None)
    assert average.beside == "published"
    assert "coco-1k" in table.head
    assert "mean over 5 folds" in table.head
    assert "testall" in table.head
    ranks = study.groups["VSRN average online"][0].ranks()
    assert (len(ranks.i2t), len(ranks.t2i)) == (5_000, 25_000)
    assert "76.2" in str(printed(table))


@pytest.mark.slow
@pytest.mark.parametrize(("name", "label"), [("f30k", "VSRN triplet-sh"), ("coco", "VSRN nt-xent")])
def test_a_short_run_on_a_whole_tree(whole: World, tmp_path: Path, name: str, label: str) -> None:
    """All training captions once."""
    folder = tmp_path / "s"
    study = run_short(whole, "bleeker-table1", name, folder, label, seeds=(0,), batch=4096)
    (row,) = build_table(study).rows
    assert row.beside == "published"
    assert row.cells["rsum"].mean >= 0
    assert study.runs[0].info["tested"]["captions"] == expected("bleeker", name)[1]


def test_a_folder_with_both_runs_both_and_only_chooses(
    small: World, capsys: pytest.CaptureFixture[str]
) -> None:
    path = next(p for p in TABLES if p.stem == "bleeker-table3")
    offers = read_plan(path).offers
    assert [p.settings for p in places(offers, str(small.root))] == ["f30k", "coco"]
    assert [p.settings for p in places(offers, str(small.root), only="coco")] == ["coco"]
    with pytest.raises(InputError, match="about"):
        places(("f30k",), str(small.root), only="coco")
    command(str(path), dry_run=True)
    told = capsys.readouterr().out
    assert "protocol flickr30k-1k" in told
    assert "protocol coco-5k" in told
    with pytest.raises(InputError, match="--data"):
        command(str(path))


def test_one_data_set_alone_is_recognised(small: World) -> None:
    path = next(p for p in TABLES if p.stem == "bleeker-table1")
    (place,) = places(read_plan(path).offers, str(small.root / "coco_precomp" / "..") + "/coco")
    assert place.known is not None
    assert place.settings == "coco"
    plan = placed(path, place)
    assert plan.dataset == "coco"
    assert plan.recipe(plan.rows[0], 0).vocabulary is not None


def test_other_data_are_tested_by_no_published_protocol(tmp_path: Path) -> None:
    path = next(p for p in TABLES if p.stem == "bleeker-table1")
    trees.flickr30k(tmp_path, train=17, pictures=5)
    (place,) = places(read_plan(path).offers, str(tmp_path / "f30k"), only="coco")
    plan = placed(path, place)
    recipe = plan.recipe(plan.rows[0], 0)
    assert (plan.dataset, recipe.protocol) == ("coco", "all")
    assert "NOT like ours" in beside(plan.published, plan.rows[0]).name(recipe)


def test_too_few_images_are_told_before_training(small: World) -> None:
    data = small.dataset(str(small.root / "coco_precomp"))
    recipe = read_plan(next(p for p in TABLES if p.stem == "goal-table5")).base
    asked = what_is_tested(recipe, data)
    assert asked is not None
    assert asked.split.name == "testall"  # where `test` is a fifth of it
    with pytest.raises(InputError, match="split 'test'"):
        what_is_tested(recipe.replace(test_split="test"), data)
