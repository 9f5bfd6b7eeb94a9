"""What a run says of the code that made it."""

import subprocess
import sys
import tarfile
from io import BytesIO
from pathlib import Path

import pytest

from simgrad.runs.environment import _git

ROOT = Path(__file__).parents[2]


# Its commit, and again after nobody has filled it in.
ASKED = """
import sys
from pathlib import Path
from simgrad.runs.environment import _git
print(_git())
Path(sys.argv[1]).write_text("$" + "Format:%H$")
_git.cache_clear()
print(_git())
"""


def commits_seen_by(source: Path) -> list[str]:
    told = subprocess.run(
        [sys.executable, "-c", ASKED, source / "simgrad/commit.txt"],
        env={"PYTHONPATH": str(source), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    return told.stdout.split()


@pytest.mark.long
def test_an_archive_knows_its_commit_and_a_bare_copy_says_nothing(tmp_path: Path) -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("not a checkout")
    head = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.strip()
    _git.cache_clear()
    assert str(_git()).rstrip("+") == head[:12]
    packed = subprocess.run(
        ["git", "archive", "HEAD", "src"], cwd=ROOT, capture_output=True, check=True
    ).stdout
    with tarfile.open(fileobj=BytesIO(packed)) as archive:
        archive.extractall(tmp_path, filter="data")
    assert commits_seen_by(tmp_path / "src") == [head[:12], "None"]
