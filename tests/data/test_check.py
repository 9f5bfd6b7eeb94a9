"""`simgrad datasets`: finds every problem, says where, and writes a list that leaves it out."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from simgrad.cli.program import main
from simgrad.core.errors import InputError
from simgrad.data import Split, open_dataset
from simgrad.data.check import portrait, shared_captions
from simgrad.data.layouts import layouts

from . import layout_writers as write


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["datasets", *arguments])
    return int(ended.value.code or 0)


def problems(folder: Path, capsys: pytest.CaptureFixture[str], *options: str) -> list[str]:
    assert run(str(folder), "--json", *options) == 0
    found = json.loads(capsys.readouterr().out)["problems"]
    return [f"{p['file']}, {p['place']}: {p['what']}" for p in found]


def test_lists_layouts(capsys: pytest.CaptureFixture[str]) -> None:
    assert run() == 0
    out = capsys.readouterr().out
    assert all(layout.name in out for layout in layouts)
    assert max(len(line) for line in out.split("\n")) <= 80
    assert run("--json") == 0
    assert "scenes" in {one["name"] for one in json.loads(capsys.readouterr().out)}


def test_summary(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write.karpathy(tmp_path, coco=True)
    assert run(str(tmp_path)) == 0
    out = capsys.readouterr().out
    for expected in (
        "coco: layout karpathy",
        "restval",
        "1-3",
        "median 12 x 8",
        "problems    none",
    ):
        assert expected in out
    # A command to copy stands on one line, however long its path is.
    told = [line for line in out.split("\n") if not line.startswith("next")]
    assert max(map(len, told)) <= 80
    assert run(str(tmp_path), "--json") == 0
    value = json.loads(capsys.readouterr().out)
    assert value["splits"]["train"]["images"] == 3
    assert value["splits"]["train"]["captions_per_image"] == [1, 3]
    assert value["problems"] == []


def test_a_wrong_path_is_said_in_plain_words(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("nowhere") == 2
    assert "nowhere: there is no such file" in capsys.readouterr().err


def test_data_without_captions_are_a_problem(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "captions.txt").write_text("image,caption\n")
    (problem,) = problems(tmp_path, capsys)
    assert problem.startswith(f"{tmp_path}, : recognised as captions, but it has no captions. ")
    assert run(str(tmp_path)) == 0
    assert "none" not in capsys.readouterr().out


def damaged(folder: Path) -> Path:
    """A Karpathy folder with one of each problem."""
    file = write.karpathy(folder) / "dataset_flickr8k.json"
    value = json.loads(file.read_text())
    images = value["images"]
    images[0]["sentences"][1]["raw"] = "  "
    images[0]["sentences"][2]["raw"] = images[0]["sentences"][0]["raw"]
    images[1]["sentences"][1]["raw"] = "half \ud83d a pair"
    images.append({"filename": "f.jpg", "split": "train", "sentences": "none"})
    images.append({"filename": "g.jpg", "split": "extra", "sentences": [{"raw": "an extra"}]})
    images.append({**images[3], "split": "test", "filename": "d2.jpg"})
    file.write_text(json.dumps(value))
    write.write_pictures(folder / "images", ["g.jpg"])
    (folder / "images" / "c.jpg").unlink()
    (folder / "images" / "d.jpg").write_bytes(b"<html>")
    (folder / "images" / "d2.jpg").write_bytes(write.picture_bytes("d.jpg", (200, 200))[:500])
    return folder


def test_every_problem_has_its_place(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = problems(damaged(tmp_path), capsys)
    expected = [
        ("images[5]", "f.jpg has no 'sentences'"),
        ("images[0].sentences[1]", "a.jpg#1 is empty"),
        ("images[1].sentences[1]", "replacement character"),
        ("images/c.jpg", "no such picture"),
        ("images/d.jpg", "not a picture"),
        ("images/d2.jpg", "cannot be decoded"),
        ("extra", "unknown split"),
    ]
    for place, what in expected:
        assert any(place in line and what in line for line in found), (place, found)
    assert len(found) == len(expected)


def test_missing_pictures_come_first_and_repeats_are_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = damaged(tmp_path)
    assert "images/c.jpg" in problems(folder, capsys)[0]
    assert run(str(folder)) == 0
    out = capsys.readouterr().out
    assert "repeat another of their image: 1 in train" in out
    assert "more than one image" not in out
    assert "problems    7 (missing pictures first: 1)" in out
    assert "--fix" in out


def test_fix_leaves_out_what_is_wrong_and_nothing_else(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = damaged(tmp_path / "data")
    with pytest.raises(InputError, match=r"images\[5\].*--fix"):
        open_dataset(folder)
    skip = tmp_path / "skip.json"
    assert run(str(folder), "--fix", "--output", str(skip)) == 0
    assert "leaves out 6 of 7 problems" in capsys.readouterr().err
    dataset = open_dataset(folder, skip=skip)
    train = dataset.split("train")
    assert list(train.image_names) == ["a.jpg", "b.jpg"]
    assert list(train.captions) == ["A dog runs .", "A dog runs .", "Two men, one hat ."]
    assert train.image_of_caption.tolist() == [0, 0, 1]
    assert train.caption_ids == ["a.jpg#0", "a.jpg#2", "b.jpg#0"]
    assert train.pictures is not None
    assert train.pictures.picture(1).size == (12, 8)
    assert dataset.split("val").num_images == 0
    left = problems(folder, capsys, "--skip", str(skip))
    assert all("unknown split" in line or "without captions" in line for line in left)


def test_files_of_one_name_in_two_folders_are_told_apart(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write.side_by_side(tmp_path / "data")
    write.write_pictures(folder / "val", ["a.jpg"])
    (folder / "val" / "a.txt").write_text("Another a .\n")
    (folder / "train" / "a.txt").unlink()
    assert run(str(folder), "--fix") == 0
    dataset = open_dataset(folder, skip=folder / "skip.json")
    assert list(dataset.split("train").image_names) == ["train/b.jpg", "train/c.jpg"]
    assert list(dataset.split("val").image_names) == ["val/a.jpg", "val/d.jpg"]
    moved = folder.rename(tmp_path / "moved")
    assert open_dataset(moved, skip=moved / "skip.json").split("train").num_images == 2


def test_a_skip_list_for_other_data_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = damaged(tmp_path / "data")
    capsys.readouterr()
    assert run(str(folder), "--fix") == 0
    told = capsys.readouterr().out
    assert "--fix" not in told  # it was done
    assert f"simgrad choose {folder} --skip {folder / 'skip.json'}" in told
    assert (folder / "skip.json").is_file()
    other = write.karpathy(tmp_path / "other")
    with pytest.raises(InputError, match="another caption"):
        open_dataset(other, skip=folder / "skip.json")


def test_features_are_looked_at(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write.precomp(tmp_path, (36, 8))
    array = write.features(4, (36, 8))
    array[1, 3, 2] = np.inf
    array[3] = 0
    np.save(tmp_path / "train_ims.npy", array)
    lines = (tmp_path / "dev_caps.txt").read_bytes().split(b"\n")
    lines[6] = b"caf\xe9"
    (tmp_path / "dev_caps.txt").write_bytes(b"\n".join(lines))
    (tmp_path / "test_ims.npy").unlink()
    found = problems(tmp_path, capsys)
    for place, what in [
        ("train_ims.npy, row 1", "NaN or infinity"),
        ("train_ims.npy, row 3", "all features are 0"),
        ("dev_caps.txt, line 7", "not UTF-8"),
        ("test_ims.npy", "no such file"),
    ]:
        assert any(place in line and what in line for line in found), (place, found)
    assert len(found) == 4
    skip = tmp_path / "list.json"
    assert run(str(tmp_path), "--fix", "--output", str(skip)) == 0
    dataset = open_dataset(tmp_path, skip=skip)
    train, val = dataset.split("train"), dataset.split("val")
    assert list(train.image_names) == ["train-0", "train-2"]
    assert train.captions[5] == "train caption 0 of image 2 ."
    assert train.features is not None
    np.testing.assert_array_equal(train.features.rows(np.array([1])), array[[2]])
    assert val.num_captions == 9
    assert val.captions[6] == "dev caption 2 of image 1 ."
    assert val.image_of_caption.tolist() == [0] * 5 + [1] * 4
    assert "test" not in dataset.splits


def test_an_image_in_two_splits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write.x_vlm(tmp_path)
    records = json.loads((tmp_path / "coco_test.json").read_text())
    records.append({"image": "a.jpg", "caption": ["A leak ."]})
    (tmp_path / "coco_test.json").write_text(json.dumps(records))
    found = problems(tmp_path, capsys)
    assert len(found) == 1
    assert "a.jpg" in found[0]
    assert "'train'" in found[0]


def test_damage_in_the_middle_is_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Damage in the middle of a file shows only when it is decoded."""
    from PIL import Image

    write.karpathy(tmp_path)
    file = tmp_path / "images" / "a.jpg"
    noise = np.random.default_rng(0).integers(0, 255, (64, 64, 3), dtype=np.uint8)
    Image.fromarray(noise).save(tmp_path / "a.png")
    data = bytearray((tmp_path / "a.png").read_bytes())
    data[3000:3050] = bytes(50)
    file.write_bytes(bytes(data))
    (tmp_path / "a.png").unlink()
    for options in ([], ["--thorough"]):
        found = problems(tmp_path, capsys, *options)
        assert len(found) == 1
        assert "a.jpg" in found[0]


