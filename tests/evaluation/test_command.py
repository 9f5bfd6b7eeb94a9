"""`simgrad evaluate` as a person types it."""

import json

import numpy as np
import pytest
import torch

import simgrad
from simgrad.cli.program import main
from simgrad.evaluation import Ranks
from simgrad.evaluation.scores import Matrix
from simgrad.models.base import Reranker
from simgrad.retriever.retriever import Retriever
from simgrad.retriever.similarities import Similarities
from tests.evaluation.commands import ask, run


def test_embeddings(files, capsys):
    table, ranks = files / "m.json", files / "r.parquet"
    printed = run(capsys, files / "a.npz", "--recalls", "3", "--output", table, "--ranks", ranks)
    assert "protocol all: all 40 images and 200 captions." in printed
    assert "R@3" in printed
    assert printed.index("rsum") < printed.index("R@1")  # what everybody looks for
    assert "cross-retrieval rank" in printed
    archive = np.load(files / "a.npz")
    expected = simgrad.evaluate(*(archive[n] for n in archive.files), recalls=(3,))
    written = json.loads(table.read_text())
    assert {n: written[n] for n in expected.to_dict()} == pytest.approx(expected.to_dict())
    assert written["intervals"]["rsum"][0] < expected.rsum < written["intervals"]["rsum"][1]
    line = next(line.split() for line in printed.splitlines() if line.startswith("rsum"))
    assert line[1] == f"{expected.rsum:.1f}"
    assert np.array_equal(Ranks.load(ranks).t2i, expected.ranks.t2i)
    assert "ranks kept" in run(capsys, ranks)


def test_what_was_computed_is_seen_where_it_cannot_be_written(files, tmp_path, capsys):
    (tmp_path / "notes.csv").write_text("mine")
    with pytest.raises(SystemExit):
        main(["evaluate", str(files / "a.npz"), "--output", str(tmp_path / "notes.csv")])
    told = capsys.readouterr()
    assert "rsum" in told.out
    assert "another kind of file" in told.err


def test_similarities(files, capsys):
    same = run(capsys, files / "a.npy", "--captions-per-image", 5)
    assert same == run(capsys, files / "a.npz").replace("a.npz", "a.npy")


def test_two_systems(files, capsys):
    printed = run(capsys, files / "a.npz", files / "b.npz")
    line = next(line for line in printed.splitlines() if line.startswith("rsum"))
    assert "<0.001" in line
    assert "-" in line
    assert "over images, paired" in printed
    printed = run(capsys, files / "a.npz", files / "c.npz")
    line = next(line for line in printed.splitlines() if line.startswith("rsum"))
    assert float(line.split()[-1]) > 0.01


def test_three_systems_and_seeds(files, capsys):
    a, b, c = (files / f"{n}.npz" for n in "abc")
    assert "p (Holm)" in run(capsys, a, b, c)
    printed = run(capsys, f"{a},{c}", f"{b},{b}")
    assert "over seeds" in printed
    assert "mean of 2 seeds" in run(capsys, f"{a},{c}")


def test_an_ensemble(files, capsys):
    output = files / "m.json"
    run(capsys, files / "a.npz", files / "c.npz", "--ensemble", "True", "--output", output)
    mean = (np.load(files / "a.npy") + np.load(files / "c.npy")) / 2
    expected = simgrad.evaluate_similarities(mean, np.repeat(np.arange(40), 5))
    assert json.loads(output.read_text())["rsum"] == pytest.approx(expected.rsum)


