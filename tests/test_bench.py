"""`simgrad bench`: finds benchmarks, prints one table, says what moved."""

from pathlib import Path

import pytest

from simgrad import bench
from simgrad.errors import InputError

BENCHMARK = """
def run(quick=False):
    return [
        dict(name="ours", setting="B=8", seconds=0.5, peak_mib=3.0, ratio=RATIO, goal=">= 2x",
             met=RATIO >= 2),
        dict(name="theirs", setting="B=8", seconds=None, peak_mib=None, ratio=None, goal="",
             met=None),
    ]
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks" / "common.py").write_text("# helpers: no run\n")
    monkeypatch.setattr(bench, "find_benchmarks", lambda: tmp_path / "benchmarks")
    return tmp_path / "benchmarks"


def test_prints_records_and_says_what_moved(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "toy.py").write_text(BENCHMARK.replace("RATIO", "3.0"))
    bench.bench(record=True)
    out = capsys.readouterr().out
    assert "3.00x" in out
    assert "500 ms" in out
    assert "1 of 1 goals met" in out
    bench.bench()
    assert "nothing moved" in capsys.readouterr().out
    (folder / "toy.py").write_text(BENCHMARK.replace("RATIO", "1.2"))
    bench.bench(only="toy")
    out = capsys.readouterr().out
    assert "missed: ours" in out
    assert "was met, is now missed" in out
    assert "ratio was 3.00x, is now 1.20x" in out


def test_an_unknown_benchmark_and_a_package_without_checkout(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InputError, match="no benchmark 'speeed'"):
        bench.bench(only="speeed")
    monkeypatch.undo()
    empty = tmp_path / "empty"
    empty.mkdir()
    monkeypatch.setattr(bench.simgrad, "__file__", str(empty / "a" / "b" / "simgrad.py"))
    monkeypatch.chdir(empty)
    with pytest.raises(InputError, match="source checkout"):
        bench.find_benchmarks()


def test_the_checkouts_benchmarks_are_found() -> None:
    folder = Path(__file__).parents[1] / "benchmarks"
    if not folder.exists():
        pytest.skip("not a source checkout")
    assert bench.find_benchmarks() == folder
    assert "objectives" in [name for name, _ in bench.load_benchmarks(folder, "objectives")]
