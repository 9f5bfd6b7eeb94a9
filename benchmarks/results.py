"""What benchmarks found, as text: cells of the table, the record, and benchmarks/RESULTS.md.

The record, benchmarks/recorded.json, holds one entry for each kind of machine ("cpu", or the GPU's
name) and in it the rows of each benchmark; RESULTS.md is written from it alone, so running one
benchmark again replaces its rows and leaves the others.
"""

import datetime
import importlib.metadata
import os
import platform
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import simgrad
from simgrad.core.files import atomic_write, read_json, write_json

Rows = Sequence[Mapping[str, Any]]
RECORDED, RESULTS = "recorded.json", "RESULTS.md"
COLUMNS = (
    "benchmark", "what", "setting", "time", "peak MiB", "figure", "ratio", "x floor", "goal", "met",
)  # fmt: skip
_KEPT = (
    "name", "setting", "seconds", "peak_mib", "ratio", "floor", "figure", "unit", "goal", "met",
    "why",
)  # fmt: skip
# Packages that do the work of a row, where they are installed.
_PACKAGES = (
    "torch", "triton", "numpy", "transformers", "pillow", "faiss-cpu", "pytorch-metric-learning",
    "open_clip_torch", "liger-kernel", "cut-cross-entropy", "inf-cl", "memeff", "eccv_caption",
    "timm", "sentence-transformers",
)  # fmt: skip
_HEAD = """\
# Results

Written by `python -m benchmarks --record`; [README.md](README.md) says how to run it and add to it.
"ours / peer" rows hold the peer's time, and as ratio how many times faster we are. "x floor" is our
time over the least that the row's arithmetic or bytes take at the rates measured in the same run.
"""


def key(row: Mapping[str, Any]) -> str:
    """What identifies a row from run to run."""
    return f"{row['benchmark']} | {row['name']} | {row['setting']}"


def cells(row: Mapping[str, Any]) -> list[str]:
    """A row as text, one cell for each of COLUMNS."""
    seconds, floor = row.get("seconds"), row.get("floor")
    return [
        row["benchmark"],
        row["name"],
        row["setting"],
        seconds_text(seconds),
        _text(row.get("peak_mib"), "{:,.0f}"),
        _text(row.get("figure"), row.get("unit", "{:.3g}")),
        _text(row.get("ratio"), "{:.2f}x"),
        f"{seconds / floor:.2f}" if seconds and floor else "",
        row.get("goal", ""),
        {None: "", True: "yes", False: "NO"}[row.get("met")],
    ]


def seconds_text(value: float | None) -> str:
    """3.2 s, 14 ms, 120 us."""
    if value is None:
        return ""
    for unit, factor in (("s", 1.0), ("ms", 1e3)):
        if value * factor >= 1:
            return f"{value * factor:.3g} {unit}"
    return f"{value * 1e6:.0f} us"


def _text(value: float | None, form: str) -> str:
    return "" if value is None else form.format(value)


def score(rows: Rows) -> str:
    """How many goals are met."""
    wanted = [row for row in rows if row.get("met") is not None]
    return f"{sum(bool(row['met']) for row in wanted)} of {len(wanted)} goals met."


def remarks(rows: Rows) -> list[str]:
    """Missed goals and faster peers, each with what was measured and the reason, if it is known."""
    lines = []
    told: dict[str, int] = {}  # many rows share a reason: its number
    for row in rows:
        ratio = row.get("ratio")
        faster = "/" in row["name"] and ratio is not None and ratio < 0.95
        if row.get("met") is False:
            head = f"missed: {row['name']}, {row['setting']}: goal {row['goal']}"
        elif faster and row.get("met") is None:
            head = f"faster than us: {row['name']}, {row['setting']}"
        else:
            continue
        found = ", ".join(filter(None, (cells(row)[i] for i in (3, 5, 6))))
        reason, why = "", row.get("why")
        if why in told:
            reason = f" Why: see ({told[why]})"
        elif why:
            told[why] = len(told) + 1
            reason = f" Why ({told[why]}): {why}"
        lines.append(f"{head}{f'; measured {found}' if found else ''}.{reason}")
    return lines


# -- the machine


def kind_of_machine(gpu: bool) -> str:
    """`cpu`, or the GPU's name: figures are compared with those of the same kind alone."""
    if not gpu:
        return "cpu"
    import torch

    return str(torch.cuda.get_device_name(0))


