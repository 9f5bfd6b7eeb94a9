"""Pictures to tensors: as published, the same for the same generator, safe with odd files."""

import io
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from simgrad.core.errors import InputError
from simgrad.data import cutting, transforms
from simgrad.data.transforms import augment
from tests.hardening.memory import at_most

NAMES = ("vse++", "efficientnet-lite", "vse-infinity", "x-vlm", "clip", "plain")


def gradient(width: int, height: int) -> Image.Image:
    """Red grows to the right, green to the bottom: a crop's place can be read from its colours."""
    x = np.linspace(0, 255, width, dtype=np.float32)[None, :].repeat(height, 0)
    y = np.linspace(0, 255, height, dtype=np.float32)[:, None].repeat(width, 1)
    return Image.fromarray(np.stack([x, y, np.zeros_like(x)], axis=-1).astype(np.uint8))


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("train", [True, False])
def test_the_same_generator_gives_the_same_tensor(name: str, train: bool) -> None:
    transform = transforms.named(name, train, 32)
    picture = gradient(90, 80)
    first = transform(picture, seeded(1))
    assert first.shape == (3, 32, 32)
    assert first.dtype == torch.uint8
    assert torch.equal(first, transform(picture, seeded(1)))
    different = any(not torch.equal(first, transform(picture, seeded(s))) for s in range(2, 6))
    assert different == (train and name != "plain")


def test_without_random_numbers_nothing_is_augmented() -> None:
    picture = gradient(90, 60)
    train, evaluate = (transforms.named("vse++", mode, 32) for mode in (True, False))
    assert torch.equal(train(picture, None), evaluate(picture, None))


