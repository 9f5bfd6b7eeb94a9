"""Record docs/images/moving.svg: `python docs/moving.py FOLDER [--minutes N]`. Needs tmux.

Drawn pictures with captions are written to FOLDER/photos, and real commands are typed into a real
terminal there: `choose`, then `search`. What stood on the screen becomes frames of one picture
that needs no script and no network. A change of the screen is shown for a moment, however long it
lasted; the times that the commands print are those they took.
"""

import argparse
import html
import shlex
import subprocess
import sys
import time
from pathlib import Path

import simgrad

TARGET = Path(__file__).parent / "images" / "moving.svg"
PICTURES, COLUMNS, LINES = 500, 80, 24
CHOOSE = "simgrad choose photos/ --minutes {minutes:g}"
SEARCH = 'simgrad search choose/photos "a red heart on a lawn" --top 5'
SHOWN, LAST, FRAMES = 1.1, 5.0, 30  # seconds of a frame and of an answer; frames of a command
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
    """The screens of a command, from the first to the last, each once."""
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
                return screens
            time.sleep(0.5)
    finally:
        waiting.kill()
        subprocess.run([*tmux, "kill-server"], check=False)


def few(screens: list[str], most: int = FRAMES) -> list[str]:
    """So many of them, evenly, the last one included."""
    places = {round(i * (len(screens) - 1) / (most - 1)) for i in range(most)}
    return [screens[i] for i in sorted(places)] if len(screens) > most else screens


def drawn(scenes: list[tuple[str, list[str]]]) -> str:
    """The moving picture; who wants nothing to move sees the last frame."""
    frames: list[tuple[str, float]] = []
    for command, screens in scenes:
        kept = [f"$ {command}", *(f"$ {command}\n{screen}" for screen in few(screens))]
        frames += [(text, SHOWN) for text in kept[:-1]] + [(kept[-1], LAST)]
    total, at, parts, rules = sum(t for _, t in frames), 0.0, [], []
    for number, (text, seconds) in enumerate(frames):
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
        parts.append(f'<text id="f{number}" opacity="0">{lines}</text>')
    width, height = 2 * EDGE + WIDTH * COLUMNS, 2 * EDGE + HEIGHT * (LINES + 1)
    said = html.escape("; then ".join(command for command, _ in scenes))
    last = len(frames) - 1
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" '
        f'role="img"><title>A terminal: {said}</title><style>text{{font:14px ui-monospace,'
        f"Menlo,Consolas,monospace;fill:#d7dce2;white-space:pre}}{''.join(rules)}"
        f"@media(prefers-reduced-motion:reduce){{text{{animation:none!important}}"
        f"#f{last}{{opacity:1}}}}</style>"
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
    TARGET.write_text(drawn(scenes), encoding="utf-8")
    print(f"wrote {TARGET}")


if __name__ == "__main__":
    main()
