"""Which formats of pictures are read: by what a file is, not by what it is called."""

import io
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from PIL import EpsImagePlugin, Image

import simgrad
from simgrad.core.errors import InputError
from simgrad.data import open_dataset
from simgrad.data.check import check
from simgrad.data.cutting import open_picture
from simgrad.data.decoded import DecodedPictures
from simgrad.data.pictures import FORMATS, decode, size_of
from simgrad.data.reading import read_by, readers
from simgrad.lab.workers import Decoders
from tests.data import layout_writers as write

EPS = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\nshowpage\n%%EOF\n"


@pytest.fixture
def ghostscript(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program called gs that notes that it was called, which Pillow has not looked for yet."""
    trace, programs = tmp_path / "called.txt", tmp_path / "programs"
    programs.mkdir()
    (programs / "gs").write_text(f"#!/bin/sh\necho called >> {trace}\n")
    (programs / "gs").chmod(0o755)
    monkeypatch.setenv("PATH", str(programs), prepend=":")
    monkeypatch.setattr(EpsImagePlugin, "gs_binary", None)
    return trace


def _folder(place: Path) -> Path:
    (write.karpathy(place) / "images" / "a.jpg").write_bytes(EPS)
    return place


def _read_in_a_process(place: Path) -> None:
    with readers(1, "plain", 4, 1) as free:
        read_by(free, [_folder(place) / "images" / "a.jpg"], 4, lambda pixels: pixels)


def _upload(place: Path) -> None:
    decoders = Decoders(1)
    try:
        decoders.rgb(EPS)
    finally:
        decoders.close()


def _decode_a_split(place: Path) -> None:
    split = open_dataset(str(_folder(place))).split("train")
    DecodedPictures.of(split, "plain", 4).rows([0, 1])  # type: ignore[arg-type]


USES: dict[str, Callable[[Path], object]] = {
    "a file": lambda place: open_picture(_folder(place) / "images" / "a.jpg", "a.jpg"),
    "bytes": lambda place: decode(EPS, "a.jpg"),
    "a split": _decode_a_split,
    "a process that reads": _read_in_a_process,
    "an upload": _upload,
}


@pytest.mark.parametrize("use", USES)
def test_no_other_program_is_called_for_a_picture(
    use: str, ghostscript: Path, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=r"not a picture in JPEG, PNG, WEBP, GIF, BMP or TIFF"):
        USES[use](tmp_path / "data")
    assert not ghostscript.exists()


def test_the_trap_works(ghostscript: Path) -> None:
    with suppress(OSError), Image.open(io.BytesIO(EPS)) as picture:
        picture.load()
    assert ghostscript.exists()


def test_a_look_at_the_data_names_the_file(ghostscript: Path, tmp_path: Path) -> None:
    found = check(open_dataset(str(_folder(tmp_path / "data"))))
    (problem,) = found.problems
    assert problem.file.endswith("a.jpg")
    assert "not a picture in JPEG" in problem.what
    assert not ghostscript.exists()


@pytest.mark.parametrize("format", FORMATS)
def test_every_format_is_read_whatever_its_name(format: str, tmp_path: Path) -> None:
    file = tmp_path / "a.jpg"
    Image.new("RGB", (9, 5), "red").save(file, format)
    assert open_picture(file, "a.jpg").size == size_of(file.read_bytes()) == (9, 5)


def test_photos_of_phones_with_a_second_frame_are_read(tmp_path: Path) -> None:
    """JPEG files with more than one picture (MPO): the first counts."""
    file, frames = tmp_path / "a.jpg", [Image.new("RGB", (9, 5), c) for c in ("red", "blue")]
    frames[0].save(file, "MPO", save_all=True, append_images=frames[1:])
    assert open_picture(file, "a.jpg").getpixel((4, 2))[0] > 200  # type: ignore[index]


def test_pictures_are_opened_in_one_place() -> None:
    source = Path(simgrad.__file__).parent
    found = [f.name for f in source.rglob("*.py") if "Image.open(" in f.read_text("utf-8")]
    assert found == ["pictures.py"]


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_pixels_that_are_no_numbers_are_refused(value: float) -> None:
    """A TIFF may have floats; NaN had become black."""
    values = np.full((4, 4), 100.0, dtype=np.float32)
    told = io.BytesIO()
    Image.fromarray(values).save(told, "TIFF")
    assert decode(told.getvalue(), "n0.tif").getpixel((0, 0)) == (100, 100, 100)
    values[1, 2] = value
    told = io.BytesIO()
    Image.fromarray(values).save(told, "TIFF")
    with pytest.raises(InputError, match=r"n0\.tif: .*NaN or infinite"):
        decode(told.getvalue(), "n0.tif")
