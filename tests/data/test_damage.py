"""Damaged input: each kind gives an error that names the file and the place."""

import contextlib
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from simgrad.core.errors import InputError
from simgrad.data.check import check
from simgrad.data.log import Log
from simgrad.data.opening import open_logged

from . import layout_writers as write
from .damages import Damage
from .damages_of_tables import DAMAGES


@pytest.mark.parametrize("case", DAMAGES, ids=lambda case: case.name)
def test_names_file_and_place(case: Damage, tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        case.make(tmp_path)
    message = str(caught.value)
    assert case.file in message
    assert case.place in message
    assert len(message) < 600


def test_there_are_thirty_kinds() -> None:
    assert len(DAMAGES) >= 30


WRITERS: dict[str, Callable[[Path], Path]] = {
    "karpathy": write.karpathy,
    "x-vlm": write.x_vlm,
    "pairs": write.side_by_side,
    "csv": lambda folder: write.caption_table(folder, ".csv"),
    "jsonl": lambda folder: write.caption_table(folder, ".jsonl"),
    "parquet": lambda folder: write.caption_table(folder, ".parquet"),
    "webdataset": write.webdataset,
    "precomp": lambda folder: write.precomp(folder, (4, 3), ids=True),
    "vse-infinity": lambda folder: write.vse_infinity(folder, False),
}


def damage_at_random(folder: Path, random: np.random.Generator) -> None:
    """Change a byte, cut, insert, repeat or delete in one or two files."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    for file in random.choice(np.array(files, dtype=object), size=int(random.integers(1, 3))):
        if not file.exists():
            continue
        data = bytearray(file.read_bytes())
        place = int(random.integers(len(data) + 1))
        match int(random.integers(5)):
            case 0:
                data[place : place + 1] = random.bytes(1)
            case 1:
                del data[place:]
            case 2:
                data[place:place] = random.bytes(int(random.integers(1, 20)))
            case 3:
                data[place:place] = data[place : place + 50]
            case _:
                file.unlink()
                continue
        file.write_bytes(bytes(data))


@pytest.mark.parametrize("layout", WRITERS)
@pytest.mark.filterwarnings("ignore")
def test_random_damage_gives_only_errors_in_plain_words(layout: str, tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    whole.mkdir()
    WRITERS[layout](whole)
    random = np.random.default_rng(len(layout))
    for i in range(40):
        folder = tmp_path / str(i)
        shutil.copytree(whole, folder)
        damage_at_random(folder, random)
        for collect in (False, True):
            with contextlib.suppress(InputError):  # any other exception fails the test
                check(open_logged(folder, Log(collect=collect)), thorough=collect)
