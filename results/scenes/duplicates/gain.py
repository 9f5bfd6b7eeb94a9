"""How much the lead over triplet-sh grows with copies: python results/scenes/duplicates/gain.py

From the means and standard deviations of table.csv; 95 %, over seeds only.
"""

import csv
import math
from pathlib import Path

BASE = "triplet-sh"


def main() -> None:
    with open(Path(__file__).parent / "table.csv", newline="") as file:
        lines = [line for line in csv.DictReader(file) if line["metric"] == "rsum"]
    found = {line["label"]: (float(line["mean"]), float(line["std"]) ** 2 / 5) for line in lines}
    rows = dict.fromkeys(label.rpartition(", ")[0] for label in found)
    for row in rows:
        kept = found[f"{row}, 60"][0] / found[f"{row}, 0"][0]
        print(f"{row}: keeps {100 * kept:.0f} % with 60 % copies")
        for share in (30, 60):
            parts = [found[f"{one}, {n}"] for one in (row, BASE) for n in (share, 0)]
            signs = (1, -1, -1, 1)
            growth = sum(sign * part[0] for sign, part in zip(signs, parts, strict=True))
            reach = 1.96 * math.sqrt(sum(part[1] for part in parts))
            if row != BASE:
                print(f"  {share} %: grows by {growth:.0f} ± {reach:.0f}")


if __name__ == "__main__":
    main()
