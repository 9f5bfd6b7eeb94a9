"""Table D's histogram: python results/flickr8k/crossranks.py STUDY [STUDY ...]

How many true pairs of the test split have which cross-retrieval rank (AOQ's supplement, figure 1),
for every row of finished studies. Writes table-crossranks.md.
"""

import sys
from pathlib import Path

from writing import Rows, markdown, spread, write_md

from simgrad.evaluation import cross_ranks, histogram
from simgrad.studies.study import Study


def main() -> None:
    rows: Rows = []
    for study in map(Study.open, map(Path, sys.argv[1:])):
        for label, runs in study.groups.items():
            if not runs:
                continue
            found = [histogram(cross_ranks(run.ranks())) for run in runs]
            counts = {name: spread([one[name] for one in found], 0) for name in found[0]}
            rows.append({"study": study.path.name, "row": label, "seeds": len(found), **counts})
    write_md(
        "table-crossranks.md",
        "True pairs by cross-retrieval rank, Flickr8k's test split",
        "Of 5,000 pairs, mean ± standard deviation over seeds. The worse of a pair's two ranks, "
        "max(5 r_i - 4, r_t), as AOQ counts it.",
        markdown(rows, list(rows[0])),
    )


if __name__ == "__main__":
    main()
