"""docs/finetune.md: its commands run as they stand, on a tiny model and a few scenes."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

import simgrad
from simgrad.data import open_dataset
from simgrad.data.classes import METRIC
from simgrad.data.scenes.dataset import ScenePictures
from simgrad.data.scenes.world import COLOURS, GROUNDS, KINDS
from tests.evaluation.commands import ask
from tests.models.tiny import clip_folder

PAGE = Path(__file__).parents[1] / "docs" / "finetune.md"


@pytest.mark.long
def test_the_pages_commands_run(tmp_path: Path, capsys: Any, monkeypatch: Any) -> None:
    text = PAGE.read_text(encoding="utf-8")
    block = re.search(r"```\n(simgrad .*?)```", text, re.DOTALL)
    assert block is not None
    lines = block[1].replace("\\\n", " ").strip().splitlines()
    assert len(lines) == 9
    clip_folder(tmp_path / "CLIP")
    monkeypatch.chdir(tmp_path)
    printed = []
    for line in lines:
        words = shlex.split(line.replace("PHOTOS", "'scenes(train=24, val=12, test=12)'"))
        more = ["--device", "cpu", "--workers", "0"] if words[1] == "train" else []
        printed.append(ask(capsys, *words[1:], *more))
    zero, home = printed[0], printed[-1]
    assert "rsum" in zero
    assert (tmp_path / "my-clip" / "model.safetensors").is_file()
    assert (tmp_path / "my-adapter" / "adapter_config.json").is_file()
    assert (tmp_path / "report.html").is_file()
    tested = ask(capsys, "evaluate", "runs/lora")
    rsum = re.search(r"rsum\s+([\d.]+)", tested)
    assert rsum is not None
    assert rsum[1] in home


@pytest.mark.long
def test_what_the_page_shows_of_forgetting(
    tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command and its lines; figures depend on the processor, but what it knew was much."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    pretrained()
    block = re.search(
        r"^```console\n\$ simgrad (.+?)\n(.+?)^```", PAGE.read_text("utf-8"), re.M | re.S
    )
    assert block is not None
    said = ask(capsys, *shlex.split(block[1]), "--device", "cpu", "--workers", "0")
    assert lines(said) == lines(block[2])
    also = simgrad.Run.open("runs/kept").also
    assert also["before"][METRIC] > also["after"][METRIC] + 5
    assert also["before"][METRIC] > 70


def pretrained() -> None:
    """A CLIP that knows drawn scenes, pictures of their things, and others by their grounds."""
    size = "dimension=32, width=32, layers=2, heads=2, patch=16, positions=32, size=64"
    recipe = simgrad.Recipe(
        data="scenes(train=400, val=20, test=20)", model=f"clip(source=none, {size})",
        objective="nt-xent", epochs=15, batch=50, lr=2e-3, device="cpu", workers=0,
    )  # fmt: skip
    simgrad.train(recipe, "runs/pretrained", quiet=True)
    simgrad.open("runs/pretrained", device="cpu").export("CLIP")
    drawn = open_dataset("scenes(train=2, val=2, test=300, seed=7)").split("test").pictures
    assert isinstance(drawn, ScenePictures)
    for row in range(300):
        scene = drawn.scene(row)
        thing, place = scene.things[0], Path("photos")
        if row >= 160:
            place = Path("grounds", GROUNDS[scene.ground])
        place.mkdir(parents=True, exist_ok=True)
        drawn.picture(row).save(place / f"{row:03}.png")
        if row < 160:
            told = f"a {COLOURS[thing.colour]} {KINDS[thing.kind]}\n"
            (place / f"{row:03}.txt").write_text(told)
    Path("grounds", "prompts.txt").write_text(
        "a circle on {}\na picture of a blue star on the {}\n"
    )


def lines(said: str) -> list[str]:
    """Without figures and the columns that they need."""
    plain = [re.sub(r"\d[\d.,]*", "N", line) for line in said.strip().splitlines()]
    return [re.sub(r" +", " ", line).strip() for line in plain]


def test_formats_are_those_that_the_page_names(capsys: pytest.CaptureFixture[str]) -> None:
    told = ask(capsys, "export", "--help")
    for name in ("transformers", "sentence-transformers", "onnx"):
        assert name in told
        assert f"`{name}" in PAGE.read_text(encoding="utf-8")
