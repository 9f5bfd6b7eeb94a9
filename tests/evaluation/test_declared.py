"""Metrics as records: what a name means everywhere, and one of one's own."""

import json
import math
import re
from pathlib import Path

import numpy as np
import pytest

import simgrad
from simgrad.core.errors import InputError
from simgrad.evaluation import METRICS, Metric, check_metric, headlines, metric, metric_of
from simgrad.evaluation.declared import DIRECTIONS, per_query
from simgrad.evaluation.ranks import Positions
from tests.processes import script


@pytest.mark.parametrize(
    ("name", "heading", "printed", "better"),
    [
        ("i2t_r1", "i2t R@1", "12.3", "high"),
        ("t2i_r250", "t2i R@250", "12.3", "high"),
        ("rsum", "rsum", "12.3", "high"),
        ("average_recall", "average recall", "12.3", "high"),
        ("t2i_average_recall", "t2i average recall", "12.3", "high"),
        ("i2t_medr", "i2t median rank", "12", "low"),
        ("t2i_meanr", "t2i mean rank", "12.3", "low"),
        ("i2t_map5_hits", "i2t mAP@5 over hits", "12.346", "high"),
        ("ties", "ties", "12", "low"),
        ("i2t_truth_map_at_r", "i2t truth mAP@R", "12.346", "high"),
        ("cxc_t2i_r5", "t2i cxc R@5", "12.3", "high"),
        ("coco_5k_i2t_medr", "i2t coco 5k median rank", "12", "low"),
        ("expert_others_kendall_b", "expert others Kendall's tau-b", "12.346", "high"),
        ("t2i_expert_ndcg10", "t2i expert NDCG@10", "12.346", "high"),
        ("crowd_approved", "crowd approved pairs", "12", "high"),
        ("i2t_of_a_stranger", "i2t of a stranger", "12.346", "high"),
    ],
)
def test_a_name_says_how_it_is_read(name, heading, printed, better):
    found = metric_of(name)
    assert (found.name, found.heading) == (name, heading)
    assert found.format(12.3456) == printed
    assert found.format(-1e-9) == found.format(0.0)  # no "-0.0"
    assert found.better == better


def test_every_number_of_an_evaluation_is_declared_and_within_its_bounds():
    similarities = np.random.default_rng(0).normal(size=(12, 30))
    found = simgrad.evaluate_similarities(similarities, np.arange(30) % 12, recalls=(3,))
    assert len(found.to_dict()) > 30
    for name, value in found.to_dict().items():
        low, high = metric_of(name).bounds
        assert low <= value <= high, name
        assert check_metric(name) == name
        assert metric_of(name).description != "not declared here"


def test_the_best_of_several():
    assert metric_of("i2t_r1").best([1.0, math.nan, 3.0]) == 3
    assert metric_of("i2t_meanr").best([1.0, math.nan, 3.0]) == 1
    assert math.isnan(metric_of("rsum").best([math.nan]))
    assert metric_of("i2t_medr").improves(1, 2)
    assert not metric_of("i2t_r1").improves(1, 2)


@pytest.mark.parametrize("name", ["i2t_rsum", "r1", "i2t_r0", "rsums", "pairs", "i2t_", ""])
def test_names_that_do_not_exist(name):
    with pytest.raises(InputError, match="no metric"):
        check_metric(name)
    with pytest.raises(InputError, match="Did you mean 'i2t_r1'"):
        check_metric("i2t_r1x")


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("i2t_mine", {}),
        ("Mine", {}),
        ("mine{k}", {}),
        ("mine", {"at": (1,)}),
        ("mine{k}{k}", {"at": (1,)}),
        ("mine", {"directions": False}),
        ("mrr", {}),  # is there already
    ],
)
def test_declarations_that_cannot_be(name, options):
    before = len(list(METRICS))
    with pytest.raises(InputError, match="metric"):
        metric(name, label="x", description="x", **options)(lambda positions: positions.best)
    assert len(list(METRICS)) == before


@pytest.mark.parametrize(
    "each", [lambda p: 1.0, lambda p: p.places, lambda p: np.full(len(p), np.nan)]
)
def test_a_function_that_gives_something_else_is_named(each):
    positions = Positions(np.array([0, 2, 3]), np.array([1, 4, 2]))
    wrong = Metric("mine", "mine", "", each)
    with pytest.raises(InputError, match=r"'mine'.*each of the 2 queries"):
        per_query(positions, [wrong])


def test_headlines_are_the_papers_seven():
    expected = [f"{way}_r{k}" for way in DIRECTIONS for k in (1, 5, 10)] + ["rsum"]
    assert list(headlines()) == expected


DOCUMENT = Path(__file__).parents[2] / "docs" / "own.md"
OWN = next(
    block
    for block in re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(encoding="utf-8"), re.DOTALL)
    if "@metric" in block
)
STEPS = """
import sys
from simgrad.cli.program import main

for line in sys.argv[1:]:
    try:
        main(line.split("|"))
    except SystemExit as ended:
        assert not ended.code, line
    print("=====")
"""


def test_a_metric_of_ones_own_is_everywhere(tmp_path: Path):
    """The document's example: in the list, in evaluate, in validation, in the report."""
    (tmp_path / "own.py").write_text(OWN)
    (tmp_path / "steps.py").write_text(STEPS)
    similarities = np.random.default_rng(0).normal(size=(12, 36)).astype(np.float32)
    np.save(tmp_path / "s.npy", similarities)
    run = "train|--data|scenes(train=30, val=10, test=10, features=global)|--epochs|1|--batch|32"
    run += "|--model|vse++(dimension=8, word_dimension=8)|--min-count|1|--workers|0|--device|cpu"
    run += "|--select|i2t_precision5|--output|run|--quiet"
    steps = [
        "--with|own.py|evaluate|--metrics",
        "evaluate|s.npy|--captions-per-image|3|--output|s.json",
        run,
        "report|run|--output|report.html",
        "evaluate|run|run",
    ]
    told = script(tmp_path / "steps.py", *steps, cwd=tmp_path)
    assert told.returncode == 0, told.stderr[-2000:]
    listed, evaluated, _, _, compared = told.stdout.split("=====")[:5]
    assert "i2t_precisionK, t2i_precisionK" in listed
    assert "share of the first K that are true (K = 5)" in listed
    assert "P@5" in evaluated
    written = json.loads((tmp_path / "s.json").read_text())
    order = np.argsort(-similarities, axis=1)[:, :5]
    by_hand = (order // 3 == np.arange(12)[:, None]).mean()
    assert written["i2t_precision5"] == pytest.approx(by_hand)
    low, high = written["intervals"]["i2t_precision5"]
    assert low <= by_hand <= high
    entry = json.loads((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()[0])
    assert 0 <= entry["val"]["t2i_precision5"] <= 1
    assert "t2i_precision5" in json.loads((tmp_path / "run" / "test.json").read_text())
    assert "P@5" in (tmp_path / "report.html").read_text()
    assert "i2t P@5" in compared


def test_a_description_says_how_far_down() -> None:
    assert "first 5" in metric_of("i2t_r5").description
    assert "first 10" in metric_of("t2i_map10").description
    assert not any("{k}" in entry.description for entry in METRICS)
