"""Validation rsum at every evaluation: python results/flickr8k/curves.py STUDY [STUDY ...]

One line per finished run, in curves.csv: who learnt when, who was still on a plateau. Lines of
studies that are not named stay.
"""

import sys
from pathlib import Path

from writing import HERE, read_csv, write_csv

from simgrad.studies.study import Study


def main() -> None:
    studies = [Study.open(Path(folder)) for folder in sys.argv[1:]]
    named = {study.path.name for study in studies if any(study.groups.values())}
    rows = [row for row in read_csv(HERE / "curves.csv") if row["study"] not in named]
    rows += [
        {
            "study": study.path.name,
            "label": label,
            "seed": run.info["seed"],
            "last_epoch": f"{run.history[-1]['epoch']:g}",
            "val_rsum": " ".join(f"{entry['val']['rsum']:.1f}" for entry in run.history),
        }
        for study in studies
        for label, runs in study.groups.items()
        for run in runs
    ]
    write_csv("curves.csv", sorted(rows, key=lambda row: str(row["study"])))


if __name__ == "__main__":
    main()
