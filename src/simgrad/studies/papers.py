"""Published numbers, from the CSV files beside this one: one line per number, as in the papers."""

import csv
import math
from functools import cache
from importlib.resources import files
from typing import Any

from simgrad.core.errors import InputError
from simgrad.studies.plan import Row


@cache
def published_table(name: str) -> tuple[dict[str, str], ...]:
    """The lines of a published table."""
    path = files("simgrad.studies") / "published" / name
    if not path.is_file():
        known = sorted(p.name for p in (files("simgrad.studies") / "published").iterdir())
        raise InputError(f"there is no published table '{name}' (there are: {', '.join(known)}).")
    return tuple(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))


def metric_name(direction: str, metric: str) -> str:
    """Our name of a published metric: i2t, R@1 -> i2t_r1."""
    name = (
        metric.lower().replace("@", "").replace("map5", "map5_hits").replace("map10", "map10_hits")
    )
    return name if direction in ("", "both") else f"{direction}_{name}"


def published_for(published: dict[str, Any], row: Row) -> dict[str, tuple[float, float | None]]:
    """metric -> (mean, std) of the published row that belongs beside one of ours."""
    if not published.get("table") or not row.published:
        return {}
    wanted = {**published.get("where", {}), **row.published}
    found: dict[str, tuple[float, float | None]] = {}
    for line in published_table(str(published["table"])):
        if all(line.get(key) == str(value) for key, value in wanted.items()) and line["mean"]:
            std = float(line["std"]) if line["std"] else None
            found[metric_name(line["direction"], line["metric"])] = (float(line["mean"]), std)
    recalls = [f"{way}_r{k}" for way in ("i2t", "t2i") for k in (1, 5, 10)]
    if "rsum" not in found and all(name in found for name in recalls):
        found["rsum"] = (math.fsum(found[name][0] for name in recalls), None)
    return found
