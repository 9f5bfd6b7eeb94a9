"""`simgrad evaluate` on runs that were really trained, and judgments that people really made."""

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

import simgrad
from simgrad import models
from simgrad.evaluation.scores import Embeddings
from simgrad.retriever.similarities import evaluate_judgments
from simgrad.runs.run import Run
from tests.evaluation.commands import ask, run


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    from simgrad.runs.recipe import Recipe
    from simgrad.training import train

    folder = tmp_path_factory.mktemp("runs")
    recipe = Recipe(
        data="scenes(train=60, val=20, test=20, features=regions)",
        batch=32,
        epochs=1,
        device="cpu",
        workers=0,
        min_count=1,
    )
    small = {
        "a": {"model": "vse++(dimension=16, word_dimension=8)"},
        "b": {"model": "vse++(dimension=16, word_dimension=8)", "seed": 1},
        "sets": {"model": "scan(dimension=16, word_dimension=8)"},
    }
    for name, changes in small.items():
        data = recipe.data if name == "sets" else recipe.data.replace("regions", "global")
        train(recipe.replace(**changes, data=data), folder / name, quiet=True)
    return folder


@pytest.mark.parametrize("name", ["a", "sets"])
def test_a_run_evaluated_anew_agrees_with_what_it_kept(runs, capsys, tmp_path, name):
    assert "ranks kept by the run" in run(capsys, runs / name)
    output, ranks = tmp_path / "m.json", tmp_path / "r.parquet"
    options = ("--protocol", "all", "--device", "cpu", "--output", output, "--ranks", ranks)
    printed = run(capsys, runs / name, *options)
    assert "protocol all: all 20 images" in printed
    kept = Run.open(runs / name).test
    again = json.loads(output.read_text())
    assert {key: again[key] for key in kept} == pytest.approx(kept)
    assert simgrad.evaluation.Ranks.load(ranks).image_ids[0] != "0"  # named as the data names them


def test_two_runs_are_compared(runs, capsys):
    printed = run(capsys, runs / "a", runs / "b")
    assert "B - A" in printed
    assert "over images" in printed


def test_the_truth_of_scenes(runs, capsys, tmp_path):
    output = tmp_path / "m.json"
    run(capsys, runs / "a", "--truth", "True", "--device", "cpu", "--output", output)
    found = json.loads(output.read_text())
    assert found["true_pairs"] > 100  # 20 images with five captions each, and others that fit
    assert found["i2t_truth_r10"] >= found["i2t_r10"]


@pytest.fixture
def checkpoint(runs, tmp_path):
    """A model and its tokenizer without a recipe or data, as `simgrad import` writes them."""
    shutil.copytree(runs / "a" / "best", tmp_path / "imported")
    return tmp_path / "imported"


DATA = "scenes(train=60, val=20, test=20, features=global)"


def test_a_checkpoint_is_evaluated_like_a_run(runs, checkpoint, capsys, tmp_path):
    output = tmp_path / "m.json"
    run(capsys, checkpoint, "--data", DATA, "--device", "cpu", "--output", output)
    written = json.loads(output.read_text())
    kept = Run.open(runs / "a").test
    assert {name: written[name] for name in kept} == pytest.approx(kept)
    printed = run(capsys, runs / "b", checkpoint, "--data", DATA, "--device", "cpu", "--truth")
    assert "B: imported" in printed
    assert "i2t_truth_r1" in printed


def test_a_run_on_other_data(runs, capsys):
    other = DATA.replace("test=20", "test=12")
    assert "all 12 images" in run(capsys, runs / "a", "--data", other, "--device", "cpu")


def test_a_checkpoint_mines_and_counts_like_a_run(runs, checkpoint, capsys, tmp_path):
    where = ("--data", DATA, "--device", "cpu")
    ask(capsys, "mine", checkpoint, *where, "--depth", "5", "--output", tmp_path / "one")
    ask(capsys, "mine", runs / "a", "--device", "cpu", "--depth", "5", "--output", tmp_path / "two")
    for name in ("i2t.npy", "t2i.npy"):
        one, two = (np.load(tmp_path / folder / name) for folder in ("one", "two"))
        assert np.array_equal(one, two)
    objective = Run.open(runs / "a").recipe.objective
    counted = ask(capsys, "cocos", checkpoint, *where, "--objective", objective, "--batch", 32)
    same = ask(capsys, "cocos", runs / "a", "--device", "cpu", "--objective", objective)
    figures = [line.split()[1:] for line in counted.splitlines() if line.startswith("imported")]
    assert figures
    assert figures == [line.split()[1:] for line in same.splitlines() if line.startswith("a ")]


@pytest.mark.parametrize(
    ("command", "options", "message"),
    [
        ("evaluate", (), "name a data set with --data"),
        ("mine", (), "name a data set with --data"),
        ("cocos", ("--data", DATA), "with --objective"),
        ("evaluate", ("--data", DATA.replace("global", "regions")), "reads features of shape"),
        ("evaluate", ("--data", "nowhere"), "nowhere"),
    ],
)
def test_what_a_checkpoint_needs_is_said(checkpoint, capsys, command, options, message):
    assert message in ask(capsys, command, checkpoint, *options, status=2)


def test_a_checkpoint_without_a_vocabulary(checkpoint, capsys, tmp_path):
    models.save(checkpoint, models.load(checkpoint).model, None)
    told = ask(capsys, "evaluate", checkpoint, "--data", DATA, status=2)
    assert "`simgrad import FILE --vocabulary" in told
    told = ask(capsys, "export", checkpoint, "--to", tmp_path / "out", status=2)
    assert "`simgrad import FILE --vocabulary" in told
    assert not (tmp_path / "out").exists()
    to = ("--output", tmp_path / "run", "--data", DATA, "--device", "cpu")
    began = ("--model", "vse++(dimension=16, word_dimension=8)", "--start-from", checkpoint)
    told = ask(capsys, "train", *to, *began, status=2)
    assert "`simgrad import FILE --vocabulary" in told


FLICKR8K = Path(os.environ.get("SIMGRAD_FLICKR8K", "flickr8k"))  # a folder of yours


@pytest.mark.skipif(
    not (FLICKR8K / "ExpertAnnotations.txt").is_file(),
    reason="needs Flickr8k's judgments: set SIMGRAD_FLICKR8K",
)
def test_people_agree_with_people():
    """A model that knows the experts' scores agrees with them; one that knows nothing does not."""
    split = simgrad.data.open_dataset(FLICKR8K).split("test")
    judged = simgrad.data.judgments.read_judgments(FLICKR8K)["expert"]
    images, captions, rows = judged.rows(split)
    assert len(rows) > 1000
    torch.manual_seed(0)
    nothing = Embeddings(
        torch.nn.functional.normalize(torch.randn(split.num_images, 16)),
        torch.nn.functional.normalize(torch.randn(split.num_captions, 16)),
    )
    found = evaluate_judgments(nothing, split, FLICKR8K)
    assert abs(found["expert_kendall_b"]) < 0.05
    assert found["expert_pairs"] == len(rows)
    assert found["crowd_approved"] > 100
    matrix = np.zeros((split.num_images, split.num_captions), dtype=np.float32)
    matrix[images, captions] = judged.relevance()[rows]
    known = simgrad.evaluation.scores.Matrix(torch.from_numpy(matrix))
    found = evaluate_judgments(known, split, FLICKR8K)
    assert found["expert_spearman"] == pytest.approx(1)
    assert found["expert_kendall_b"] == pytest.approx(1)
    assert found["i2t_expert_ndcg10"] > 0.99
