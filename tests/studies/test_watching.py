"""What a person sees of a study at work, read from its folder."""

import io
from pathlib import Path

import pytest
from rich.console import Console
from rich.live import Live

from simgrad.runs.run import Run, write_info
from simgrad.studies import watching
from simgrad.studies.study import Study
from simgrad.studies.watching import Screen, StudyLog, StudyProgress, show, watch
from tests.studies.small_study import plan


@pytest.fixture
def half_done(tmp_path: Path) -> Study:
    """Of triplet one setting is trained, one has diverged, one is under way."""
    study = Study.create(plan(), tmp_path / "study")
    for number, told in enumerate(
        (
            {"status": "finished", "best": {"rsum": 120.5}},
            {"status": "failed", "diverged": True},
            {"status": "running"},
        )
    ):
        folder = study.path / "trials" / f"triplet-t{number:03d}"
        folder.mkdir(parents=True)
        write_info(folder, told)
    (folder / "metrics.jsonl").write_text('{"epoch": 1.0, "step": 2, "loss": 1.0, "val": {}}\n')
    return study


def test_settings_and_scores_are_counted_for_each_row(half_done: Study) -> None:
    progress = StudyProgress(half_done)
    triplet, other = progress.rows["triplet"], progress.rows["nt-xent"]
    assert (triplet.tried, triplet.to_try, triplet.best) == (2, 3, 120.5)
    assert (other.tried, other.to_try, other.best) == (0, 3, None)
    assert (triplet.tested, triplet.to_test) == (0, 2)
    assert (progress.total, progress.done) == (10, 2.5)  # of the third, one of two epochs


def test_time_left_follows_from_what_was_done_since_it_began(
    half_done: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = 100.0
    monkeypatch.setattr(watching.time, "monotonic", lambda: clock)
    progress = StudyProgress(half_done)
    assert progress.seconds_left is None
    assert progress.summary() == "2 of 10 trainings"
    write_info(half_done.path / "trials" / "triplet-t002", {"status": "finished"})
    clock = 160.0
    progress.look()  # half a training in a minute: seven more
    assert progress.seconds_left == pytest.approx(14 * 60)
    assert progress.summary() == "3 of 10 trainings, about 14 min left"


@pytest.mark.parametrize("width", [80, 40])
def test_the_screen_fits_a_terminal(half_done: Study, width: int) -> None:
    out = io.StringIO()
    with Live(console=Console(file=out, width=width, height=24), auto_refresh=False) as live:
        show(StudyProgress(half_done), Screen(live))
    lines = out.getvalue().splitlines()
    assert all(len(line) <= width for line in lines)
    assert next(line for line in lines if line.startswith("triplet")).split() == [
        "triplet", "2", "of", "3", "120.5", "0", "of", "2",
    ]  # fmt: skip
    assert any("best rsum" in line for line in lines)
    assert any(line.split() == ["settings", "on", "val", "tests"] for line in lines)


def test_a_log_has_a_line_now_and_then(
    half_done: Study, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    log = StudyLog(StudyProgress(half_done))
    log.tell()
    assert capsys.readouterr().err == ""  # nothing is new, and it has only begun
    monkeypatch.setattr(watching, "SECONDS_BETWEEN_LINES", 0.0)
    log.tell()
    assert capsys.readouterr().err == "2 of 10 trainings; best rsum on val: triplet 120.5\n"


def test_quiet_is_silent_and_waits(half_done: Study, capsys: pytest.CaptureFixture[str]) -> None:
    answers = iter([True, False])
    monkey = pytest.MonkeyPatch()
    with monkey.context() as patched:
        patched.setattr(watching, "_PAUSE", 0.0)
        watch(half_done, lambda: next(answers), quiet=True)
    assert next(answers, None) is None
    assert capsys.readouterr() == ("", "")
    assert not Run(half_done.path / "trials" / "triplet-t002").finished
