"""Results as people use them: in Python, in notebooks, in files of every kind."""

import csv
import json
import re
import sys

import numpy as np
import pytest

import simgrad
from simgrad.core.errors import InputError
from simgrad.evaluation import Comparison, compare_with, intervals
from tests.evaluation.commands import run

PAIRING = np.repeat(np.arange(30), 3)


def metrics(noise, seed=0, images=30):
    random = np.random.default_rng(seed)
    pairing = np.repeat(np.arange(images), 3)
    whole = np.eye(images)[:, pairing] + noise * random.normal(size=(images, 3 * images))
    return simgrad.evaluate_similarities(whole, pairing)


def test_metrics_print_a_table_and_have_a_short_repr():
    found = metrics(0.4)
    assert len(repr(found)) < 120
    assert f"rsum={found.rsum:.1f}" in repr(found)
    rows = {line.split("  ")[0]: line.split() for line in str(found).splitlines()}
    assert rows["R@1"][-2:] == [f"{found.i2t_r1:.1f}", f"{found.t2i_r1:.1f}"]
    assert rows["rsum"][-1] == f"{found.rsum:.1f}"
    page = found._repr_html_()
    assert page.count("<table") == 1
    assert f">{found.i2t_r1:.1f}<" in page


def test_data_frames():
    pandas = pytest.importorskip("pandas")
    one, other = metrics(0.4), metrics(0.6, 1)
    table = one.to_frame()
    assert table.loc["rsum", "value"] == one.rsum
    assert table.loc["i2t_r1", "label"] == "i2t R@1"
    gaps = simgrad.compare(one, other).to_frame()
    assert gaps.loc["rsum", "difference"] == pytest.approx(other.rsum - one.rsum)
    both = pandas.concat({"a": one.to_frame(), "b": other.to_frame()})
    assert both.loc[("b", "rsum"), "value"] == other.rsum


def test_without_pandas(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(InputError, match="needs pandas"):
        metrics(0.4).to_frame()


def test_two_results_are_compared():
    one, other = metrics(0.3), metrics(0.9, 1)
    found = simgrad.compare(one, other)
    assert isinstance(found, Comparison)
    gap = found["rsum"]
    assert gap.difference == pytest.approx(other.rsum - one.rsum)
    assert gap.low < gap.difference < gap.high < 0
    assert gap.p < 0.01
    assert repr(found).startswith("Comparison(rsum")
    assert "over images" in str(found)
    assert re.search(r"rsum +[\d.]+ +[\d.]+ +-[\d.]+ +\[", str(found))
    assert "<table" in found._repr_html_()
    assert dict(simgrad.compare(one.ranks, other.ranks)) == dict(found)


def test_lists_over_seeds_are_compared():
    first, second = ([metrics(noise, seed) for seed in (0, 1, 2)] for noise in (0.3, 0.6))
    found = simgrad.compare(first, second, names=("old", "new"))
    assert found["rsum"].first == pytest.approx(np.mean([m.rsum for m in first]))
    assert found["rsum"].p < 0.05
    assert "new - old" in str(found)
    assert "seeds (3 and 3)" in str(found)
    with pytest.raises(InputError, match="two seeds"):
        simgrad.compare(first[0], second)
    for nothing in ([], [1.0]):
        with pytest.raises(InputError, match="compare what"):
            simgrad.compare(first, nothing)


def test_the_same_queries_by_name_by_number_and_by_pairing():
    one, other = metrics(0.3), metrics(0.9, 1)
    named = simgrad.evaluate_similarities(
        np.eye(30)[:, PAIRING], PAIRING, image_ids=[f"{i}.jpg" for i in range(30)]
    )
    assert simgrad.compare(one, named)["rsum"].second == named.rsum  # rows without names
    elsewhere = simgrad.evaluate_similarities(
        np.eye(30)[:, PAIRING], PAIRING, image_ids=[f"other {i}.jpg" for i in range(30)]
    )
    with pytest.raises(InputError, match="same queries"):
        simgrad.compare(named, elsewhere)
    turned = simgrad.evaluate_similarities(np.eye(30)[:, PAIRING[::-1]], PAIRING[::-1])
    with pytest.raises(InputError, match="same queries"):
        simgrad.compare(other, turned)


def test_many_are_corrected_in_every_metric():
    systems = {name: metrics(noise, i) for i, (name, noise) in enumerate(
        {"a": 0.3, "b": 0.35, "c": 0.9}.items())}  # fmt: skip
    found = compare_with(systems, "a")
    assert set(found) == {"b", "c"}
    for name in ("rsum", "t2i_mrr"):
        p, q = (found[s][name] for s in ("b", "c"))
        assert q.p_holm == pytest.approx(min(1, 2 * q.p))
        assert p.p_holm >= p.p
    assert compare_with({"a": systems["a"], "c": systems["c"]}, "a")["c"]["rsum"].p_holm is None


@pytest.mark.parametrize("number", [1, 2, 3])
def test_output_by_suffix(files, capsys, number):
    given = [files / f"{n}.npz" for n in "abc"[:number]]
    names = ["base & line", "ours_1", "third"][:number]
    for suffix in ("json", "csv", "md", "tex", "html"):
        output = files / f"out.{suffix}"
        run(capsys, *given, "--names", *names, "--output", output)
    archive = [np.load(path) for path in given]
    expected = [simgrad.evaluate(*(a[n] for n in a.files)) for a in archive]
    written = json.loads((files / "out.json").read_text())
    systems = written["systems"] if number > 1 else {names[0]: written}
    for name, found in zip(names, expected, strict=True):
        assert systems[name]["rsum"] == pytest.approx(found.rsum)
        bounds = intervals(found.ranks)
        assert systems[name]["intervals"]["rsum"] == pytest.approx(bounds["rsum"])
    rows = list(csv.DictReader((files / "out.csv").open()))
    sums = [row for row in rows if row["metric"] == "rsum"]
    assert [float(row["value"]) for row in sums] == pytest.approx([m.rsum for m in expected])
    assert all(float(r["low"]) <= float(r["value"]) <= float(r["high"]) for r in sums)
    if number > 1:
        gap = written["comparisons"][0]["metrics"]["rsum"]
        assert gap["difference"] == pytest.approx(expected[1].rsum - expected[0].rsum)
        assert gap["low"] <= gap["difference"] <= gap["high"]
        assert float(sums[1]["difference"]) == pytest.approx(gap["difference"])
        assert float(sums[1]["p"]) == pytest.approx(gap["p"])
        assert sums[1]["against"] == names[0]
        assert (sums[1]["p_holm"] != "") == (number == 3)
    tex = r"base \& line" if number > 1 else "% base & line"  # a title is a comment
    for suffix, label in (("md", "base & line"), ("tex", tex), ("html", "base &amp;")):
        text = (files / f"out.{suffix}").read_text()
        assert label in text
        assert f"{expected[-1].rsum:.1f}" in text


def test_an_output_that_cannot_be_is_said_before_anything_is_computed(files, capsys):
    told = run(capsys, files / "a.npz", "--output", files / "out.docx", status=2)
    assert ".json, .csv, .md, .tex, .html" in told
    assert "different names" in run(capsys, files / "a.npz", "--names", "a", "b", status=2)
