"""The command line as a stranger meets it: help without riddles, mistakes answered plainly."""

import re
import sys
from functools import partial
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from simgrad.cli import program as cli
from simgrad.cli import train as command
from simgrad.models import models
from simgrad.objectives import objectives
from tests.processes import simgrad


def said(words: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    with pytest.raises(SystemExit) as stop:
        cli.main(words)
    captured = capsys.readouterr()
    return int(stop.value.code or 0), captured.out + captured.err


@pytest.mark.parametrize("command", cli.COMMANDS)
def test_help_is_for_people(
    command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    code, text = said([command, "--help"], capsys)
    assert code == 0
    assert not re.search(r"\{None|None\}|\bSTR\b|\bINT\b|\bFLOAT\b|\[\[", text)
    assert not re.search(r"\(default:\s*(none)?\)|\(default: \(", re.sub(r"\s*│\s*", " ", text))
    assert all(len(line) <= 80 for line in text.splitlines())


def test_help_of_train_is_in_groups(capsys: pytest.CaptureFixture[str]) -> None:
    _, text = said(["train", "--help"], capsys)
    assert text.index("schedule options") < text.index("--epochs") < text.index("machine options")
    assert "second_round" in text  # in a file only, but told
    assert "--trial" not in text  # a switch for searches


def test_errors_are_broken_between_words_on_a_terminal_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.chdir(tmp_path)
    _, whole = said(["datasets", "nowhere"], capsys)
    assert len(whole.splitlines()) == 1
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    _, text = said(["datasets", "nowhere"], capsys)
    lines = text.splitlines()
    assert len(lines) > 1
    assert max(map(len, lines)) <= 60
    assert " ".join(text.split()) == whole.strip()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("train --epoch 3", ["--epoch,", "--epochs N"]),
        ("train --epoch=3", ["--epoch=3", "--epochs N"]),
        ("train --drop_lats", ["drop", "--drop-last"]),
        ("train --epoch 3 --nope", ["--epoch", "--nope"]),
        ("evaluate --nope", ["--nope"]),
        ("trian", ["no command 'trian';", "mean train?"]),
        ("nothing-like-it", ["no command 'nothing-like-it'."]),
        ("train --epochs", ["--epochs"]),
        ("train --betas 0.9", ["--betas", "2 values"]),
        ("train --precision bf61", ["'bf61'", "--precision", "'bf16'"]),
        ("train --epochs three", ["--epochs", "takes a whole number, not 'three'"]),
        ("train a.yaml b.yaml", ["b.yaml"]),
        ("choose", ["DATA"]),
        ("import a.pth.tar", ["--to PATH"]),
        ("import a.pth.tar --too b", ["--too", "--to PATH"]),
    ],
)
def test_a_slip_of_the_pen_is_answered(
    words: str,
    told: list[str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit) as stop:
        cli.main(words.split())
    captured = capsys.readouterr()
    assert stop.value.code == 2
    assert captured.out == ""
    program = f"simgrad {words.split()[0]}" if words.split()[0] in cli.COMMANDS else "simgrad"
    assert all(len(line) <= 80 for line in captured.err.splitlines())
    text = " ".join(captured.err.replace("│", " ").split())
    assert f"{program} --help" in text
    assert all(part in text for part in told)


@pytest.mark.parametrize("command", ["import", "export"])
def test_where_to_write_may_be_called_output(
    command: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    missing = str(tmp_path / "nowhere")
    code, text = said([command, missing, "--output", str(tmp_path / "to")], capsys)
    assert code == 2
    assert "nowhere" in text  # the option is understood: what is refused is the file


def test_a_value_of_the_wrong_kind_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    code, text = said(["train", "--batch", "many"], capsys)
    assert code == 2
    assert "--batch" in text
    assert "a whole number, not 'many'" in text
    code, text = said(["train", "--lr", "0,1"], capsys)
    assert code == 2
    assert "a number, not '0,1'" in text


@pytest.mark.parametrize("flag", [["--drop-last"], ["--drop-last", "True"], ["--drop_last"]])
def test_a_recipes_flags_need_no_value(flag: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    # The flag is understood: what is refused is the number of epochs.
    code, text = said(["train", *flag, "--epochs", "-1"], capsys)
    assert code == 2
    assert "epochs must be at least 0" in text


def test_where_an_unknown_model_is_said_to_be_listed_it_is(
    capsys: pytest.CaptureFixture[str],
) -> None:
    _, text = said(["train", "--model", "vsepp"], capsys)
    assert "`simgrad models` lists them all" in text
    _, listed = said(["models"], capsys)
    for entry in models:
        assert entry.name in listed


def test_a_script_sees_that_training_was_stopped(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["train", "--output", str(tmp_path / "run"), "--epochs", "1", "--device", "cpu"]
    words += ["--data", "scenes(features=global, train=20, val=5, test=5)"]
    words += ["--model", "vse++(dimension=8, word_dimension=8)", "--batch", "32"]
    with monkeypatch.context() as patch:
        patch.setattr(command, "run_training", partial(command.run_training, stop_after=0))
        code, text = said(words, capsys)
    assert code == 130
    assert "stopped at step" in text
    assert "run the same command again" in text
    assert said(words, capsys)[0] == 0
    monkeypatch.setenv("RANK", "1")  # the second of torchrun's processes says nothing
    assert said(words, capsys) == (0, "")


@pytest.mark.parametrize("content", [b"{}", b"\0" * 100, b"root:x:0:0", b""])
def test_a_file_that_is_no_checkpoint_is_refused_without_a_lecture(
    content: bytes, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "model_best.pth.tar"
    file.write_bytes(content)
    code, text = said(["import", str(file), "--to", str(tmp_path / "to")], capsys)
    assert code == 2
    assert text.strip().endswith("it is damaged, or not a file that torch.save wrote.")
    assert not (tmp_path / "to").exists()


def test_mined_negatives_are_asked_for_before_anything_is_written(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    words = ["train", "--objective", "off-tri", "--output", str(tmp_path / "run")]
    code, text = said(words, capsys)
    assert code == 2
    assert "--candidates" in text
    assert "simgrad mine" in text
    assert not (tmp_path / "run").exists()


def test_a_warning_is_told_without_code(
    tmp_path: Path,
) -> None:
    vectors = np.arange(24.0).reshape(6, 4)
    file = tmp_path / "embeddings.npz"
    np.savez(file, images=vectors, texts=vectors, image_of_caption=np.arange(6))
    done = simgrad("evaluate", str(file))
    assert done.returncode == 0
    assert done.stderr.startswith(f"simgrad: {file}: these vectors differ in length")
    assert ".py" not in done.stderr


def test_a_warning_while_a_command_is_loaded_does_not_end_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    half = ModuleType("simgrad.cli.evaluate")  # its function is not there yet
    monkeypatch.setitem(sys.modules, half.__name__, half)
    cli._warn(["evaluate", "run"], "`data` is old.")
    assert capsys.readouterr().err == "simgrad: `data` is old.\n"


@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize("joined", [False, True])
def test_a_file_of_ones_own_is_named_anywhere(
    place: int, joined: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / f"own{place}{joined}.py"
    file.write_text(f"print('file {place} {joined} was read')\n")
    words = ["objectives", "triplet"]
    words[place:place] = [f"--with={file}"] if joined else ["--with", str(file)]
    code, text = said(words, capsys)
    assert code == 0
    assert f"file {place} {joined} was read" in text
    assert "margin" in text
    code, text = said(["objectives", "--with"], capsys)
    assert code == 2
    assert "needs a Python file" in text


@pytest.mark.parametrize(("name", "resumed"), [("choose", True), ("study", True), ("mine", False)])
def test_who_stops_a_command_is_told_how_to_resume(
    name: str, resumed: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(rest: list[str]) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "_run", stop)
    for first in ([], ["--with", "mine.py"]):
        code, text = said([*first, name, "photos"], capsys)
        assert code == 130
        assert ("the same command again" in text) is resumed


def test_an_objective_is_explained_by_a_spec_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert "value: sum over queries" in said(["objectives", "triplet"], capsys)[1]
    text = said(["objectives", "goal"], capsys)[1]
    assert "\nformula (LaTeX):\n" in text
    for line in objectives["goal"].formula.strip().splitlines():
        assert f"\n  {line}\n" in text
    code, text = said(["objectives", "nt-xent(tau=0.05)"], capsys)
    assert "value: half the sum of the directions' means" in text
    assert code == 0
    assert "temperature of the softmax" in text
    code, text = said(["objectives", "goal(triplet=con, pair=con)"], capsys)
    assert code == 0
    assert "searches margin." in text
    code, text = said(["objectives", "nt-xent(tau=0)"], capsys)
    assert code == 2
    assert "greater than 0" in text
