"""Fingerprints: the same for a copy, another after any change, and words for what it was."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from simgrad.core import derived
from simgrad.data import Dataset, Fingerprint, difference, open_dataset
from simgrad.data.fingerprint import changed, earlier_fingerprint

from . import layout_writers as write

FIXTURES = Path(__file__).parents[1] / "fixtures"


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIMGRAD_CACHE", str(tmp_path / "cache"))


def older(folder: Path) -> None:
    """As if nobody had touched it for an hour: only then are hashes kept."""
    for path in folder.rglob("*"):
        told = path.stat()
        os.utime(path, ns=(told.st_atime_ns, told.st_mtime_ns - 3600 * 10**9))


def flip(file: Path, place: int, keep_time: bool = False) -> None:
    told, data = file.stat(), bytearray(file.read_bytes())
    data[place] ^= 1
    file.write_bytes(bytes(data))
    if keep_time:
        os.utime(file, ns=(told.st_atime_ns, told.st_mtime_ns))


def hugging_face(folder: Path) -> Path:
    datasets = pytest.importorskip("datasets", reason="the extra huggingface is not installed")
    names = write.world_names()
    columns = {
        "image": [{"bytes": write.picture_bytes(n), "path": None} for n in names],
        "caption": [f"the picture {n}" for n in names],
        "filename": names,
    }
    kinds = {"image": datasets.Image()} | {
        n: datasets.Value("string") for n in ("caption", "filename")
    }
    table = datasets.Dataset.from_dict(columns, features=datasets.Features(kinds))
    datasets.DatasetDict({"train": table}).save_to_disk(folder)
    return folder


WRITERS = {
    "karpathy": write.karpathy,
    "pairs": write.side_by_side,
    "precomputed": write.precomp,
    "vse-infinity": lambda folder: write.vse_infinity(folder, False),
    "webdataset": write.webdataset,
    "huggingface": hugging_face,
}


@pytest.mark.parametrize("layout", WRITERS)
def test_a_copy_is_the_same(layout: str, tmp_path: Path) -> None:
    folder = WRITERS[layout](tmp_path / "data")
    before = open_dataset(folder).fingerprint()
    shutil.copytree(folder, tmp_path / "elsewhere" / "data")  # new times, another place
    assert open_dataset(tmp_path / "elsewhere" / "data").fingerprint() == before
    shutil.rmtree(folder)
    assert open_dataset(tmp_path / "elsewhere" / "data").fingerprint() == before


@pytest.mark.parametrize(
    ("layout", "file", "word"),
    [
        ("karpathy", "images/a.jpg", "pictures of train"),
        ("pairs", "test/e.jpg", "pictures of test"),
        ("precomputed", "train_ims.npy", "features of train"),
        ("vse-infinity", "precomp/dev_ims.npy", "features of val"),
        ("vse-infinity", "images/train2014/100.jpg", "pictures of train"),
        ("webdataset", "val-0000.tar", "pictures of val"),
    ],
)
@pytest.mark.parametrize("sampled", [False, True])
def test_a_changed_file_is_named(
    layout: str,
    file: str,
    word: str,
    sampled: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if sampled:  # small files are within the sampled pages
        monkeypatch.setattr(derived, "WHOLE", 0)
    folder = WRITERS[layout](tmp_path / "data")
    older(folder)
    before = open_dataset(folder).fingerprint()
    flip(folder / file, (folder / file).stat().st_size - (2000 if file.endswith("tar") else 3))
    now = open_dataset(folder).fingerprint()
    assert word in difference(before, now)
    assert changed(before, open_dataset(folder)) == difference(before, now)


def test_captions_pairing_names_and_splits_are_named(tmp_path: Path) -> None:
    file = write.karpathy(tmp_path) / "dataset_flickr8k.json"
    value = json.loads(file.read_text())
    before = open_dataset(tmp_path)

    def after(change: "object") -> list[str]:
        edited = json.loads(json.dumps(value))
        assert callable(change)
        change(edited["images"])
        file.write_text(json.dumps(edited))
        return changed(before.fingerprint(), open_dataset(tmp_path))

    assert after(lambda images: None) == []
    edit = lambda images: images[3]["sentences"][0].update(raw="Another .")  # noqa: E731
    assert after(edit) == ["captions of val"]
    move = lambda i: i[1]["sentences"].insert(0, i[0]["sentences"].pop())  # noqa: E731
    assert after(move) == ["pairing of train"]
    assert "the images' names of train" in after(lambda images: images[0].update(filename="x.jpg"))
    assert after(lambda images: images.pop(3)) == ["the split val, which is gone"]
    added = after(lambda images: images.append({**images[4], "filename": "z", "split": "more"}))
    assert added == ["the split more, which was not there"]


def test_words_of_generated_data() -> None:
    few, many = (open_dataset(f"scenes(train={n}, val=2, test=2)") for n in (3, 4))
    assert difference(few.fingerprint(), few.fingerprint()) == []
    assert "what is generated of train" in difference(few.fingerprint(), many.fingerprint())


def test_it_is_one_line_that_travels_as_text(tmp_path: Path) -> None:
    mark = open_dataset(write.karpathy(tmp_path)).fingerprint()
    again = Fingerprint(json.loads(json.dumps({"data": mark}))["data"])
    assert again == mark
    assert again.parts == mark.parts
    assert {"train.captions", "test.pictures"} <= mark.parts.keys()
    assert "\n" not in mark


def test_pictures_may_be_put_away_where_there_are_features(tmp_path: Path) -> None:
    folder = write.vse_infinity(tmp_path / "data", raw=False)
    before = open_dataset(folder).fingerprint()
    shutil.rmtree(folder / "images")
    assert changed(before, open_dataset(folder)) == []
    raw = write.vse_infinity(tmp_path / "raw", raw=True)
    before = open_dataset(raw).fingerprint()
    shutil.rmtree(raw / "images")
    assert "pictures of train" in changed(before, open_dataset(raw))


def test_verify_reads_what_a_sample_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(derived, "WHOLE", 1 << 20)
    folder = write.precomp(tmp_path / "data")
    large = np.arange(4 * 600_000, dtype=np.float32).reshape(4, -1)  # 9.6 MB, above the limit
    np.save(folder / "train_ims.npy", large)
    before = open_dataset(folder)
    sampled, whole = before.fingerprint(), before.fingerprint(verify=True)
    assert difference(sampled, whole) == []
    flip(folder / "train_ims.npy", 5_000_123)  # between two of the sampled pages
    now = open_dataset(folder)
    assert changed(sampled, now) == []
    assert changed(whole, now, verify=True) == ["features of train"]
    np.save(folder / "train_ims.npy", large[:, :599_999])  # another size is always seen
    assert changed(sampled, open_dataset(folder)) == ["features of train"]


def test_what_nobody_touched_is_not_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write.precomp(tmp_path / "data")
    older(folder)
    before = open_dataset(folder).fingerprint()

    def fail(*_: object) -> bytes:
        raise AssertionError("read again")

    with monkeypatch.context() as patch:
        patch.setattr(derived._File, "digest", fail)
        assert open_dataset(folder).fingerprint() == before
        with pytest.raises(AssertionError, match="read again"):
            open_dataset(folder).fingerprint(verify=True)
    # Another file with the old one's size and time: the system's own time tells.
    flip(folder / "train_ims.npy", -1, keep_time=True)
    assert changed(before, open_dataset(folder)) == ["features of train"]
    whole = open_dataset(folder).fingerprint(verify=True)
    assert whole.parts["train.features-whole"] != before.parts["train.features"]
    flip(folder / "train_ims.npy", -1)
    flip(folder / "train_ims.npy", -2)
    assert changed(before, open_dataset(folder)) == ["features of train"]


def test_a_damaged_cache_of_hashes_is_not_believed(tmp_path: Path) -> None:
    folder = write.precomp(tmp_path / "data")
    older(folder)
    before = open_dataset(folder).fingerprint()
    kept = [p for p in (tmp_path / "cache" / "hashes").rglob("*") if p.is_file()]
    assert len(kept) == 3
    for path in kept:
        flip(path, 5)
    assert open_dataset(folder).fingerprint() == before


@pytest.mark.parametrize(
    "run", ["stopped-71b75c7", "study-71b75c7/runs/nt-xent-s0"], ids=["run", "study"]
)
def test_runs_of_earlier_versions_can_be_compared(run: str) -> None:
    info = json.loads((FIXTURES / run / "run.json").read_text())
    dataset = open_dataset(info["data"])
    assert changed(info["data_fingerprint"], dataset) == []
    other = open_dataset("scenes(train=24, val=6, test=8, features=global, seed=1)")
    assert changed(info["data_fingerprint"], other) != []
    assert difference(info["data_fingerprint"], dataset.fingerprint()) != []  # cannot be compared


def test_the_earlier_fingerprint_saw_names_captions_and_pairing(tmp_path: Path) -> None:
    def earlier(dataset: Dataset) -> str:
        return earlier_fingerprint(dataset)

    write.karpathy(tmp_path / "a")
    one = earlier(open_dataset(tmp_path / "a"))
    flip(tmp_path / "a" / "images" / "a.jpg", -3)
    assert earlier(open_dataset(tmp_path / "a")) == one  # which is why there is a new one


def test_of_coco_s_regions_in_no_time(tmp_path: Path) -> None:
    images = 113_287
    (tmp_path / "data").mkdir()
    with open(tmp_path / "data" / "train_ims.npy", "wb") as file:
        header = {"descr": "<f4", "fortran_order": False, "shape": (images, 36, 2048)}
        np.lib.format.write_array_header_2_0(file, header)
        file.truncate(file.tell() + images * 36 * 2048 * 4)  # sparse: takes no disk
    (tmp_path / "data" / "train_caps.txt").write_text("a caption\n" * (images * 5))
    code = """
import sys, time
import simgrad.data.opening
dataset = simgrad.data.open_dataset(sys.argv[1])
started = time.process_time()
dataset.fingerprint()
print(time.process_time() - started)
"""
    command = [sys.executable, "-c", code, str(tmp_path / "data")]
    out = subprocess.run(command, capture_output=True, text=True, check=True)
    assert float(out.stdout) < 1
