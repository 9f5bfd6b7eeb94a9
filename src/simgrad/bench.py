"""`simgrad bench`: run the benchmarks of the checkout, print one table, say what moved."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

import tyro

import simgrad
from simgrad.console import console, print_table
from simgrad.errors import InputError
from simgrad.files import read_json, write_json

# A shared machine's clock is worth no more than this: smaller changes are noise.
_MOVED = 1.5


def bench(
    only: Annotated[str | None, tyro.conf.Positional] = None,
    quick: bool = False,
    record: bool = False,
) -> None:
    """Measure speed and memory beside the peers, in one run.

    Args:
        only: run this benchmark alone, e.g. objectives; all of them if left out.
        quick: fewer sizes: a minute instead of many.
        record: keep the figures in benchmarks/recorded.json for later runs to compare with.
    """
    folder = find_benchmarks()
    rows: list[dict[str, Any]] = []
    for name, module in load_benchmarks(folder, only):
        print(f"{name} ...", file=sys.stderr, flush=True)
        rows += [{"benchmark": name, **row} for row in module.run(quick=quick)]
    show(rows)
    recorded = folder / "recorded.json"
    if recorded.exists():
        changes = moved(rows, read_json(recorded))
        print("\n" + ("\n".join(changes) or "nothing moved against the recorded figures."))
    if record:
        before = read_json(recorded) if recorded.exists() else {}
        write_json(recorded, {**before, **{key(row): figures(row) for row in rows}})
        print(f"recorded in {recorded}")


def find_benchmarks() -> Path:
    """The checkout's benchmarks: beside the package's source, or in the working folder."""
    for root in (Path(simgrad.__file__).resolve().parents[2], Path.cwd()):
        if (root / "benchmarks" / "common.py").exists():
            return root / "benchmarks"
    raise InputError(
        "the benchmarks are not installed with the package: they live in the source checkout. "
        "Run `simgrad bench` in its folder."
    )


def load_benchmarks(folder: Path, only: str | None = None) -> list[tuple[str, ModuleType]]:
    """Every file of the folder with a function `run`."""
    sys.path.insert(0, str(folder))
    found = []
    names = sorted(path.stem for path in folder.glob("*.py"))
    for name in names:
        if only is not None and name != only:
            continue
        spec = importlib.util.spec_from_file_location(f"benchmark_{name}", folder / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        if hasattr(module, "run"):
            found.append((name, module))
    if not found:
        raise InputError(f"there is no benchmark '{only}' in {folder} (files: {', '.join(names)}).")
    return found


def show(rows: list[dict[str, Any]]) -> None:
    """One table; what is missed is said again below it."""
    cells = [
        (
            row["name"],
            row["setting"],
            _seconds(row["seconds"]),
            _figure(row["peak_mib"], "{:,.0f}"),
            _figure(row["ratio"], "{:.2f}x"),
            row["goal"],
            {None: "", True: "yes", False: "NO"}[row["met"]],
        )
        for row in rows
    ]
    print_table(("what", "setting", "time", "peak MiB", "ratio", "goal", "met"), cells)
    wanted = [row for row in rows if row["met"] is not None]
    missed = [row for row in wanted if not row["met"]]
    print(f"\n{len(wanted) - len(missed)} of {len(wanted)} goals met.")
    for row in missed:
        console().print(f"missed: {row['name']}, {row['setting']}: goal {row['goal']}")


def moved(rows: list[dict[str, Any]], recorded: dict[str, Any]) -> list[str]:
    """What differs from the recorded figures by more than a shared machine's noise."""
    lines = []
    for row in rows:
        old = recorded.get(key(row))
        if old is None:
            continue
        where = f"{row['name']}, {row['setting']}"
        if old["met"] != row["met"]:
            now, then = ("met" if m else "missed" for m in (row["met"], old["met"]))
            lines.append(f"moved: {where}: goal {row['goal']} was {then}, is now {now}")
        for what, form in (("ratio", "{:.2f}x"), ("peak_mib", "{:,.0f} MiB")):
            new, before = row[what], old[what]
            if new and before and not 1 / _MOVED <= new / before <= _MOVED:
                was, now = form.format(before), form.format(new)
                lines.append(f"moved: {where}: {what} was {was}, is now {now}")
    return lines


def key(row: dict[str, Any]) -> str:
    """What identifies a row from run to run."""
    return f"{row['benchmark']} | {row['name']} | {row['setting']}"


def figures(row: dict[str, Any]) -> dict[str, Any]:
    """What is recorded of a row."""
    return {what: row[what] for what in ("seconds", "peak_mib", "ratio", "met")}


def _seconds(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.3g} s" if value >= 1 else f"{value * 1e3:.3g} ms"


def _figure(value: float | None, form: str) -> str:
    return "" if value is None else form.format(value)
