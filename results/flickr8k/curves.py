"""Validation rsum at every evaluation: python results/flickr8k/curves.py STUDY [STUDY ...]

One line per finished run, in curves.csv: who learnt when, who was still on a plateau. Lines of
studies that are not named stay.
"""

import sys
from typing import Any

from writing import replace_lines

from simgrad.runs.run import Run


def curve(run: Run) -> dict[str, Any]:
    return {
        "last_epoch": f"{run.history[-1]['epoch']:g}",
        "val_rsum": " ".join(f"{entry['val']['rsum']:.1f}" for entry in run.history),
    }


if __name__ == "__main__":
    replace_lines("curves.csv", sys.argv[1:], curve)
