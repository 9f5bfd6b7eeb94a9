"""`python -m benchmarks`: run the benchmarks of the checkout, print one table, say what moved."""

import gc
import importlib.util
import sys
import time
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

from benchmarks import results
from benchmarks.results import COLUMNS, Rows, cells, key, remarks
from simgrad.core.console import console, print_table
from simgrad.core.errors import InputError

# A shared machine's clock is worth no more than this: smaller changes are noise.
_MOVED = 1.5
FOLDER = Path(__file__).parent
_RUNNER = ("__init__", "__main__", "run", "results")
_FORMS = (("ratio", "{:.2f}x"), ("peak_mib", "{:,.0f} MiB"))


def bench(
    only: str | None = None,
    /,
    quick: bool = False,
    record: bool = False,
    device: Literal["auto", "cpu", "cuda"] = "auto",
) -> None:
    """Measure speed and memory beside the peers, in one run.

    Args:
        only: run this benchmark alone, e.g. objectives; all of them if left out.
        quick: fewer and smaller sizes: a minute or two instead of many.
        record: keep the figures in benchmarks/recorded.json for later runs to compare with, and
            write benchmarks/RESULTS.md; a profile is kept beside them where a benchmark makes one.
        device: cpu, cuda, or auto: the GPU where there is one.
    """
    if record and quick:
        raise InputError("--record keeps the full sizes: leave out --quick.")
    folder = FOLDER
    gpu = _gpu(device)
    found = load_benchmarks(folder, only)
    kind = results.kind_of_machine(gpu)
    recorded = results.read(folder)
    command = " ".join(filter(None, ["python -m benchmarks", only, "--record"]))
    rows = []
    for name, module in found:
        measured = measure(name, module, gpu, quick)
        rows += measured["rows"]
        if record and measured["rows"]:  # at once: what comes later may be interrupted
            results.write(folder, kind, results.machine(gpu), command, {name: measured})
    if not rows:
        raise InputError(f"nothing to measure: '{only}' has no part for a GPU; give --device cpu.")
    show(rows)
    if kind in recorded:
        changes = moved(rows, results.rows_of(recorded[kind]))
        print("\n" + ("\n".join(changes) or "nothing moved against the recorded figures."))
    if record:
        print(f"recorded in {folder / results.RECORDED} and {folder / results.RESULTS}")
        _keep_profiles(found, folder, gpu, kind)


def _gpu(device: str) -> bool:
    import torch

    there = torch.cuda.is_available()
    if device == "cuda" and not there:
        raise InputError("--device cuda: this PyTorch sees no GPU.")
    return there and device != "cpu"


def load_benchmarks(folder: Path, only: str | None = None) -> list[tuple[str, ModuleType]]:
    """Every file of the folder with a function `run`."""
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    found = []
    names = sorted(path.stem for path in folder.glob("*.py") if path.stem not in _RUNNER)
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


def measure(name: str, module: ModuleType, gpu: bool, quick: bool) -> dict[str, Any]:
    """A benchmark's rows, and how long it took. One that breaks leaves the others alone."""
    function = getattr(module, "run_cuda" if gpu else "run", None)
    if function is None:
        print(f"{name}: nothing of it runs on a GPU", file=sys.stderr)
        return {"rows": [], "seconds": 0.0}
    print(f"{name} ...", file=sys.stderr, flush=True)
    start = time.perf_counter()
    try:
        rows: Rows = function(quick=quick)
    except Exception as error:
        traceback.print_exc()
        rows = [
            {
                "name": "the benchmark itself", "setting": "cuda" if gpu else "cpu",
                "goal": "runs to its end", "met": False,
                # The message is printed above; it may hold paths, and this may be recorded.
                "why": f"it broke ({type(error).__name__})",
            }
        ]  # fmt: skip
    _tidy_up()
    seconds = time.perf_counter() - start
    print(f"{name}: {seconds:.1f} s", file=sys.stderr, flush=True)
    return {"rows": [{"benchmark": name, **row} for row in rows], "seconds": round(seconds, 1)}


def _tidy_up() -> None:
    """Nothing that one benchmark holds or sets reaches the next."""
    import torch

    gc.collect()
    torch.set_float32_matmul_precision("highest")
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def _keep_profiles(found: list[tuple[str, ModuleType]], folder: Path, gpu: bool, kind: str) -> None:
    for name, module in found:
        if hasattr(module, "profile"):
            results.write_profile(folder, name, kind, module.profile("cuda" if gpu else "cpu"))
            _tidy_up()


def show(rows: Rows) -> None:
    """One table; what is missed, and where a peer is faster, is said again below it."""
    table, before = [], None
    for row in rows:
        first, *rest = cells(row)
        table.append(["" if first == before else first, *rest])  # each name once
        before = first
    used = [i for i in range(len(COLUMNS)) if any(line[i] for line in table)]
    print_table([COLUMNS[i] for i in used], [[line[i] for i in used] for line in table])
    print(f"\n{results.score(rows)}")
    for remark in remarks(rows):
        console().print(remark, markup=False)


def moved(rows: Rows, recorded: Rows) -> list[str]:
    """What differs from the recorded rows by more than a shared machine's noise."""
    lines = []
    before = {key(row): row for row in recorded}
    for row in rows:
        old = before.get(key(row))
        if old is None:
            continue
        where = f"{row['name']}, {row['setting']}"
        if None not in (old["met"], row["met"]) and old["met"] != row["met"]:
            now, then = ("met" if m else "missed" for m in (row["met"], old["met"]))
            lines.append(f"moved: {where}: goal {row['goal']} was {then}, is now {now}")
        for what, form in (*_FORMS, ("figure", row.get("unit", "{:.3g}"))):
            new, past = row.get(what), old.get(what)
            if new and past and not 1 / _MOVED <= new / past <= _MOVED:
                was, now = form.format(past), form.format(new)
                lines.append(f"moved: {where}: {what} was {was}, is now {now}")
    return lines
