"""The report in a real browser: it draws, and the browser has nothing to complain about."""

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from simgrad.report import write_report

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser")


@pytest.mark.skipif(BROWSER is None, reason="no Chromium (Debian: apt-get install chromium)")
def test_the_browser_draws_it_without_complaint(study: Path, tmp_path: Path) -> None:
    page = write_report([study], tmp_path / "report.html", batches=1)
    shot = tmp_path / "shot.png"
    options = [
        "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking",
        "--disable-component-update", "--disable-sync", "--no-first-run", "--hide-scrollbars",
        "--enable-logging=stderr", f"--user-data-dir={tmp_path / 'profile'}",
        "--window-size=900,6000", f"--screenshot={shot}",
    ]  # fmt: skip
    done = subprocess.run(
        [str(BROWSER), *options, page.as_uri()], capture_output=True, text=True, timeout=120
    )
    assert shot.is_file(), done.stderr[-2000:]
    complaints = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    assert not complaints
    drawn = np.asarray(Image.open(shot).convert("RGB"))
    # Text alone would be greys; charts and pictures bring colours, down to the last part.
    colourful = np.ptp(drawn.astype(int), axis=2) > 60
    assert colourful[:1000].sum() > 500
    assert colourful[3000:].sum() > 5000