def test_reranking_by_a_second_scorer(files, capsys, monkeypatch):
    """A run of a model with one, stood in for by its similarities."""
    whole = torch.from_numpy(np.load(files / "a.npy"))
    other = torch.from_numpy(np.load(files / "c.npy"))
    split = simgrad.open(files / "a.npy", captions_per_image=5).similarities().split
    reranker = Reranker(lambda pairs: other[pairs[:, 0], pairs[:, 1]], 200)
    given = Similarities("x-vlm", Matrix(whole), split, reranker)
    system = Retriever("x-vlm", torch.device("cpu"), given=given)
    monkeypatch.setattr("simgrad.cli.evaluate.open", lambda *a, **k: system)
    output = files / "m.json"
    run(capsys, "RUN", "--rerank", 0, "--output", output)
    expected = simgrad.evaluate_similarities(other, np.repeat(np.arange(40), 5))
    assert json.loads(output.read_text())["rsum"] == pytest.approx(expected.rsum)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["absent"], "no such run, checkpoint or file"),
        (["a.npy"], "--captions-per-image (5 here"),
        (["a.npy", "--captions-per-image", "4"], "40 images with 4 captions each would be 160"),
        (["a.npz", "--protocol", "coco-1k"], "coco-1k is defined for 5,000"),
        (["a.npz", "--protocol", "coco"], "no protocol 'coco'"),
        (["a.npz", "--coco", "True"], "COCO's image and caption ids"),
        (["a.npz", "--judgments", "."], "--judgments needs a run"),
        (["a.npz", "--truth", "True"], "--truth needs a run"),
        (["a.npz", "--rerank", "5"], "no second scorer"),
        (["bad.npz"], "not a readable .npz"),
        (["half.npz"], "needs the arrays 'images' and 'texts'"),
        (["note.txt"], "give the folder of a run"),
        ([], "evaluate what?"),
    ],
)
def test_mistakes(files, capsys, monkeypatch, arguments, message):
    (files / "bad.npz").write_text("nothing")
    (files / "note.txt").write_text("nothing")
    np.savez(files / "half.npz", images=np.eye(3))
    monkeypatch.chdir(files)
    assert message in run(capsys, *arguments, status=2)


def test_the_file_that_is_wrong_is_named(files, capsys):
    with np.load(files / "a.npz") as kept:
        arrays = dict(kept)
    arrays["texts"] = arrays["texts"].copy()
    arrays["texts"][3] = np.nan
    bad = files / "bad.npz"
    np.savez(bad, **arrays)
    for name in ("images", "texts"):
        np.save(files / f"{name}-3.npy", arrays[name])
    given = files / "a.npz", bad
    assert f"simgrad: {bad}: texts, row 3: the vector has NaN" in run(capsys, *given, status=2)
    pair = files / "images-3.npy", files / "texts-3.npy"
    both = ("--images", pair[0], "--texts", pair[1])
    assert f"simgrad: {pair[0]} + {pair[1]}: texts, row 3" in run(capsys, *both, status=2)
    np.savez(bad, **{**arrays, "texts": arrays["images"][[0]].repeat(2, 0)})
    assert f"simgrad: {bad}: image_of_caption has " in run(capsys, *given, status=2)
    scores = np.zeros((2, 2))
    scores[1, 1] = np.nan
    np.savez(bad, similarities=scores)
    assert f"simgrad: {bad}: the similarity of image 1" in run(capsys, *given, status=2)


def test_a_folder_of_runs_is_told_from_nothing(files, capsys):
    for name in ("one", "two"):
        (files / "study" / "runs" / name).mkdir(parents=True)
        (files / "study" / "runs" / name / "recipe.yaml").write_text("{}")
    study = files / "study"
    assert "none of its 2 runs is finished" in run(capsys, study, status=2)
    (study / "model").mkdir()
    (study / "model" / "recipe.yaml").write_text("{}")
    assert f"{study / 'model'}: no checkpoint yet" in run(capsys, study, status=2)


def test_mining_names_no_more_images_than_there_are(files, capsys):
    told = ask(capsys, "mine", files / "a.npz", "--output", files / "mined", "--depth", 100)
    assert "among the first 39." in told


def test_kept_ranks_cannot_be_ranked_anew(files, capsys):
    ranks = files / "r.parquet"
    run(capsys, files / "a.npz", "--ranks", ranks)
    assert "cannot be ranked again" in run(capsys, ranks, "--protocol", "coco-5k", status=2)
    assert "no similarities" in run(capsys, ranks, "--ensemble", "True", status=2)


def test_names_of_files_never_steer_the_terminal(files, capsys):
    """Neither as markup nor as escape sequences, whether it works or not."""
    hostile = files / "a[/b]\x1b[31m\x07.npz"
    hostile.parent.mkdir()  # a slash makes a folder "a[" of it
    hostile.write_bytes((files / "a.npz").read_bytes())
    for printed in (
        run(capsys, hostile),
        run(capsys, hostile, files / "b.npz"),
        run(capsys, files / "no[/b]\x1b[31m", status=2),
    ):
        assert "[/b]" in printed
        assert printed.replace("\n", "").isprintable()
