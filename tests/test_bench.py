"""`python -m benchmarks`: finds benchmarks, prints one table, says what moved."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from benchmarks import results as bench_results
from benchmarks import run as bench

from simgrad.core.errors import InputError
from simgrad.core.files import read_json

BENCHMARK = """
def run(quick=False):
    return [
        dict(name="ours", setting="B=8", seconds=0.5, peak_mib=3.0, ratio=RATIO, goal=">= 2x",
             met=RATIO >= 2, why="small batches" if RATIO < 2 else "", floor=0.25),
        dict(name="ours / theirs", setting="B=8", seconds=None, peak_mib=None, ratio=None, goal="",
             met=None, figure=RATIO * 10, unit="{:.1f} images/s"),
    ]

def profile(device):
    return f"a product takes all of it on {device}"
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks" / "common.py").write_text("# helpers: no run\n")
    monkeypatch.setattr(bench, "FOLDER", tmp_path / "benchmarks")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    # Byte code of a file that is changed within a second would be taken for that of the new one.
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setattr(bench.gc, "collect", lambda: 0)  # a second each, for toys
    before = list(sys.path)
    yield tmp_path / "benchmarks"
    sys.path[:] = before


def toy(folder: Path, ratio: float, name: str = "toy") -> None:
    (folder / f"{name}.py").write_text(BENCHMARK.replace("RATIO", str(ratio)))


def test_prints_records_and_says_what_moved(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    toy(folder, 3.0)
    bench.bench(record=True)
    printed = capsys.readouterr()
    assert "3.00x" in printed.out
    assert "500 ms" in printed.out
    assert "2.00" in printed.out  # times the floor
    assert "30.0 images/s" in printed.out
    assert "1 of 1 goals met" in printed.out
    assert re.search(r"toy: \d+\.\d s", printed.err)  # how long it took
    bench.bench()
    assert "nothing moved" in capsys.readouterr().out
    toy(folder, 1.2)
    bench.bench("toy")
    out = capsys.readouterr().out
    assert "missed: ours, B=8: goal >= 2x; measured 500 ms, 1.20x. Why (1): small batches" in out
    assert "was met, is now missed" in out
    assert "ratio was 3.00x, is now 1.20x" in out
    assert "figure was 30.0 images/s, is now 12.0 images/s" in out


def test_small_changes_are_noise() -> None:
    row = {"benchmark": "b", "name": "n", "setting": "s", "ratio": 2.0, "met": None, "goal": ""}
    assert bench.moved([{**row, "ratio": 2.9}], [row]) == []
    assert len(bench.moved([{**row, "ratio": 3.1}], [row])) == 1
    assert bench.moved([{**row, "setting": "other", "ratio": 9.0}], [row]) == []


def test_each_kind_of_machine_has_a_record_and_a_section(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    toy(folder, 3.0)
    toy(folder, 1.5, "zoo")
    bench.bench(record=True)
    monkeypatch.setattr(bench_results, "kind_of_machine", lambda gpu: "Some GPU")
    toy(folder, 30.0)
    capsys.readouterr()
    bench.bench(record=True)
    assert "moved" not in capsys.readouterr().out  # nothing is recorded of this kind yet
    recorded = read_json(folder / "recorded.json")
    assert list(recorded) == ["cpu", "Some GPU"]
    ratios = [recorded[k]["benchmarks"]["toy"]["rows"][0]["ratio"] for k in recorded]
    assert ratios == [3.0, 30.0]
    page = (folder / "RESULTS.md").read_text()
    assert page.count("## ") == 2
    assert page.index("## One Some GPU") > page.index("3.00x") > 0
    assert "| toy | ours | B=8 | 500 ms | 3 |  | 3.00x | 2.00 | >= 2x | yes |" in page
    assert f"torch {torch.__version__}".split("+")[0] in page
    assert "`python -m benchmarks --record` on 20" in page
    profile = (folder / "profile-toy-some-gpu.txt").read_text()
    assert profile == "a product takes all of it on cpu"


def test_versions_of_peers_that_are_not_installed_now_stay(folder: Path) -> None:
    toy(folder, 3.0)
    bench.bench(record=True)
    about = {"machine": "m", "cores": 2, "versions": {"torch": "9", "peer": "1.2"}}
    rows = read_json(folder / "recorded.json")["cpu"]["benchmarks"]["toy"]
    bench_results.write(folder, "cpu", about, "again", {"toy": rows})
    bench_results.write(folder, "cpu", {**about, "versions": {"torch": "10"}}, "a", {"toy": rows})
    kept = read_json(folder / "recorded.json")["cpu"]["versions"]
    assert (kept["torch"], kept["peer"]) == ("10", "1.2")


def test_running_one_again_replaces_its_rows_alone(folder: Path) -> None:
    toy(folder, 3.0)
    toy(folder, 1.5, "zoo")
    bench.bench(record=True)
    toy(folder, 5.0)
    bench.bench("toy", record=True)
    page = (folder / "RESULTS.md").read_text()
    assert "5.00x" in page
    assert "3.00x" not in page
    assert "- missed: ours, B=8: goal >= 2x; measured 500 ms, 1.50x. Why (1): small batches" in page
    assert "`python -m benchmarks toy --record`" in page
    assert "1 of 2 goals met." in page


def test_nothing_tells_whose_machine_it_was(folder: Path) -> None:
    import platform

    toy(folder, 3.0)
    bench.bench(record=True)
    page = (folder / "RESULTS.md").read_text() + (folder / "recorded.json").read_text()
    assert str(folder) not in page
    assert platform.node() not in page.split()


def test_a_reason_that_rows_share_is_told_once() -> None:
    row = {"benchmark": "b", "name": "n", "setting": "s", "goal": "g", "met": False}
    reasons = ("large", "small", "large", "")
    lines = bench_results.remarks([{**row, "why": why} for why in reasons])
    ends = ["Why (1): large", "Why (2): small", "Why: see (1)", "goal g."]
    assert [line.endswith(end) for line, end in zip(lines, ends, strict=True)] == [True] * 4


def test_a_faster_peer_is_named() -> None:
    row = {"benchmark": "b", "name": "ours / theirs", "setting": "s", "ratio": 0.5, "met": None}
    assert bench_results.remarks([row]) == ["faster than us: ours / theirs, s; measured 0.50x."]
    assert bench_results.remarks([{**row, "name": "ours"}]) == []
    assert bench_results.remarks([{**row, "ratio": 1.0}]) == []


def test_a_broken_benchmark_is_a_missed_goal(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "bad.py").write_text("def run(quick=False):\n    raise ValueError('no disk')\n")
    toy(folder, 3.0)
    bench.bench()
    printed = capsys.readouterr()
    assert "3.00x" in printed.out
    assert "goal runs to its end. Why (1): it broke (ValueError)" in printed.out
    assert "no disk" in printed.err


def test_a_gpu_runs_its_own_part(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    toy(folder, 3.0)
    with pytest.raises(InputError, match="sees no GPU"):
        bench.bench(device="cuda")
    monkeypatch.setattr(bench, "_gpu", lambda device: True)
    monkeypatch.setattr(bench_results, "kind_of_machine", lambda gpu: "Some GPU")
    with pytest.raises(InputError, match="no part for a GPU"):
        bench.bench("toy")
    text = BENCHMARK.replace("RATIO", "7.0").replace("def run(", "def run_cuda(")
    (folder / "toy.py").write_text(text + "\ndef run(quick=False):\n    return []\n")
    bench.bench("toy")
    assert "7.00x" in capsys.readouterr().out
