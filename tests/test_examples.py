"""examples/ run as they stand: a notebook's cells in one namespace, a script's `main`."""

import contextlib
import io
import json
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
NOTEBOOKS = [
    pytest.param("choose", marks=pytest.mark.slow),  # a small study
    "objective",
    pytest.param("compare", marks=pytest.mark.slow),  # trains six models
    "finetune",
    pytest.param("false_negatives", marks=pytest.mark.slow),  # trains five models
]


def cells(name: str) -> list[dict[str, Any]]:
    read: dict[str, Any] = json.loads((EXAMPLES / f"{name}.ipynb").read_text(encoding="utf-8"))
    assert read["nbformat"] == 4
    found: list[dict[str, Any]] = read["cells"]
    return found


def code(name: str) -> list[str]:
    return ["".join(cell["source"]) for cell in cells(name) if cell["cell_type"] == "code"]


# What a test changes of a notebook: less to train.
SMALLER = {
    "choose": {
        "500": "120",
        "minutes=20": "minutes=4, epochs=4, objectives=('nt-xent', 'triplet-sh'), device='cpu'",
    }
}


@pytest.mark.long
@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_runs_from_top_to_bottom(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MPLBACKEND", "Agg")
    monkeypatch.chdir(tmp_path)
    space: dict[str, Any] = {"__name__": "__main__"}
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        for number, cell in enumerate(code(name)):
            for much, little in SMALLER.get(name, {}).items():
                cell = cell.replace(much, little)
            exec(compile(cell, f"{name}.ipynb, cell {number}", "exec"), space)
    CHECKS[name](space, printed.getvalue())


def objective_learned(space: dict[str, Any], printed: str) -> None:
    assert "a loss" in printed
    assert space["found"].i2t_r1 > 10  # chance is 0.4


def seeds_are_counted(space: dict[str, Any], printed: str) -> None:
    one, several = space["one"]["rsum"], space["several"]["rsum"]
    assert several.low < several.difference < several.high
    assert one.low < one.difference < one.high


def transformers_agrees(space: dict[str, Any], printed: str) -> None:
    assert space["theirs"].rsum == pytest.approx(space["run"].test["rsum"], abs=1.0)
    assert space["run"].test["rsum"] > space["before"].test["rsum"]


def better_than_chance(space: dict[str, Any], printed: str) -> None:
    assert space["right"][:100].mean() > 5 * space["base"]


def photos_are_answered_and_found(space: dict[str, Any], printed: str) -> None:
    assert space["answer"].text in printed
    assert space["answer"].standing.leader in ("nt-xent", "triplet-sh")
    pictures = [o for cell in cells("choose") for o in cell.get("outputs", ()) if "data" in o]
    assert sum("<img" in str(o["data"]) or "image/png" in o["data"] for o in pictures) >= 3
    assert len(cells("choose")) <= 10


CHECKS = {
    "choose": photos_are_answered_and_found,
    "objective": objective_learned,
    "compare": seeds_are_counted,
    "finetune": transformers_agrees,
    "false_negatives": better_than_chance,
}


@pytest.mark.parametrize("name", CHECKS)
def test_a_notebook_is_small_and_shows_what_it_printed(name: str) -> None:
    assert (EXAMPLES / f"{name}.ipynb").stat().st_size < 200_000
    outputs = [out for cell in cells(name) for out in cell.get("outputs", [])]
    assert outputs
    assert not any(out["output_type"] == "error" for out in outputs)
    assert not any("/tmp" in json.dumps(out) for out in outputs)


SCRIPTS = {
    "open_clip_loop": "open_clip",
    "sentence_transformers_loop": "sentence_transformers",
    "lightning_loop": "pytorch_lightning",
    "ddp_loop": "torch",
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_trains(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip(SCRIPTS[name], reason=f"no {SCRIPTS[name]} (open_clip needs torchvision)")
    monkeypatch.syspath_prepend(EXAMPLES)
    main = runpy.run_path(str(EXAMPLES / f"{name}.py"))["main"]
    before, after = main()
    assert after < before, capsys.readouterr().out


@pytest.mark.slow  # starts three processes, each of which imports torch
def test_two_processes_have_the_loss_of_one() -> None:
    script = str(EXAMPLES / "ddp_loop.py")
    run = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", script]
    alone, both = (
        subprocess.run(command, capture_output=True, text=True, check=True, timeout=200).stdout
        for command in ([sys.executable, script], run)
    )
    assert "2 processes" in both
    assert alone.splitlines()[-1] == both.splitlines()[-1]


def test_every_example_is_listed() -> None:
    page = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    for path in [*EXAMPLES.glob("*.ipynb"), *EXAMPLES.glob("*.py")]:
        assert f"({path.name})" in page
    assert {p.stem for p in EXAMPLES.glob("*.ipynb")} == set(CHECKS)
    assert {p.stem for p in EXAMPLES.glob("*_loop.py")} == set(SCRIPTS)
