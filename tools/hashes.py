"""Write hashes.txt: `python tools/hashes.py`, after every change of constraints.txt.

The SHA-256 of the file of each pinned version that pip takes on the machine this runs on; the list
in the repository is of Linux on x86-64 with Python 3.11. torch is left out: which of its files is
right depends on the GPU, and on the index.
"""

import json
import platform
import subprocess
import sys
import tempfile
from pathlib import Path

from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
HEAD = """\
# Of constraints.txt without torch, by tools/hashes.py: {0.system} on {0.machine}, Python {1}.
#   pip install --require-hashes --no-deps -r hashes.txt
"""


def main() -> None:
    pinned = (ROOT / "constraints.txt").read_text(encoding="utf-8").split()
    kept = [line for line in pinned if not line.startswith("torch==")]
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        options = ["--quiet", "--dry-run", "--no-deps", "--ignore-installed", "--report", report]
        subprocess.run([sys.executable, "-m", "pip", "install", *options, *kept], check=True)
        found = json.loads(report.read_text(encoding="utf-8"))["install"]
    hashes = {
        canonicalize_name(one["metadata"]["name"]): one["download_info"]["archive_info"]["hashes"]
        for one in found
    }
    lines = [
        f"{line} --hash=sha256:{hashes[canonicalize_name(line.split('==')[0])]['sha256']}"
        for line in kept
    ]
    head = HEAD.format(platform.uname(), ".".join(platform.python_version_tuple()[:2]))
    (ROOT / "hashes.txt").write_text(head + "\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
