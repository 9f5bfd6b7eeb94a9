"""Pictures that stand in a data set twice, and names that are nearly right."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from simgrad.cli.program import main
from simgrad.core.errors import InputError
from simgrad.data import open_dataset
from simgrad.data.check import check
from simgrad.data.layouts.building import hashed_split


def photo(path: Path, seed: int, side: int = 96) -> None:
    """A picture with structure; the same one in any size for the same seed."""
    cells = np.random.default_rng(seed).integers(0, 255, (12, 12, 3), dtype=np.uint8)
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(cells).resize((side, side), Image.Resampling.NEAREST).save(path, quality=95)


def named(split: str, count: int) -> list[str]:
    """File names that our draw puts into a split."""
    every = (f"{i}.jpg" for i in range(10_000))
    return [name for name in every if hashed_split(name) == split][:count]


def folder_of(folder: Path, splits: bool) -> tuple[Path, str, str]:
    """Ten different photos; one of test stands in train, too, in another size."""
    train, test = named("train", 6), named("test", 2)
    names = [*train, *named("val", 2), *test]
    for seed, name in enumerate(names):
        photo(folder / "images" / name, seed)
    copied = seed
    photo(folder / "images" / train[0], copied, side=144)
    told = [f"{n},a photo,{hashed_split(n)}" if splits else f"{n},a photo" for n in names]
    head = "image,caption,split" if splits else "image,caption"
    (folder / "captions.csv").write_text("\n".join([head, *told]) + "\n")
    return folder, train[0], test[1]


def test_of_splits_that_we_draw_the_copy_in_train_is_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, twin, tested = folder_of(tmp_path / "photos", splits=False)
    with pytest.raises(SystemExit):
        main(["datasets", str(folder), "--fix", "--output", str(tmp_path / "skip.json")])
    out = capsys.readouterr().out
    assert f"{twin}: the same picture as {tested} of 'test'." in out
    found = open_dataset(folder, skip=tmp_path / "skip.json")
    assert twin not in found.split("train").image_names
    assert tested in found.split("test").image_names
    assert found.split("train").num_images == 5


def test_splits_that_came_with_the_data_stay_and_the_leak_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, twin, tested = folder_of(tmp_path, splits=True)
    with pytest.raises(SystemExit):
        main(["datasets", str(folder), "--json"])
    told = json.loads(capsys.readouterr().out)
    assert told["problems"] == []
    assert told["copies_across_splits"] == [[["train", twin], ["test", tested]]]
    assert any("both sides of a split: 1 in train and test" in note for note in told["notes"])


def test_pictures_of_one_colour_are_no_copies(tmp_path: Path) -> None:
    names = named("train", 2) + named("val", 1) + named("test", 1)
    for shade, name in enumerate(names):
        Image.new("RGB", (32, 32), (60 * shade, 0, 0)).save(tmp_path / name)
    rows = "".join(f"{name},a photo\n" for name in names)
    (tmp_path / "captions.csv").write_text(f"image,caption\n{rows}")
    found = check(open_dataset(tmp_path))
    assert not found.copies.groups
    assert not found.problems


@pytest.mark.parametrize(
    ("written", "there", "meant"),
    [
        ("0000059.jpg", "00000059.jpg", True),
        ("dog_on_gras.jpg", "dog_on_grass.jpg", True),
        ("IMG-12.jpg", "img_0012.jpg", True),
        ("0000059.jpg", "0000058.jpg", False),  # another number is another picture
        ("cat.jpg", "locomotive.jpg", False),
    ],
)
def test_a_near_miss_of_a_name_is_suggested(
    tmp_path: Path, written: str, there: str, meant: bool
) -> None:
    photo(tmp_path / "images" / there, 0)
    (tmp_path / "captions.csv").write_text(f"image,caption,split\n{written},x,train\n")
    pictures = open_dataset(tmp_path).split("train").pictures
    assert pictures is not None
    with pytest.raises(InputError, match="no such picture") as error:
        pictures.picture(0)
    assert (f"did you mean {there}?" in str(error.value)) == meant
