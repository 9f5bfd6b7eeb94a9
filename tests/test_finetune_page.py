"""docs/finetune.md: its commands run as they stand, on a tiny model and a few scenes."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

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


def test_formats_are_those_that_the_page_names(capsys: pytest.CaptureFixture[str]) -> None:
    told = ask(capsys, "export", "--help")
    for name in ("transformers", "sentence-transformers", "onnx"):
        assert name in told
        assert f"`{name}" in PAGE.read_text(encoding="utf-8")
