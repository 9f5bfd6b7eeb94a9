"""Record docs/images/moving.svg: `python docs/moving.py FOLDER [--minutes N]`.

Drawn pictures with captions are written to FOLDER/photos, and real commands are typed into a real
terminal there: `choose`, then `search`; then the lab page's bench is opened, with a batch of the
model that was chosen. What stood on the screen becomes frames of one picture that needs no script
and no network. A change of the screen is shown for a moment, however long it lasted; the times that
the commands print are those they took.

Needs tmux, and what docs/pictures.py needs.
"""

import argparse
import base64
import html
import io
import json
import shlex
import subprocess
import sys
import time
from pathlib import Path

from pictures import browser, lab_page
from PIL import Image
from selenium.webdriver.support.ui import WebDriverWait

import simgrad

TARGET = Path(__file__).parent / "images" / "moving.svg"
PICTURES, COLUMNS, LINES = 500, 80, 24
CHOOSE = "simgrad choose photos/ --minutes {minutes:g}"
SEARCH = 'simgrad search choose/photos "a red heart on a lawn" --top 5'
SERVE = "simgrad serve choose/photos   # what does each objective do to a batch?"
BENCH = (
    *(("nt-xent", {"tau": tau}) for tau in ("0.5", "0.2", "0.1", "0.05", "0.02")),
    ("triplet", {}),
    ("triplet-sh", {}),
    ("goal", {"triplet": "cir", "pair": "sig-ms"}),
)
SET = """
const put = (one, value) => { one.value = value; one.dispatchEvent(new Event("input")); };
document.getElementById("objective").value = arguments[0];
choose();
for (const [name, value] of Object.entries(arguments[1]))
  put(document.getElementById(`p-${name}`), value);
"""
SHOWN, LAST, FRAMES = 1.1, 5.0, 30  # seconds of a frame and of an answer; frames of a command
PAGE = 1.6  # seconds of a page
WIDTH, HEIGHT, EDGE = 8.4, 17, 14  # of a letter, of a line, around


