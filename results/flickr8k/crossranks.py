"""Table D's histogram: python results/flickr8k/crossranks.py STUDY [STUDY ...]

How many true pairs of the test split have which cross-retrieval rank (AOQ's supplement, figure 1):
one line per finished run in crossranks.csv, and means over seeds in table-crossranks.md. Lines of
studies that are not named stay.
"""

import sys

from writing import Rows, by_label, markdown, replace_lines, spread, write_md

from simgrad.evaluation import cross_ranks, histogram


def main() -> None:
    lines = replace_lines(
        "crossranks.csv", sys.argv[1:], lambda run: histogram(cross_ranks(run.ranks()))
    )
    intervals = [name for name in lines[0] if name not in ("study", "label", "seed")]
    rows: Rows = []
    for study, labels in by_label(lines).items():
        for label, found in labels.items():
            counts = {name: spread([int(one[name]) for one in found], 0) for name in intervals}
            rows.append({"study": study, "row": label, "seeds": len(found), **counts})
    write_md(
        "table-crossranks.md",
        "True pairs by cross-retrieval rank, Flickr8k's test split",
        "Of 5,000 pairs, mean ± standard deviation over seeds. The worse of a pair's two ranks, "
        "max(5 r_i - 4, r_t), as AOQ counts it.",
        markdown(rows, list(rows[0])),
    )


if __name__ == "__main__":
    main()
