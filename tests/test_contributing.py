"""One of one's own of each kind, from files outside: listed, trained with, in the report.

The examples are those of CONTRIBUTING.md and of the pages it names.
"""

import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from simgrad.runs.run import Run
from tests import processes

ROOT = Path(__file__).parents[1]
PAGES = {
    "soft-triplet": ("CONTRIBUTING.md", "Family"),
    "bag": ("docs/own.md", "models.declare"),
    "notes": ("docs/data.md", "@declare"),
    "precision": ("docs/own.md", "precision{k}"),
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The four files, and a folder of pictures in the layout of one of them."""
    folder = tmp_path_factory.mktemp("own")
    for name, (page, word) in PAGES.items():
        text = (ROOT / page).read_text(encoding="utf-8")
        (code,) = [b for b in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if word in b]
        (folder / f"{name}.py").write_text(code, encoding="utf-8")
    (folder / "data" / "photos").mkdir(parents=True)
    random = np.random.default_rng(0)
    lines = []
    for number in range(40):
        colour = random.integers(0, 255, 3)
        Image.new("RGB", (24, 24), tuple(map(int, colour))).save(
            folder / "data" / "photos" / f"{number}.jpg"
        )
        lines += [f"{number}.jpg\tthing {number} in colour {colour.argmax()}"]
    (folder / "data" / "notes.tsv").write_text("\n".join(lines) + "\n")
    return folder


def simgrad(place: Path, *words: str) -> str:
    """What a command prints; declarations stay in its process."""
    files = [word for name in PAGES for word in ("--with", str(place / f"{name}.py"))]
    done = processes.simgrad(*files, *words)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("objectives",), "soft-triplet"),
        (("models",), "bag"),
        (("datasets", "--layouts"), "notes"),
        (("evaluate", "--metrics"), "i2t_precisionK"),
    ],
)
def test_it_is_in_its_list(place: Path, words: tuple[str, ...], named: str) -> None:
    assert named in simgrad(place, *words)


def test_all_four_train_and_are_in_the_report(place: Path) -> None:
    run = place / "run"
    features = place / "features"
    data = str(place / "data")
    simgrad(place, "features", data, "--output", str(features), "--size", "32", "--workers", "1")
    simgrad(
        place, "train", "--output", str(run), "--data", data, "--features", str(features),
        "--model", "bag(dimension=8)", "--objective", "soft-triplet", "--epochs", "1",
        "--batch", "16", "--min-count", "1", "--device", "cpu", "--workers", "0",
    )  # fmt: skip
    simgrad(place, "report", str(run), "--output", str(place / "report.html"))
    page = (place / "report.html").read_text(encoding="utf-8")
    for word in ("soft-triplet", "bag(", "notes", "P@5"):
        assert word in page, word
    assert "i2t_precision5" in Run.open(run).test
