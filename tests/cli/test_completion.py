"""What a shell offers at Tab, asked of a real bash."""

import shutil
import subprocess
from pathlib import Path

import pytest

from simgrad.cli.completion import script
from simgrad.cli.program import COMMANDS


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("bash") is None:
        pytest.skip("there is no bash")
    path = tmp_path_factory.mktemp("completion") / "simgrad"
    path.write_text(script(COMMANDS))
    return path


def offered(written: Path, *words: str) -> list[str]:
    """What bash offers for the last word."""
    line = (
        f'source "{written}"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _simgrad;'
        ' printf "%s\\n" "${COMPREPLY[@]}"'
    )
    found = subprocess.run(
        ["bash", "--norc", "-c", line, "bash", "-", "simgrad", *words],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert found.stderr == ""
    return found.stdout.split()


def test_commands_options_and_values_are_offered(written: Path) -> None:
    assert offered(written, "") == [*COMMANDS, "--with", "--help", "--version"]
    assert offered(written, "ch") == ["choose"]
    assert offered(written, "choose", "photos", "--min") == ["--minutes"]
    assert offered(written, "--with", "mine.py", "train", "--object") == ["--objective"]
    assert offered(written, "study", "--engine", "") == ["local", "ray"]
    assert offered(written, "search", "--js") == ["--json"]
    assert offered(written, "search", "runs/x", "dog") == []  # then files, by bash itself
