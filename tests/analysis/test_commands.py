"""`simgrad cocos` and `simgrad diagram` on small runs, as a user would call them."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from simgrad.cli.program import main
from simgrad.data import Split
from simgrad.retriever.counting import RunBatches, count_run, count_run_by_epsilon, judged_tables
from simgrad.retriever.opening import open_folder
from simgrad.studies.settings import unlike
from simgrad.training import Recipe, train


@pytest.fixture(scope="module")
def runs(tmp_path_factory: Any) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("runs")
    common: dict[str, Any] = {
        "data": "scenes(train=30, val=10, test=10, features=global)",
        "model": "vse++(dimension=16, word_dimension=16)",
        "epochs": 1,
        "batch": 24,
        "workers": 0,
        "device": "cpu",
    }
    changes: dict[str, dict[str, Any]] = {
        "triplet": {},
        "nt-xent": {"positives": "pairs"},
        "smooth-ap": {"sampler": "images", "batch": 12},
        "goal": {},
    }
    found = {}
    for name, change in changes.items():
        recipe = Recipe(objective=name, **(common | change))
        found[name] = train(recipe, folder / name, quiet=True).path
    return found


def printed(capsys: Any, *words: Any) -> str:
    with pytest.raises(SystemExit) as stop:
        main([str(word) for word in words])
    assert stop.value.code == 0
    return str(capsys.readouterr().out)


def test_counts_of_a_run(runs: Any) -> None:
    counts = count_run(open_folder(runs["triplet"], device="cpu"))
    assert len(counts.corrected) == len(counts.released) == -(-150 // 24)
    summary = counts.corrected.summary()
    assert summary["i2t"]["C_B"][0] > 0
    assert 0 <= summary["t2i"]["false_share"][0] <= 1  # scenes know which captions are true
    # The same batch by hand.
    data = RunBatches(open_folder(runs["triplet"], device="cpu"), batches=1)
    batch = next(iter(data))
    own = batch.similarities[batch.image_of_caption, torch.arange(24)]
    violated = 0
    for caption, image in enumerate(batch.image_of_caption.tolist()):
        others = [i for i in range(len(batch.similarities)) if i != image]
        violated += sum(
            float(batch.similarities[i, caption]) > float(own[caption]) - 0.2 for i in others
        )
    assert counts.corrected.batches[0].t2i.paper["C_B"] == violated


def test_pairs_are_counted_as_published(runs: Any) -> None:
    counts = count_run(open_folder(runs["nt-xent"], device="cpu"))
    first = counts.corrected.batches[0]
    assert (first.i2t.queries, first.i2t.candidates) == (24, 24)
    assert first.i2t.paper == pytest.approx(counts.released.batches[0].i2t.paper)


@pytest.fixture
def as_published(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the drawn scenes were the paper's data, as far as settings tell."""

    def but_for_data(*told: Any) -> dict[str, str]:
        return {field: how for field, how in unlike(*told).items() if field != "data"}

    monkeypatch.setattr("simgrad.cli.tables.unlike", but_for_data)


def test_on_other_data_no_published_rows_are_shown(runs: Any, capsys: Any) -> None:
    text = printed(capsys, "cocos", runs["nt-xent"], "--device", "cpu")
    assert "paper 1" not in text
    assert "published" not in text
    assert "C-: negatives of a query that the gradient counts" in text
    released = printed(capsys, "cocos", runs["nt-xent"], "--released", "True", "--device", "cpu")
    assert "nt-xent, as published" in released


@pytest.mark.usefixtures("as_published")
def test_cocos_prints_runs_beside_the_published_rows(
    runs: Any, capsys: Any, tmp_path: Path
) -> None:
    output = tmp_path / "counts.parquet"
    text = printed(capsys, "cocos", *runs.values(), "--output", output, "--device", "cpu")
    for expected in ("paper 1.1 VSE++ F30k", "768.9±97", "636.7±19*", "as published", "goal"):
        assert expected in text
    assert all(len(line) <= 100 for line in text.splitlines() if "±" in line)
    import pyarrow.parquet as pq

    rows = pq.read_table(output).to_pylist()
    assert {row["counting"] for row in rows} == {"corrected", "released"}
    assert {row["run"] for row in rows} == {"triplet", "nt-xent", "smooth-ap", "goal"}