def test_many_problems_are_counted_and_all_on_request(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = "".join(f"{i}.jpg,x,train\n" for i in range(30))
    (tmp_path / "captions.csv").write_text("image,caption,split\n" + rows)
    (tmp_path / "images").mkdir()
    assert run(str(tmp_path)) == 0
    assert "and 10 more" in capsys.readouterr().out
    assert run(str(tmp_path), "--all") == 0
    assert "29.jpg" in capsys.readouterr().out


@pytest.mark.parametrize("layout", ["precomputed", "webdataset"])
def test_a_layout_that_is_not_there_is_no_data_set_without_problems(
    layout: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(str(tmp_path), "--layout", layout) == 2
    assert f"nothing there is of the layout {layout}" in capsys.readouterr().err


def test_a_closed_pipe_is_no_error(tmp_path: Path) -> None:
    folder = write.karpathy(tmp_path)
    code = "import sys; from simgrad.cli.program import main; main(sys.argv[1:])"
    command = f"{sys.executable} -c '{code}' datasets {folder} --all | head -1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
    assert "flickr8k" in done.stdout
    assert "Traceback" not in done.stderr


def test_captions_of_several_images_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    """By a slow loop; letters and spaces do not count."""
    captions = ["A dog.", "a  dog.", "a cat.", "a cat.", "A  Dog.", "a hen."]
    owner = np.array([0, 0, 1, 1, 2, 2])
    split = Split("made", "train", captions, owner, ["0", "1", "2"])
    plain = [" ".join(caption.lower().split()) for caption in captions]
    slow = sum(
        any(a == b and owner[i] != owner[j] for j, b in enumerate(plain))
        for i, a in enumerate(plain)
    )
    assert shared_captions(split) == slow == 3
    assert run("scenes(train=300, val=2, test=2)") == 0
    out = " ".join(capsys.readouterr().out.split())
    number = shared_captions(open_dataset("scenes(train=300, val=2, test=2)").split("train"))
    assert number > 0
    assert f"stand on more than one image: {number} in train" in out


def _split(name: str, images: int) -> Split:
    owner = np.arange(images)
    texts, names = [f"thing {i}" for i in owner], [f"{i}" for i in owner]
    return Split("made", name, texts, owner, names)


def test_one_is_no_plural() -> None:
    assert _split("val", 1).summary() == "1 image, 1 caption"
    assert _split("val", 2).summary() == "2 images, 2 captions"


def test_a_look_at_the_data_says_what_to_expect() -> None:
    def told(train: int, shared: int, val: int = 100, test: int = 100) -> str:
        sizes = {"train": train, "val": val, "test": test}
        splits = {name: _split(name, size) for name, size in sizes.items()}
        return " ".join(portrait(splits, shared))

    assert told(5000, 10) == ""
    assert told(300, 0).startswith("300 training images are few")
    assert told(1, 0).startswith("1 training image is few")
    assert told(5000, 600).startswith("12% of the training captions stand on more than one image")
    assert told(5000, 0, val=99).startswith("99 validation images are few: settings are chosen")
    assert told(5000, 0, val=1).startswith("1 validation image is few")
    few = told(5000, 0, test=4)
    assert few.startswith("4 test images are few")
    assert "25 points" in few  # the standard error of a recall of 50%