def write_photos(folder: Path, count: int = PICTURES) -> None:
    """Drawn pictures as anybody would have them: files, and captions.txt beside them."""
    folder.mkdir(parents=True, exist_ok=True)
    split = simgrad.data.open_dataset(f"scenes(train={count}, val=1, test=1)").split("train")
    lines = ["image,caption"]
    for row in range(count):
        split.pictures.picture(row).save(folder / f"{row:04d}.png")
        lines += [f'{row:04d}.png,"{split.captions[int(c)]}"' for c in split.captions_of(row)]
    (folder / "captions.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


def record(command: str, folder: Path) -> list[str]:
    """The screens of a command, from the first to the last, each once; kept in the folder."""
    kept = folder / f"{command.split()[1]}.json"
    if kept.is_file():
        return list(json.loads(kept.read_text(encoding="utf-8")))
    tmux = ["tmux", "-L", "moving"]
    there = shlex.join([sys.executable, "-m", "simgrad.cli", *shlex.split(command)[1:]])
    shell = f"cd {shlex.quote(str(folder))}; clear; {there}; tmux -L moving wait -S over; sleep 9"
    size = ["-x", str(COLUMNS), "-y", str(LINES)]
    subprocess.run([*tmux, "new-session", "-d", *size, shell], check=True)
    waiting = subprocess.Popen([*tmux, "wait", "over"])
    screens: list[str] = []
    try:
        while True:
            over = waiting.poll() is not None
            shown = subprocess.run(
                [*tmux, "capture-pane", "-p"], check=True, capture_output=True, text=True
            ).stdout.rstrip()
            if shown and shown not in screens[-1:]:
                screens.append(shown)
            if over:
                kept.write_text(json.dumps(screens), encoding="utf-8")
                return screens
            time.sleep(0.5)
    finally:
        waiting.kill()
        subprocess.run([*tmux, "kill-server"], check=False)


def few(screens: list[str], most: int = FRAMES) -> list[str]:
    """So many of them, evenly, the last one included."""
    places = {round(i * (len(screens) - 1) / (most - 1)) for i in range(most)}
    return [screens[i] for i in sorted(places)] if len(screens) > most else screens


def bench(folder: Path) -> list[tuple[str, str]]:
    """The bench at each of these settings: a line above it, and a picture, base64."""
    shown = []
    size = {"width": 1000, "height": 556, "deviceScaleFactor": 1, "mobile": False}
    with browser() as chromium, lab_page(folder) as (address, _):
        media = {"features": [{"name": "prefers-color-scheme", "value": "dark"}]}
        chromium.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
        chromium.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        chromium.get(f"{address}/bench")
        chromium.execute_script("document.querySelector('.controls').scrollIntoView()")
        for objective, parameters in BENCH:
            chromium.execute_script(SET, objective, parameters)
            done = "return !running && !!document.querySelector('#triplet svg')"
            WebDriverWait(chromium, 120).until(lambda one, done=done: one.execute_script(done))
            taken = chromium.execute_cdp_cmd("Page.captureScreenshot", {"format": "png"})
            picture = Image.open(io.BytesIO(base64.b64decode(taken["data"]))).convert("RGB")
            file = io.BytesIO()
            picture.quantize(128, dither=Image.Dither.NONE).save(file, "PNG", optimize=True)
            shown.append((f"$ {SERVE}", base64.b64encode(file.getvalue()).decode()))
    return shown


def drawn(scenes: list[tuple[str, list[str]]], pages: list[tuple[str, str]]) -> str:
    """The moving picture; who wants nothing to move sees the last frame of the terminal."""
    frames: list[tuple[str, float, str]] = []
    for command, screens in scenes:
        kept = [f"$ {command}", *(f"$ {command}\n{screen}" for screen in few(screens))]
        frames += [(text, SHOWN, "") for text in kept[:-1]] + [(kept[-1], LAST, "")]
    still = len(frames) - 1
    frames += [(text, PAGE, page) for text, page in pages]
    width, height = 2 * EDGE + WIDTH * COLUMNS, 2 * EDGE + HEIGHT * (LINES + 1)
    total, at, parts, rules = sum(t for _, t, _ in frames), 0.0, [], []
    for number, (text, seconds, page) in enumerate(frames):
        begin, end = 100 * at / total, 100 * (at + seconds) / total
        at += seconds
        rules.append(
            f"@keyframes f{number}{{0%,{begin:.3f}%{{opacity:0}}{begin + 0.001:.3f}%,"
            f"{end - 0.001:.3f}%{{opacity:1}}{end:.3f}%,100%{{opacity:0}}}}"
            f"#f{number}{{animation:f{number} {total:.1f}s infinite step-end}}"
        )
        lines = "".join(
            f'<tspan x="{EDGE}" y="{EDGE + (place + 1) * HEIGHT}">{html.escape(line)}</tspan>'
            for place, line in enumerate(text.splitlines()[-LINES - 1 :])
        )
        top = 2 * EDGE + HEIGHT
        image = page and (
            f'<image x="{EDGE}" y="{top}" width="{width - 2 * EDGE:.0f}" '
            f'height="{height - top - EDGE:.0f}" href="data:image/png;base64,{page}"/>'
        )
        parts.append(f'<g id="f{number}" opacity="0"><text>{lines}</text>{image}</g>')
    said = html.escape("; then ".join([command for command, _ in scenes] + [SERVE] * bool(pages)))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" '
        f'role="img"><title>A terminal: {said}</title><style>text{{font:14px ui-monospace,'
        f"Menlo,Consolas,monospace;fill:#d7dce2;white-space:pre}}{''.join(rules)}"
        f"@media(prefers-reduced-motion:reduce){{g{{animation:none!important}}"
        f"#f{still}{{opacity:1}}}}</style>"
        f'<rect width="100%" height="100%" rx="8" fill="#15191e"/>{"".join(parts)}</svg>\n'
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--minutes", type=float, default=10.0)
    given = parser.parse_args()
    write_photos(given.folder / "photos")
    commands = [CHOOSE.format(minutes=given.minutes), SEARCH]
    scenes = [(command, record(command, given.folder)) for command in commands]
    pages = bench(given.folder / "choose" / "photos")
    TARGET.write_text(drawn(scenes, pages), encoding="utf-8")
    print(f"wrote {TARGET}")


if __name__ == "__main__":
    main()
