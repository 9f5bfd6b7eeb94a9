"""Run folders with one damaged file: what is in them is shown, or refused in plain words."""

import re
import shutil
import tempfile
import warnings
from contextlib import suppress
from functools import cache
from pathlib import Path

from hypothesis import strategies as st

from simgrad.core.errors import InputError
from simgrad.report.build import write_report
from simgrad.training import Run
from tests.hardening.jobs import run_job

_FILES = ["run.json", "metrics.jsonl", "test.json", "recipe.yaml", "ranks.parquet", "triplets.npz"]
_VALUES = [
    b"null", b"[]", b"{}", b'"x"', b"-1", b"1e999", b"NaN", b"true", b'"\\ud800"', b"7" * 400,
]  # fmt: skip
Damage = tuple[str, int, int, bytes]  # how, place, how many bytes go, what comes instead
DAMAGED_RUNS = st.tuples(
    st.sampled_from(_FILES),
    st.tuples(
        st.sampled_from(["bytes", "value", "value", "whole", "gone"]),
        st.integers(0, 5000),
        st.integers(0, 40),
        st.sampled_from(_VALUES) | st.binary(max_size=6),
    ),
)


@cache
def _finished() -> tempfile.TemporaryDirectory[str]:
    folder = tempfile.TemporaryDirectory(prefix="fuzzed")
    run_job().work(Path(folder.name) / "run")
    return folder


def _damage(path: Path, damage: Damage) -> None:
    how, place, gone, come = damage
    content = path.read_bytes()
    if how == "gone":
        path.unlink()
    elif how == "whole":
        path.write_bytes(come)
    elif how == "value" and (found := list(re.finditer(rb"(?<=: )[^,\n\]}]+", content))):
        start, end = found[place % len(found)].span()
        path.write_bytes(content[:start] + come + content[end:])
    else:
        place %= len(content) + 1
        path.write_bytes(content[:place] + come + content[place + gone :])


def run_folders(damaged: tuple[str, Damage]) -> None:
    """Everything that others ask of a run, then a report on it."""
    name, damage = damaged
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        path = Path(folder) / "run"
        shutil.copytree(Path(_finished().name) / "run", path)
        _damage(path / name, damage)
        with suppress(InputError):
            run = Run.open(path)
            _ = run.recipe, run.info, run.history, run.test, run.ranks()
        with suppress(InputError):
            write_report([path], Path(folder) / "r.html", batches=0, pictures=False)
