"""Make the pictures of README and docs anew: `python docs/pictures.py STUDY`.

STUDY is a finished study, such as `simgrad demo` leaves. Needs Chromium and its driver, and
Selenium: `apt-get install chromium chromium-driver && pip install selenium`. Pictures of kept
results (`ELSEWHERE`) are drawn by scripts of their own, which this one calls.
"""

import base64
import io
import shutil
import subprocess
import sys
import tempfile
import textwrap
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import matplotlib
from PIL import Image, ImageDraw, ImageFont
from selenium import webdriver
from selenium.webdriver.support.ui import WebDriverWait

from simgrad.analysis.drawing import save_figure, triplet_diagram
from simgrad.analysis.pair_drawing import pair_weight_diagram
from simgrad.core.files import atomic_path
from simgrad.data.scenes.captions import make_captions
from simgrad.data.scenes.dataset import FIRST
from simgrad.data.scenes.render import render
from simgrad.data.scenes.world import make_scene
from simgrad.lab.app import create_app
from simgrad.lab.lab import Lab
from simgrad.lab.server import listen, server
from simgrad.report import write_report
from simgrad.studies.study import Study

ROOT = Path(__file__).parents[1]
IMAGES = ROOT / "docs" / "images"
ELSEWHERE = (
    ("docs/builder/rooms.py",),
    ("benchmarks/scale.py", "--picture"),
    ("results/flickr8k/pictures.py",),
)
WIDTH = 1240
# Words and axes of a grey that can be read on a light page and on a dark one; no ground of its own.
GREY = "#747b85"
EITHER_GROUND = {
    **dict.fromkeys(("text.color", "axes.labelcolor", "axes.titlecolor"), GREY),
    **dict.fromkeys(("axes.edgecolor", "xtick.color", "ytick.color"), GREY),
    "savefig.transparent": True,
}
SIDE_BY_SIDE = ("nt-xent, seed 0", "triplet-sh, seed 0")


@contextmanager
def browser() -> Iterator[Any]:
    """A browser without a window, twice as sharp."""
    options = webdriver.ChromeOptions()
    options.binary_location = str(shutil.which("chromium"))
    for option in ("--headless=new", "--no-sandbox", "--hide-scrollbars", "--disable-gpu"):
        options.add_argument(option)
    made = webdriver.Chrome(options, webdriver.ChromeService(str(shutil.which("chromedriver"))))
    try:
        yield made
    finally:
        made.quit()


SCENE = 200  # pixels a side
TEXT = 92  # height of the captions below
GAP = 16


def photograph(chromium: Any, address: str, name: str, height: int, ready: str) -> None:
    """The top of a page, as soon as it is `ready`."""
    size = {"width": WIDTH, "height": height, "deviceScaleFactor": 1.5, "mobile": False}
    chromium.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    chromium.get(address)
    WebDriverWait(chromium, 60).until(lambda b: b.execute_script(f"return {ready}"))
    found = chromium.execute_cdp_cmd("Page.captureScreenshot", {"format": "png"})
    picture = Image.open(io.BytesIO(base64.b64decode(found["data"]))).convert("RGB")
    picture.quantize(256).save(IMAGES / name, optimize=True)
    print(IMAGES / name)


@contextmanager
def lab_page(study: Path) -> Iterator[tuple[str, Lab]]:
    """The lab page of a study."""
    lab, listening = Lab([study]), listen("127.0.0.1", 0)
    running = server(create_app(lab))
    thread = threading.Thread(target=running.run, args=([listening],), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}", lab
    finally:
        running.should_exit = True
        thread.join(10)


def main(study: Path) -> None:
    """All of them."""
    with browser() as chromium, tempfile.TemporaryDirectory() as folder:
        page = write_report([study], Path(folder) / "report.html", batches=1)
        photograph(chromium, page.as_uri(), "report.png", 980, "true")
        with lab_page(study) as (address, lab):
            chosen = [run for run in lab.searchable() if lab.label(run) in SIDE_BY_SIDE]
            runs = "".join(f"&run={quote(run)}" for run in chosen)
            loaded = "[...document.images].every(i => i.complete)"
            place = f"{address}/search?q={quote('a red heart')}&top=6{runs}"
            photograph(chromium, place, "lab-search.png", 900, loaded)
            drawn = "document.querySelector('#triplet svg') && document.querySelector('#counts dd')"
            photograph(chromium, f"{address}/bench", "lab-bench.png", 1020, drawn)
    with matplotlib.rc_context(EITHER_GROUND):
        for name, figure in diagrams(study).items():
            (IMAGES / name).unlink(missing_ok=True)  # of a version that did not sign them
            print(save_figure(figure, IMAGES / name))
    # The first scenes of the default world's test split. A palette is a third of the size, and the
    # eye does not see it.
    sheet = montage(list(range(FIRST["test"], FIRST["test"] + 12)))
    with atomic_path(IMAGES / "scenes.png") as temporary:
        sheet.quantize(256).save(temporary, format="PNG", optimize=True)
    for script, *options in ELSEWHERE:
        subprocess.run([sys.executable, ROOT / script, *options], check=True, cwd=ROOT)


def montage(indices: list[int], columns: int = 4) -> Image.Image:
    """Pictures of these scenes in a grid, each above the first two of its captions."""
    rows = -(-len(indices) // columns)
    cell = (SCENE + GAP, SCENE + TEXT)
    sheet = Image.new("RGB", (columns * cell[0] + GAP, rows * cell[1] + GAP), "white")
    draw = ImageDraw.Draw(sheet)
    font = ImageFont.load_default(size=12)
    for n, index in enumerate(indices):
        scene = make_scene(0, index)
        left, top = GAP + n % columns * cell[0], GAP + n // columns * cell[1]
        sheet.paste(render(scene, SCENE), (left, top))
        lines: list[str] = []
        for caption in make_captions(scene)[:2]:
            wrapped = textwrap.wrap(caption, 33)
            lines += ["· " + wrapped[0], *("   " + line for line in wrapped[1:])]
        draw.multiline_text((left, top + SCENE + 4), "\n".join(lines), "#222", font, spacing=2)
    return sheet


def diagrams(study: Path) -> dict[str, Any]:
    """Objectives as docs/analysis.md shows them, and a run of the study."""
    triplets = ["goal(triplet=con)", "goal(triplet=nca, tau=10)", "goal(triplet=cir, tau=10)"]
    pairs = [f"goal(pair={name})" for name in ("con", "lin", "sig", "lin-ms", "sig-ms")]
    four = ["goal(triplet=cir, pair=sig-ms)", "triplet-sh", "nt-xent", "smooth-ap(tau=0.1)"]
    run = next(run for run in Study.open(study).runs if run.recipe.objective == "nt-xent")
    return {
        "goal-triplet-weights.png": triplet_diagram(triplets, part="triplet"),
        "goal-pair-weights.png": pair_weight_diagram(pairs),
        "objectives.png": triplet_diagram(four),
        "run-triplets.png": triplet_diagram(run.recipe.objective, run=run.path),
    }


if __name__ == "__main__":
    main(Path(sys.argv[1]))