def machine(gpu: bool) -> dict[str, Any]:
    """What the figures were measured on and with; nothing that tells whose machine it is."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    text = f"{_processor()}, {cores} cores, {memory:.0f} GiB"
    if gpu:
        import torch

        card = torch.cuda.get_device_properties(0)
        text = f"one {card.name}, {card.total_memory / 2**30:.0f} GiB; {text}"
    versions = {"simgrad": simgrad.__version__, "python": platform.python_version()}
    for package in _PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return {"machine": text, "cores": cores, "versions": versions}


def _processor() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    named = re.search(r"^model name\s*: (.+)$", text, re.MULTILINE)
    return named[1].strip() if named else platform.machine()


# -- the record and the page


def read(folder: Path) -> dict[str, Any]:
    """The record, by kind of machine; empty where nothing was recorded."""
    path = folder / RECORDED
    recorded: dict[str, Any] = read_json(path) if path.exists() else {}
    return recorded


def rows_of(entry: Mapping[str, Any]) -> list[dict[str, Any]]:
    """All rows recorded for a kind of machine."""
    return [
        {"benchmark": name, **row}
        for name, one in entry["benchmarks"].items()
        for row in one["rows"]
    ]


def write(
    folder: Path,
    kind: str,
    about: Mapping[str, Any],
    command: str,
    measured: Mapping[str, Mapping[str, Any]],
) -> None:
    """Record what was measured on a kind of machine, and write the page anew."""
    recorded = read(folder)
    today = datetime.date.today().isoformat()
    before = recorded.get(kind, {})
    benchmarks = dict(before.get("benchmarks", {}))
    for name, one in measured.items():
        if one["rows"]:
            kept = [{k: row.get(k) for k in _KEPT} for row in one["rows"]]
            benchmarks[name] = {
                "date": today, "command": command, "seconds": one["seconds"], "rows": kept,
            }  # fmt: skip
    # A peer that is not installed now was there when rows that stay were measured.
    versions = {**before.get("versions", {}), **about["versions"]}
    recorded[kind] = {**about, "versions": versions, "benchmarks": dict(sorted(benchmarks.items()))}
    write_json(folder / RECORDED, recorded)
    with atomic_write(folder / RESULTS) as file:
        # The CPU first, then GPUs by name.
        kinds = sorted(recorded, key=lambda name: (name != "cpu", name))
        file.write("\n".join([_HEAD, *(section(name, recorded[name]) for name in kinds)]))


def section(kind: str, entry: Mapping[str, Any]) -> str:
    """One machine's part of the page."""
    rows = rows_of(entry)
    count = {1: "One core", 2: "Two cores"}.get(entry["cores"], f"{entry['cores']} cores")
    versions = ", ".join(f"{name} {version}" for name, version in entry["versions"].items())
    lines = [f"## {count if kind == 'cpu' else f'One {kind}'}", ""]
    lines += [f"- Machine: {entry['machine']}", f"- Versions: {versions}"]
    lines += [f"- {line}" for line in _commands(entry["benchmarks"])]
    lines += [f"- {score(rows)}", ""]
    lines += [_line(COLUMNS), _line(["---"] * len(COLUMNS))]
    lines += [_line(cells(row)) for row in rows]
    told = remarks(rows)
    lines += ["", "Missed goals, and where a peer is faster:", ""] if told else []
    return "\n".join([*lines, *(f"- {line}" for line in told), ""])


def _commands(benchmarks: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Which command measured what, and when."""
    made: dict[tuple[str, str], list[str]] = {}
    for name, one in benchmarks.items():
        made.setdefault((one["command"], one["date"]), []).append(name)
    lines = []
    for (command, date), names in made.items():
        seconds = sum(benchmarks[name]["seconds"] for name in names)
        lines.append(f"`{command}` on {date}, {seconds:.0f} s: {', '.join(names)}")
    return lines


def _line(parts: Sequence[str]) -> str:
    return "| " + " | ".join(part.replace("|", "\\|") for part in parts) + " |"


def write_profile(folder: Path, name: str, kind: str, text: str) -> None:
    """Where the time goes, beside the record."""
    slug = re.sub(r"[^a-z0-9]+", "-", kind.lower()).strip("-")
    with atomic_write(folder / f"profile-{name}-{slug}.txt") as file:
        file.write(text)
