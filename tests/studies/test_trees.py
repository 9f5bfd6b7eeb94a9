"""Recipes on trees with the names and numbers of Flickr30k and COCO: what is tested, beside which
published numbers, with which form of VSRN and which schedule."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from simgrad.cli.datasets import datasets
from simgrad.cli.study import study as command
from simgrad.core.errors import InputError
from simgrad.data import open_dataset
from simgrad.data.base import Dataset
from simgrad.data.benchmarks import BENCHMARKS, benchmark_of, find_tree
from simgrad.runs.tested import what_is_tested
from simgrad.studies.engine import run_local
from simgrad.studies.ensembles import complete_ensembles
from simgrad.studies.papers import beside
from simgrad.studies.placing import placed, places
from simgrad.studies.plan import Plan, read_plan
from simgrad.studies.study import Study
from simgrad.studies.table import build_table, printed
from tests import trees
from tests.studies.test_settings import CASES, TABLES

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


def expected(stem: str, name: str) -> tuple[int, int, int]:
    return F30K if name == "f30k" else COCO1K if stem.startswith("aoq") else COCO5K


@dataclasses.dataclass
class World:
    root: Path
    opened: dict[str, Dataset] = dataclasses.field(default_factory=dict)

    def dataset(self, path: str) -> Dataset:
        if path not in self.opened:
            self.opened[path] = open_dataset(path)
        return self.opened[path]


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Everything but training images is of full size."""
    root = tmp_path_factory.mktemp("small")
    trees.flickr30k(root, train=40, pictures=20)
    trees.coco(root, train=30, restval=20)
    trees.vocabularies(root)
    with pytest.MonkeyPatch.context() as patch:
        for name, train in (("f30k", 40), ("coco", 50)):
            few = dataclasses.replace(BENCHMARKS[name], train=(train,))
            patch.setitem(BENCHMARKS, name, few)
        yield World(root)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> World:
    root = tmp_path_factory.mktemp("whole")
    trees.flickr30k(root)
    trees.coco(root)
    trees.vocabularies(root)
    return World(root)


def check(world: World, path: Path, name: str) -> None:
    (place,) = places(read_plan(path).offers, str(world.root), only=name)
    plan = placed(path, place)
    paper = path.stem.split("-")[0]
    assert (plan.dataset, place.known) == (name, BENCHMARKS[name])
    for row in plan.rows:
        recipe = plan.recipe(row, 0)
        paper_row = beside(plan.published, row)
        if row.published:
            assert paper_row.comparable(recipe), row.label
            assert paper_row.dataset == name
        if row.ensemble:
            continue
        asked = what_is_tested(recipe, world.dataset(recipe.data))
        assert asked is not None
        found = asked.to_dict()
        assert (found["images"], found["captions"], found["folds"]) == expected(path.stem, name)
        assert benchmark_of(world.dataset(recipe.data)) == BENCHMARKS[name]
        config = plan.model(row)
        if config.name == "vsrn":
            assert str(config) == VSRN[paper, name]
        schedule = (recipe.epochs, recipe.decay_every, recipe.lr)
        if not recipe.objective.startswith("smooth-ap"):
            assert schedule == SCHEDULES[paper, config.name, name], row.label
        if recipe.vocabulary is not None:
            assert Path(recipe.vocabulary).is_file(), recipe.vocabulary
            assert Path(recipe.vocabulary).name.startswith(name)
        if config.reads == "regions":
            assert recipe.data == str(world.root / f"{name}_precomp")
        else:
            assert recipe.data.endswith(BENCHMARKS[name].splits)


@pytest.mark.parametrize(("path", "name"), CASES, ids=lambda x: getattr(x, "stem", x))
def test_every_recipe_on_small_trees(small: World, path: Path, name: str) -> None:
    check(small, path, name)


@pytest.mark.slow
@pytest.mark.parametrize(("path", "name"), CASES, ids=lambda x: getattr(x, "stem", x))
def test_every_recipe_on_whole_trees(whole: World, path: Path, name: str) -> None:
    check(whole, path, name)


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
    assert "x-vlm-4m" in told  # the one thing that is missing


_TINY = {"dimension": 4, "word_dimension": 4, "captioner_dimension": 4, "layers": 1}


def narrow(plan: Plan, **changes: Any) -> Plan:
    """With models so small that a CPU goes through all training captions in a minute."""
    rows = []
    for row in plan.rows:
        config = plan.model(row)
        known = {field.name for field in dataclasses.fields(config)}
        tiny: Any = {name: value for name, value in _TINY.items() if name in known}
        made = dataclasses.replace(config, **tiny)
        rows.append(row.with_changes(model=str(made), **changes))
    return dataclasses.replace(plan, rows=tuple(rows))


def only_rows(plan: Plan, *labels: str) -> Plan:
    return dataclasses.replace(plan, rows=tuple(r for r in plan.rows if r.label in labels))


def run_short(
    world: World,
    stem: str,
    name: str,
    folder: Path,
    *labels: str,
    seeds: tuple[int, ...] = (0, 1),
    **more: Any,
) -> Study:
    """A few steps of some rows of a table on a tree, and their tests."""
    path = next(p for p in TABLES if p.stem == stem)
    (place,) = places((name,), str(world.root), only=name)
    plan = narrow(only_rows(placed(path, place), *labels), epochs=1, device="cpu", **more)
    study = Study.create(dataclasses.replace(plan, seeds=seeds), folder)
    run_local(study, processes=1, quiet=True)
    assert complete_ensembles(study, "cpu") == []
    return study


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
