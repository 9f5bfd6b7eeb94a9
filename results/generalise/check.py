"""Every number of these pages again, from what is kept: `python results/generalise/check.py`.

runs.csv from the ranks of all tests; from that verdicts.md, by analyse.py as it was registered;
settings.md from the searches; minutes.md from the study files. Then each decimal number and each
count (76 of 76) of README.md is looked for among them. What differs is named. Half a minute.
"""

import csv
import io
import re
import sys
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]
import minutes  # noqa: E402
from analyse import page as verdicts  # noqa: E402
from analyse import read  # noqa: E402
from collect import PARTS, collect  # noqa: E402
from settings import page as settings  # noqa: E402

GIVEN = {"3 of 5"}  # in README.md, what was registered: no result


def runs_csv(folder: Path) -> str:
    """From the kept ranks."""
    lines = [line for part in PARTS for line in collect(folder / part)]
    text = io.StringIO()
    writer = csv.DictWriter(text, lines[0].keys(), lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return text.getvalue()


def pages(folder: Path) -> Iterator[tuple[str, str]]:
    """Each file with what it must be."""
    yield "runs.csv", runs_csv(folder)
    yield "verdicts.md", verdicts(read(folder / "runs.csv"))
    yield "settings.md", settings(folder)
    yield "minutes.md", minutes.page(folder)


def nowhere(text: str, known: set[str]) -> list[str]:
    """Numbers and counts of a page that are not among those that were computed."""
    text = " ".join(re.sub(r"\]\([^)]*\)", "]", text).split())
    found = re.findall(r"(?<![\d.])\d+\.\d+|(?<![\d.])\d+ of \d+", text)
    return [one for one in found if one not in known | GIVEN]


def main(folder: Path = HERE) -> None:
    wrong, known, numbers = [], set(), 0
    for name, made in pages(folder):
        if (folder / name).read_text() != made:
            wrong.append(f"{name}: is not what the kept files give")
        numbers += len(re.findall(r"\d+\.?\d*", made))
        known |= set(re.findall(r"\d+\.\d+|\d+ of \d+", made))
    wrong += [
        f"README.md: {one} is nowhere in what was computed"
        for one in nowhere((folder / "README.md").read_text(), known)
    ]
    print("\n".join(wrong) or f"{numbers:,} numbers computed again: all the same.")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
