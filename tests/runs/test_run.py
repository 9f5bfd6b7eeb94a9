"""What a run says of the code that made it."""

import subprocess
import sys
import tarfile
from io import BytesIO
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def commit_seen_by(source: Path) -> str:
    code = "from simgrad.runs.run import _git; print(_git())"
    told = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": str(source), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    return told.stdout.strip()


def test_an_archive_knows_its_commit_and_a_bare_copy_says_nothing(tmp_path: Path) -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("not a checkout")
    head = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.strip()
    assert commit_seen_by(ROOT / "src").rstrip("+") == head[:12]
    packed = subprocess.run(
        ["git", "archive", "HEAD", "src"], cwd=ROOT, capture_output=True, check=True
    ).stdout
    with tarfile.open(fileobj=BytesIO(packed)) as archive:
        archive.extractall(tmp_path, filter="data")
    assert commit_seen_by(tmp_path / "src") == head[:12]
    (tmp_path / "src/simgrad/commit.txt").write_text("$" + "Format:%H$\n")
    assert commit_seen_by(tmp_path / "src") == "None"