@pytest.mark.parametrize(("width", "height"), [(300, 200), (200, 300), (500, 333), (152, 203)])
def test_evaluation_is_resize_256_and_centre_crop_224(width: int, height: int) -> None:
    rng = np.random.default_rng(0)
    small = rng.integers(0, 255, (height // 8, width // 8, 3), dtype=np.uint8)
    picture = Image.fromarray(small).resize((width, height), Image.Resampling.BICUBIC)
    sides = (int(256 * width / min(width, height)), int(256 * height / min(width, height)))
    whole = picture.resize(sides, Image.Resampling.BILINEAR)  # cut off, as torchvision does it
    left, top = round((whole.width - 224) / 2), round((whole.height - 224) / 2)
    expected = np.asarray(whole.crop((left, top, left + 224, top + 224)), dtype=np.float32)
    found = transforms.named("vse++", False, 224)(picture, None).permute(1, 2, 0).float().numpy()
    assert np.abs(found - expected).max() <= 1


def test_crops_of_random_area() -> None:
    """VSE++'s crops: 8 to 100 % of the area, ratio of sides 3/4 to 4/3, flipped half the time."""
    picture, transform = gradient(240, 240), transforms.named("vse++", True, 64)
    areas, ratios, flips = [], [], 0
    generator = seeded(0)
    for _ in range(300):
        red, green, _ = transform(picture, generator).float()
        wide, high = (red[:, -1] - red[:, 0]).mean() / 255, (green[-1] - green[0]).mean() / 255
        flips += int(wide < 0)
        areas.append(abs(float(wide * high)))
        ratios.append(abs(float(wide / high)))
    assert 0.05 < min(areas) < 0.16
    assert max(areas) > 0.85
    assert 0.45 < np.mean(areas) < 0.6
    assert min(ratios) > 0.72
    assert max(ratios) < 1.39
    assert 110 < flips < 190


def test_vse_infinity_keeps_60_to_100_percent_of_both_sides() -> None:
    picture, transform = gradient(200, 100), transforms.named("vse-infinity", True, 64)
    shares = []
    for seed in range(120):
        red, green, _ = transform(picture, seeded(seed)).float()
        wide, high = abs(red[:, -1] - red[:, 0]).mean() / 255, (green[-1] - green[0]).mean() / 255
        assert abs(float(wide - high)) < 0.05
        shares.append(float(wide))
    assert 0.55 < min(shares) < 0.68
    assert max(shares) > 0.93


def test_random_augment_does_ten_things() -> None:
    picture = gradient(64, 64)
    results = {augment(picture, seeded(s), steps=1, strength=7).tobytes() for s in range(150)}
    # Nine changes, five of them in two directions; some leave a gradient as it was.
    assert 10 <= len(results) <= 15
    assert picture.tobytes() in results
    moved = [augment(picture, seeded(s), steps=1, strength=0) for s in range(40)]
    assert sum(m.tobytes() == picture.tobytes() for m in moved) > 10


@settings(max_examples=60, deadline=None)
@given(
    width=st.integers(1, 400),
    height=st.integers(1, 400),
    name=st.sampled_from(NAMES),
    train=st.booleans(),
    seed=st.integers(0, 999),
)
def test_any_shape_of_picture(width: int, height: int, name: str, train: bool, seed: int) -> None:
    transform = transforms.named(name, train, 16)
    assert transform(gradient(width, height), seeded(seed)).shape == (3, 16, 16)


def test_normalisation() -> None:
    pixels = torch.tensor([0, 127, 255], dtype=torch.uint8).view(3, 1, 1)
    lite = transforms.normalise(pixels, "efficientnet-lite").flatten()
    assert torch.allclose(lite, torch.tensor([-127 / 128, 0.0, 1.0]), atol=1e-6)
    imagenet = transforms.normalise(pixels, "imagenet").flatten()
    expected = torch.tensor([-0.485 / 0.229, (127 / 255 - 0.456) / 0.224, (1 - 0.406) / 0.225])
    assert torch.allclose(imagenet, expected, atol=1e-6)
    assert torch.allclose(
        transforms.normalise(pixels.float() / 255, "imagenet").flatten(), expected
    )
    whole = transforms.named("vse++/clip", False, 8)(gradient(20, 20), None)
    assert whole.dtype == torch.float32
    assert whole.min() < -1


@pytest.mark.parametrize(
    ("name", "size", "message"),
    [
        ("vse", 8, "no transform 'vse'"),
        ("vse++/x", 8, "no normalisation"),
        ("plain", 0, "1 to 4096"),
    ],
)
def test_wrong_names(name: str, size: int, message: str) -> None:
    with pytest.raises(InputError, match=message):
        transforms.named(name, True, size)


def test_a_photo_is_turned_as_the_camera_was_held() -> None:
    picture = gradient(60, 40)
    exif = Image.Exif()
    exif[0x0112] = 6  # turn it clockwise
    stream = io.BytesIO()
    picture.save(stream, format="JPEG", exif=exif, quality=95)
    opened = cutting.open_picture(io.BytesIO(stream.getvalue()), "photo")
    assert opened.size == (40, 60)
    assert opened.getpixel((38, 2))[1] < 40  # type: ignore[index]  # what was top left
    assert opened.getpixel((2, 2))[1] > 200  # type: ignore[index]


@pytest.mark.parametrize("mode", ["L", "CMYK", "P", "LA", "RGBA", "1", "I;16", "I", "F"])
def test_every_mode_becomes_rgb(mode: str) -> None:
    if mode == "I;16":
        picture = Image.fromarray(np.full((20, 20), 32768, dtype=np.uint16))
    elif mode in {"I", "F"}:
        picture = Image.fromarray(np.full((20, 20), 128, np.int32 if mode == "I" else np.float32))
    else:
        picture = Image.new("RGB", (20, 20), (128, 128, 128)).convert(mode)
    pixels = transforms.named("plain", False, 8)(picture, None)
    assert pixels.shape == (3, 8, 8)
    if mode != "1":
        assert abs(pixels.float().mean() - 128) < 4


def test_what_is_transparent_is_white() -> None:
    pixels = transforms.named("plain", False, 4)(Image.new("RGBA", (9, 9), (0, 0, 0, 0)), None)
    assert (pixels == 255).all()


def test_the_first_frame_of_what_moves() -> None:
    frames = [Image.new("RGB", (12, 12), colour) for colour in ("red", "blue")]
    stream = io.BytesIO()
    frames[0].save(stream, format="GIF", save_all=True, append_images=frames[1:])
    picture = cutting.open_picture(io.BytesIO(stream.getvalue()), "moving")
    assert picture.getpixel((5, 5)) == (255, 0, 0)


def test_bombs_are_refused() -> None:
    def chunk(kind: bytes, data: bytes) -> bytes:
        check = struct.pack(">I", zlib.crc32(kind + data))
        return struct.pack(">I", len(data)) + kind + data + check

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", 60000, 60000, 8, 2, 0, 0, 0))
    bomb = b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")
    with pytest.raises(InputError, match=r"bomb\.png: .*pixels"):
        cutting.open_picture(io.BytesIO(bomb), "bomb.png")


@pytest.mark.parametrize("data", [b"", b"not a picture", b"\xff\xd8\xff\xe0" + bytes(30)])
def test_damaged_files_are_named(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "broken.jpg"
    path.write_bytes(data)
    with pytest.raises(InputError, match=r"broken\.jpg: the picture cannot be decoded"):
        cutting.open_picture(path, str(path))
    with pytest.raises(InputError, match="there is no such picture"):
        cutting.open_picture(tmp_path / "absent.jpg", "absent.jpg")


def test_a_large_photo_is_decoded_small() -> None:
    stream = io.BytesIO()
    gradient(1600, 1200).save(stream, format="JPEG")
    small = cutting.open_picture(io.BytesIO(stream.getvalue()), "large", least=256)
    assert small.size == (400, 300)
    whole = cutting.open_picture(io.BytesIO(stream.getvalue()), "large")
    assert whole.size == (1600, 1200)
    a, b = (transforms.named("vse++", False, 112)(p, None).float() for p in (small, whole))
    assert (a - b).abs().mean() < 2


@pytest.mark.parametrize("size", [(1, 60_000), (60_000, 1), (2, 40_000)])
@pytest.mark.parametrize(
    "style", [*cutting.EVALUATION, "crop:224:bicubic", "centre:256:bilinear", "patches:16:256:box"]
)
def test_a_strip_takes_no_gigabytes(style: str, size: tuple[int, int]) -> None:
    """Scaled as a whole until its short side fits, a picture of 60,000 pixels had 3 billion."""
    picture = Image.new("RGB", size, (200, 30, 30))
    with at_most(100):
        found = cutting.cut_of(style)(picture, 224)
    assert found.size == (224, 224)
    assert found.getpixel((112, 112)) == (200, 30, 30) or style.startswith("patches")


def test_a_strip_is_cut_as_any_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    picture = gradient(30, 90)
    whole = np.asarray(cutting.cut_of("crop:32:bicubic")(picture, 32), dtype=float)
    monkeypatch.setattr(cutting, "MOST_PIXELS", 100)
    cut = np.asarray(cutting.cut_of("crop:32:bicubic")(picture, 32), dtype=float)
    assert np.abs(whole - cut).max() <= 2


@pytest.mark.parametrize(
    "style",
    ["crop:1000000000:box", "crop:0:box", "centre:5000:box", "patches:1000000:1:box",
     "patches:1:1000000000:box", "patches:4096:4096:box", "patches:0:9:box"],
)  # fmt: skip
def test_a_cut_that_no_model_has_is_refused(style: str) -> None:
    with pytest.raises(InputError, match="no transform"):
        cutting.cut_of(style)
