"""The papers' figures and counts, each by one command from a study folder."""

from pathlib import Path

import pytest
import torch

from simgrad.analysis.cross_drawing import cross_rank_diagram
from simgrad.cli.cocos import cocos
from simgrad.cli.diagram import diagram
from simgrad.cli.objectives import objectives
from simgrad.core.errors import InputError
from simgrad.evaluation import cross_ranks, evaluate_similarities
from simgrad.studies.ensembles import complete_ensembles
from simgrad.studies.papers import published_table
from simgrad.studies.study import Study
from simgrad.studies.worker import work
from tests.studies.test_ensembles import plan


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Study:
    study = Study.create(plan(), tmp_path_factory.mktemp("figures") / "s")
    assert work(study) == 0
    assert complete_ensembles(study, "cpu") == []
    return study


@pytest.mark.parametrize("kind", ["goal-2", "goal-3"])
def test_figures_of_goal(kind: "str", tmp_path: Path) -> None:
    diagram(kind=kind, output=tmp_path / "f.svg")  # type: ignore[arg-type]
    assert (tmp_path / "f.svg").read_text().count('<g id="axes') >= 3


def test_real_triplets_of_every_row(done: Study) -> None:
    diagram(study=done.path)
    drawn = sorted(path.name for path in (done.path / "figures").glob("triplets-*"))
    assert drawn == ["triplets-a.png", "triplets-b.png"]


@pytest.mark.parametrize("protocol", [None, "all"])
def test_cross_retrieval_ranks(done: Study, tmp_path: Path, protocol: str | None) -> None:
    path = tmp_path / "x.svg"
    diagram(kind="cross-ranks", study=done.path, protocol=protocol, output=path)
    text = path.read_text()
    assert "of 50 true pairs" in text.replace("<!-- ", "").replace(" -->", "")
    plain = text.replace("<!-- ", "").replace(" -->", "")
    assert plain.count('<g id="axes') == 2  # a panel for each group
    for label in ("one", "two", "a and b", "a twice"):
        assert label in text
    with pytest.raises(InputError, match="--study"):
        diagram(kind="cross-ranks")


def test_cross_retrieval_ranks_of_some_rows(done: Study, tmp_path: Path) -> None:
    path = tmp_path / "x.svg"
    for chosen, panels in ((("two",), 1), (("a", "a twice"), 2)):
        diagram(kind="cross-ranks", study=done.path, rows=chosen, output=path)
        assert path.read_text().count('<g id="axes') == panels
        assert "a and b" in path.read_text() if panels == 1 else "a and b" not in path.read_text()
    with pytest.raises(InputError, match=r"--rows twoo.*two"):
        diagram(kind="cross-ranks", study=done.path, rows=("twoo",), output=path)


def test_bars_are_means_over_all_seeds(tmp_path: Path) -> None:
    """Two seeds: of one all three pairs stand first, of the other one does."""
    seeds = [evaluate_similarities(S).ranks for S in (torch.eye(3), torch.eye(3).flip(0))]
    assert [int((cross_ranks(r) == 1).sum()) for r in seeds] == [3, 1]
    figure = cross_rank_diagram({"VSRN": {"online": seeds}})
    (axis,) = figure.axes
    assert axis.patches[0].get_height() == 2.0  # type: ignore[attr-defined]
    line = axis.collections[0].get_segments()[0]  # type: ignore[attr-defined]
    assert sorted(line[:, 1].tolist()) == [1.0, 3.0]  # smallest and largest seed
    assert figure.legends[0].get_title().get_text().startswith("means over seeds")
    alone = cross_rank_diagram({"VSRN": {"online": seeds[:1]}, "BFAN": {"online": seeds[1:]}})
    assert alone.legends[0].get_title().get_text() in ("", "None")
    first, second = alone.axes
    assert first.get_ylim() == second.get_ylim()  # bars of two panels can be compared


@pytest.mark.parametrize("panels", [1, 2, 4])
def test_numbers_of_bars_stay_inside(panels: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """On COCO they have five digits; the largest crossed the frame."""
    names = ("1", "2-10", "11-50", "51-100", "101-200", ">200")
    of_coco = dict.fromkeys(names, 7) | {">200": 24_965}
    monkeypatch.setattr("simgrad.analysis.cross_drawing.histogram", lambda _: of_coco)
    ranks = [evaluate_similarities(torch.eye(3)).ranks]
    rows = dict.fromkeys(("online", "off-tri", "off-quin", "adap-off-quin"), ranks)
    figure = cross_rank_diagram(dict.fromkeys("ABCD"[:panels], rows))
    figure.draw_without_rendering()
    for axis in figure.axes:
        top = axis.get_window_extent().y1
        numbers = [text for text in axis.texts if text.get_text() == "24,965"]
        assert len(numbers) == 4
        assert all(text.get_window_extent().y1 < top for text in numbers)


def test_counts_by_epsilon(done: Study, capsys: pytest.CaptureFixture[str]) -> None:
    run = str(done.path / "runs" / "b-s0")
    cocos((run,), epsilon=(0.001, 0.01, 0.05), batches=2, device="cpu")
    told = capsys.readouterr().out
    assert "by epsilon" in told
    lines = [line.split() for line in told.split("by epsilon")[1].splitlines() if "b-s0" in line]
    assert len(lines) == 2
    for line in lines:
        counts = [float(cell) for cell in line[2:5]]
        assert counts == sorted(counts, reverse=True)
        assert counts[0] > counts[-1]
    with pytest.raises(InputError, match="--epsilon"):
        cocos((run,), epsilon=(-1.0,))


def test_goals_table_1(capsys: pytest.CaptureFixture[str]) -> None:
    objectives("goal")
    told = capsys.readouterr().out
    for line in published_table("goal_table1_mapping.csv"):
        spec = f"goal(triplet={line['T']}, pair={line['P']})"
        (own,) = [text for text in told.splitlines() if text.startswith(spec)]
        word = line["loss"].lower().split()[0]
        assert word in own.lower(), own
