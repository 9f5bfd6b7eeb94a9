"""Bad input of more than 100 kinds: a clear message, quickly, and nothing left behind."""

import time
from pathlib import Path

import pytest

from simgrad.cli.program import main
from simgrad.core.errors import InputError
from tests.data.damages import Damage
from tests.data.damages_of_tables import DAMAGES
from tests.hardening.bad_inputs import attempts
from tests.hardening.bad_requests import REQUESTS
from tests.hardening.bad_texts import COMMANDS
from tests.hardening.jobs import run_job
from tests.hardening.memory import at_most

ATTEMPTS = attempts()
SECONDS = 5.0  # of work: on an idle machine a person waits no longer for a refusal
MEBIBYTES = 400.0  # some load torch or pyarrow first


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("finished") / "run"
    run_job().work(folder)
    return folder


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current folder."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "here"


@pytest.mark.filterwarnings("ignore:Initializing zero-element")
@pytest.mark.parametrize("name", ATTEMPTS)
def test_refused(name: str, finished: Path, place: Path, tmp_path: Path) -> None:
    started = time.process_time()
    with at_most(MEBIBYTES), pytest.raises(InputError) as caught:
        ATTEMPTS[name](tmp_path, finished)
    assert time.process_time() - started < SECONDS
    message = str(caught.value)
    assert 10 < len(message) < 800, message
    assert list(place.iterdir()) == []


@pytest.mark.parametrize("name", COMMANDS)
def test_commands_exit_with_2(name: str, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    started = time.process_time()
    with at_most(MEBIBYTES), pytest.raises(SystemExit) as left:
        main(COMMANDS[name])
    assert time.process_time() - started < SECONDS
    assert left.value.code == 2
    told = capsys.readouterr()
    assert len(told.out + told.err) > 20
    assert "Traceback" not in told.out + told.err
    assert "\0" not in told.err
    assert list(place.iterdir()) == []


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.name)
def test_damaged_data_take_little(damage: Damage, place: Path, tmp_path: Path) -> None:
    started = time.process_time()
    (tmp_path / "data").mkdir()
    with at_most(MEBIBYTES), pytest.raises(InputError):
        damage.make(tmp_path / "data")
    assert time.process_time() - started < SECONDS
    assert list(place.iterdir()) == []


def test_memory_would_be_noticed() -> None:
    with pytest.raises(AssertionError, match="MiB"), at_most(50):
        assert len(b"x" * (100 << 20)) == 100 << 20


def test_there_are_more_than_three_hundred_kinds() -> None:
    assert len(ATTEMPTS) + len(COMMANDS) + len(DAMAGES) + len(REQUESTS) > 300