@pytest.mark.usefixtures("as_published")
def test_what_may_not_be_compared_is_marked(runs: Any, capsys: Any) -> None:
    """Drawn scenes are none of the paper's data, and its SmoothAP counts have no 1/tau."""
    text = printed(capsys, "cocos", runs["smooth-ap"], runs["nt-xent"], "--device", "cpu")
    lines = [line for line in text.splitlines() if "±" in line]
    papers = [line for line in lines if "paper" in line]
    assert len(papers) == 8
    assert all(line.startswith("≠ paper") for line in papers)
    assert [line.count("*") for line in papers] == [4] * 4 + [0] * 4
    assert "without the factor 1/tau" in text
    for name in ("smooth-ap", "nt-xent"):
        (told,) = [line for line in text.splitlines() if line.startswith(f"≠ {name} is")]
        assert "no published row" in told


def test_a_run_without_a_checkpoint_is_named_and_the_others_are_counted(
    runs: Any, capsys: Any, tmp_path: Path
) -> None:
    empty = tmp_path / "begun"
    shutil.copytree(runs["goal"], empty)
    shutil.rmtree(empty / "best")
    output = tmp_path / "counts.json"
    names = [str(path) for path in (empty, runs["nt-xent"])]
    with pytest.raises(SystemExit) as stop:
        main(["cocos", *names, "--device", "cpu", "--output", str(output)])
    assert stop.value.code != 0
    told = capsys.readouterr()
    assert f"not counted: {empty}: no checkpoint yet" in told.err
    assert "1 of 2 runs" in told.err
    assert "NT-Xent" in told.out
    assert {row["run"] for row in json.loads(output.read_text())} == {"nt-xent"}


def test_several_epsilon_count_as_each_alone(runs: Any) -> None:
    opened = open_folder(runs["nt-xent"], device="cpu")
    both = count_run_by_epsilon(opened, (0.001, 0.05))
    for one in both:
        alone = count_run(opened, epsilon=one.epsilon)
        assert one.rows() == alone.rows()
    assert both[0].rows() != both[1].rows()


def test_released_alone(runs: Any, capsys: Any, tmp_path: Path) -> None:
    text = printed(
        capsys, "cocos", runs["smooth-ap"], "--released", "--batches", 1,
        "--output", tmp_path / "counts.csv",
    )  # fmt: skip
    assert "smooth-ap, as published" in text
    assert "effective" not in text
    assert "C_0" in (tmp_path / "counts.csv").read_text()


def test_compare_prints_captions(runs: Any, capsys: Any, tmp_path: Path) -> None:
    output = tmp_path / "pairs.json"
    text = printed(
        capsys, "cocos", runs["goal"], "--compare", "nt-xent", "--top", 3, "--output", output
    )
    assert "first goal(triplet=cir, pair=sig-ms), second nt-xent" in text
    found = json.loads(output.read_text())[0]
    assert len(found["pairs"]) == 3
    data = RunBatches(open_folder(runs["goal"], device="cpu"), batches=1)
    captions = [data.split.captions[i] for i in data.indices[0].captions]
    assert all(captions[pair["caption"]].split()[-1] in text for pair in found["pairs"])


def test_diagram_of_a_run(runs: Any, capsys: Any, tmp_path: Path) -> None:
    picture, numbers = tmp_path / "d.svg", tmp_path / "d.json"
    text = printed(capsys, "diagram", "--run", runs["goal"], "--output", picture, "--data", numbers)
    assert str(picture) in text
    assert b"<svg" in picture.read_bytes()
    assert json.loads(numbers.read_text())[0]["objective"] == "goal(triplet=cir, pair=sig-ms)"
    printed(capsys, "diagram", "goal(pair=sig)", "--kind", "pairs", "--output", tmp_path / "p.png")
    assert (tmp_path / "p.png").stat().st_size > 1000


def test_integrability_is_printed(capsys: Any, tmp_path: Path) -> None:
    output = tmp_path / "verdicts.json"
    text = printed(
        capsys, "diagram", "nt-xent", "goal(triplet=con, pair=lin)", "--integrability",
        "--output", output,
    )  # fmt: skip
    assert "yes" in text
    assert "jump" in text
    assert [v["gradient"] for v in json.loads(output.read_text())] == [True, False]


def test_human_judgments_mark_false_negatives(tmp_path: Path) -> None:
    (tmp_path / "ExpertAnnotations.txt").write_text(
        "a.jpg\tb.jpg#0\t4\t3\t4\nb.jpg\ta.jpg#0\t1\t1\t2\n"
    )
    split = Split(
        "flickr8k", "test", ["one", "two"], np.array([0, 1]), ["a.jpg", "b.jpg"],
        caption_ids=["a.jpg#0", "b.jpg#0"],
    )  # fmt: skip
    relevant, known = judged_tables(split, tmp_path)
    assert relevant.toarray().tolist() == [[False, True], [False, False]]
    assert known.toarray().tolist() == [[False, True], [True, False]]
    assert judged_tables(split, tmp_path / "elsewhere" / "data.json") is None
