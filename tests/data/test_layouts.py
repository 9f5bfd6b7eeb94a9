"""Each layout, written as its own project writes it, is recognised and keeps its pairings."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from simgrad.core.errors import InputError
from simgrad.data import Dataset, Split, open_dataset
from simgrad.data.layouts import layouts, recognise
from simgrad.data.opening import absolute

from . import layout_writers as write


def captions_by_image(split: Split) -> dict[str, list[str]]:
    """Image name (its last part) -> captions, through the explicit pairing."""
    found: dict[str, list[str]] = {Path(name).name: [] for name in split.image_names}
    for row, caption in enumerate(split.captions):
        found[Path(split.image_names[split.image_of_caption[row]]).name].append(caption)
    return found


def check_world(dataset: Dataset) -> None:
    assert list(dataset.splits) == ["train", "val", "test"]
    for name, images in write.WORLD.items():
        split = dataset.split(name)
        assert captions_by_image(split) == images
        assert split.pictures is not None
        for row, image in enumerate(split.image_names):
            picture = split.pictures.picture(row)
            assert picture.mode == "RGB"
            middle = np.asarray(picture)[4, 6].astype(int)
            assert np.abs(middle - write.colour(Path(image).name)).max() < 8


WORLD_WRITERS = {
    "karpathy": write.karpathy,
    "x-vlm": write.x_vlm,
    "pairs": write.side_by_side,
    "csv": lambda folder: write.caption_table(folder, ".csv"),
    "tsv": lambda folder: write.caption_table(folder, ".tsv"),
    "jsonl": lambda folder: write.caption_table(folder, ".jsonl"),
    "parquet": lambda folder: write.caption_table(folder, ".parquet"),
}


@pytest.mark.parametrize("layout", WORLD_WRITERS)
def test_world(layout: str, tmp_path: Path) -> None:
    dataset = open_dataset(WORLD_WRITERS[layout](tmp_path))
    check_world(dataset)
    assert dataset.layout == (layout if layout in {"karpathy", "x-vlm", "pairs"} else "captions")


def test_webdataset(tmp_path: Path) -> None:
    folder = write.webdataset(tmp_path / "shards")
    dataset = open_dataset(folder)
    assert dataset.layout == "webdataset"
    for name, images in write.WORLD.items():
        split = dataset.split(name)
        stems = {Path(image).stem: captions for image, captions in images.items()}
        assert captions_by_image(split) == stems
        assert split.pictures is not None
        for row, stem in enumerate(split.image_names):
            middle = np.asarray(split.pictures.picture(row))[4, 6].astype(int)
            assert np.abs(middle - write.colour(f"{stem}.jpg")).max() < 8
            assert split.pictures.path(row) is None


def test_hugging_face(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets", reason="the extra huggingface is not installed")
    features = datasets.Features(
        {
            "image": datasets.Image(),
            "filename": datasets.Value("string"),
            "captions": datasets.Sequence(datasets.Value("string")),
        }
    )
    saved = datasets.DatasetDict(
        {
            {"val": "validation"}.get(split, split): datasets.Dataset.from_dict(
                {
                    "image": [{"bytes": write.picture_bytes(n), "path": None} for n in images],
                    "filename": list(images),
                    "captions": list(images.values()),
                },
                features=features,
            )
            for split, images in write.WORLD.items()
        }
    )
    saved.save_to_disk(tmp_path / "saved")
    dataset = open_dataset(tmp_path / "saved")
    assert dataset.layout == "huggingface"
    check_world(dataset)


def test_karpathy_coco_merges_restval(tmp_path: Path) -> None:
    dataset = open_dataset(write.karpathy(tmp_path, coco=True))
    check_world(dataset)
    assert dataset.split("train").image_names[2] == "val2014/c.jpg"
    assert "restval" in dataset.notes[0]
    ids = dataset.split("test").caption_ids
    assert ids is not None
    assert list(ids) == ["708", "709", "710"]  # the ids of COCO's annotations


def test_karpathy_caption_ids_are_those_of_the_judgments(tmp_path: Path) -> None:
    ids = open_dataset(write.karpathy(tmp_path)).split("train").caption_ids
    assert ids is not None
    assert list(ids)[:4] == ["a.jpg#0", "a.jpg#1", "a.jpg#2", "b.jpg#0"]


def test_published_keeps_five_captions_outside_train(tmp_path: Path) -> None:
    import json

    sentences = [{"raw": f"caption {k}"} for k in range(7)]
    records = [
        {"filename": f"{s}.jpg", "split": s, "sentences": sentences} for s in ("train", "test")
    ]
    (tmp_path / "dataset_x.json").write_text(json.dumps({"images": records}))
    everything = open_dataset(tmp_path)
    assert everything.split("test").num_captions == 7
    published = open_dataset(tmp_path, published=True)
    assert published.split("train").num_captions == 7
    assert list(published.split("test").captions) == [f"caption {k}" for k in range(5)]
    assert any("beyond five" in note for note in published.notes)


@pytest.mark.parametrize("shape", [(6,), (36, 8)])
@pytest.mark.parametrize("per_caption", [False, True])
@pytest.mark.parametrize("ids", [False, True])
def test_precomp(shape: tuple[int, ...], per_caption: bool, ids: bool, tmp_path: Path) -> None:
    dataset = open_dataset(write.precomp(tmp_path / "coco_precomp", shape, per_caption, ids))
    assert dataset.layout == "precomputed"
    assert list(dataset.splits) == ["train", "val", "test"]
    for written, name in (("train", "train"), ("dev", "val"), ("test", "test")):
        split = dataset.split(name)
        images = write.FIVE[written]
        assert split.num_images == len(images)
        for row, captions in enumerate(images.values()):
            assert [split.captions[i] for i in split.captions_of(row)] == captions
        assert split.features is not None
        assert split.features.shape == shape
        rows = np.arange(split.num_images)[::-1].copy()
        expected = write.features(len(images), shape)[rows]
        np.testing.assert_array_equal(split.features.rows(rows), expected)
        if ids:
            assert split.image_names[0] == "100"


def test_precomp_with_one_caption_per_image(tmp_path: Path) -> None:
    (tmp_path / "train_caps.txt").write_text("".join(f"caption {i}\n" for i in range(10)))
    np.save(tmp_path / "train_ims.npy", write.features(10))
    split = open_dataset(tmp_path).split("train")
    assert split.num_images == 10
    assert split.image_of_caption.tolist() == list(range(10))


@pytest.mark.parametrize("raw", [False, True])
def test_vse_infinity(raw: bool, tmp_path: Path) -> None:
    dataset = open_dataset(write.vse_infinity(tmp_path / "coco", raw))
    split = dataset.split("test")
    assert split.image_names[1] == "train2014/101.jpg"
    assert split.pictures is not None
    assert split.pictures.picture(1).size == (12, 8)
    assert (split.features is None) == raw
    assert split.captions[7] == "test caption 2 of image 1 ."
    assert split.image_of_caption[7] == 1


def test_simgrad_features_replace_pictures(tmp_path: Path) -> None:
    data = write.karpathy(tmp_path / "data")
    names = {split: list(images) for split, images in write.WORLD.items()}
    folder = write.simgrad_features(tmp_path / "features", data, names)
    plain = open_dataset(data)
    for dataset in (open_dataset(data, features=folder), open_dataset(folder)):
        split = dataset.split("train")
        assert split.features is not None
        expected = [write.colour(name) for name in split.image_names]
        np.testing.assert_array_equal(split.features.rows(np.arange(3)), expected)
        assert split.features.rows(np.arange(3)).dtype == np.float32
        assert dataset.fingerprint() != plain.fingerprint()


def test_simgrad_features_must_cover_every_image(tmp_path: Path) -> None:
    data = write.karpathy(tmp_path / "data")
    folder = write.simgrad_features(tmp_path / "features", data, {"train": ["a.jpg", "c.jpg"]})
    with pytest.raises(InputError, match=r"features\.json, split 'train'.*1 of 3.*b\.jpg"):
        open_dataset(data, features=folder)


def test_coco_regions_open_at_once_in_little_memory(tmp_path: Path) -> None:
    """33 GB of regions: the header and a few rows are read, nothing else."""
    images = 113_287
    with open(tmp_path / "train_ims.npy", "wb") as file:
        header = {"descr": "<f4", "fortran_order": False, "shape": (images, 36, 2048)}
        np.lib.format.write_array_header_2_0(file, header)
        file.truncate(file.tell() + images * 36 * 2048 * 4)  # sparse: takes no disk
    (tmp_path / "train_caps.txt").write_text("a caption\n" * (images * 5))
    # A process of its own: the peak of this one may already be higher.
    code = f"""
import resource, sys, time
import numpy as np
import simgrad.data, simgrad.data.opening, simgrad.data.layouts
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
before, started = peak(), time.process_time()
split = simgrad.data.open_dataset(sys.argv[1]).split("train")
assert split.features.rows(np.array([0, 50_000, {images - 1}])).shape == (3, 36, 2048)
assert split.num_captions == {images * 5}
print(time.process_time() - started, peak() - before)
"""
    out = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True
    )
    seconds, megabytes = map(float, out.stdout.split())
    assert seconds < 1
    assert megabytes < 200


def test_recognition_names_the_choice(tmp_path: Path) -> None:
    write.precomp(tmp_path / "coco_precomp")
    write.precomp(tmp_path / "f30k_precomp")
    with pytest.raises(InputError, match=r"several data sets.*coco_precomp.*f30k_precomp"):
        open_dataset(tmp_path)
    assert recognise(tmp_path / "coco_precomp").name == "precomputed"
    with pytest.raises(InputError, match="no layout 'nonsense'"):
        open_dataset(tmp_path, layout="nonsense")


def test_every_layout_is_declared_in_full() -> None:
    for declared in layouts:
        layout = layouts.parse(declared.name)
        assert layout.name == declared.name
        assert declared.description
        assert not layout.recognises(Path("/nonexistent-path"))
        assert all(parameter.description for parameter in declared.parameters)


def test_no_splits_given_is_said(tmp_path: Path) -> None:
    write.write_pictures(tmp_path, [f"{i}.jpg" for i in range(60)])
    rows = "".join(f"{i}.jpg,caption {i}\n" for i in range(60))
    (tmp_path / "captions.csv").write_text("image,caption\n" + rows)
    dataset = open_dataset(tmp_path)
    assert {"train", "val", "test"} == set(dataset.splits)
    assert sum(split.num_images for split in dataset.splits.values()) == 60
    assert any("hash" in note for note in dataset.notes)
    (tmp_path / "captions.csv").write_text("image,caption\n" + "new.jpg,x\n" + rows)
    again = open_dataset(tmp_path)
    for name, split in dataset.splits.items():  # nothing moved when a picture was added
        assert set(split.image_names) <= set(again.split(name).image_names)


def test_fingerprint_follows_the_pairing(tmp_path: Path) -> None:
    base = open_dataset(write.karpathy(tmp_path))
    same = open_dataset(tmp_path)
    assert base.fingerprint() == same.fingerprint()
    train = base.split("train")
    import dataclasses

    rows = train.image_of_caption.copy()
    rows[0] = 1
    swapped = dataclasses.replace(train, image_of_caption=rows)
    other = dataclasses.replace(base, splits={**base.splits, "train": swapped})
    assert other.fingerprint() != base.fingerprint()


def test_missing_split_names_those_there_are(tmp_path: Path) -> None:
    dataset = open_dataset(write.karpathy(tmp_path))
    with pytest.raises(InputError, match=r"no split 'dev' \(it has: train, val, test\)"):
        dataset.split("dev")


def _image_folder(folder: Path) -> Path:
    """What `datasets.load_dataset` reads: pictures by split, with a table of what they are."""
    for split, images in write.WORLD.items():
        write.write_pictures(folder / {"val": "validation"}.get(split, split), list(images))
        place = folder / {"val": "validation"}.get(split, split)
        rows = [{"file_name": name, "captions": captions} for name, captions in images.items()]
        (place / "metadata.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
    return folder


def test_a_data_set_by_its_name_on_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same call loads a folder; no network is needed."""
    pytest.importorskip("datasets", reason="the extra huggingface is not installed")
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "hf"))
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "hf"))
    folder = _image_folder(tmp_path / "photos")
    dataset = open_dataset(f"hub(repo={folder})")
    assert dataset.layout == "hub"
    for name, images in write.WORLD.items():
        split = dataset.split(name)
        assert list(captions_by_image(split).values()) == list(images.values())
        assert split.pictures is not None
        assert split.pictures.picture(0).size == (12, 8)
    before = dataset.fingerprint()
    assert open_dataset(f"hub(repo={folder})").fingerprint() == before


def test_a_name_that_is_nowhere_says_what_to_write(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"hub\(repo=nlphuji/flickr30k\)"):
        open_dataset("nlphuji/flickr30k")
    with pytest.raises(InputError, match="Did you mean the layout 'scenes'"):
        open_dataset("scnes(train=100)")
    with pytest.raises(InputError, match="layout of files"):
        open_dataset("karpathy")
    with pytest.raises(InputError, match="has no files"):
        open_dataset(write.karpathy(tmp_path), layout="scenes")


def test_printing_a_data_set_fits_on_a_screen(tmp_path: Path) -> None:
    dataset = open_dataset(write.karpathy(tmp_path))
    assert "train: 3 images, 6 captions, pictures" in repr(dataset)
    assert len(repr(dataset)) < 300
    assert len(repr(dataset.split("train"))) < 100


def test_paths_inside_a_spec_become_absolute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write.caption_table(tmp_path / "data", ".csv")
    monkeypatch.chdir(tmp_path)
    assert absolute("data") == str(tmp_path / "data")
    assert absolute("captions(path=data)") == f"captions(path={tmp_path / 'data'})"
    spec = absolute("captions(path=data, image=image)")
    assert spec == f"captions(path={tmp_path / 'data'}, image=image)"
    assert open_dataset(spec).layout == "captions"
    assert absolute("scenes(train=3)") == "scenes(train=3)"
    with pytest.raises(InputError, match="nowhere: there is no such"):
        open_dataset("captions(path=nowhere)")


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".txt", ".jsonl", ".parquet"])
@pytest.mark.parametrize("parameter", ["image", "caption"])
def test_a_column_that_is_not_there_is_named(tmp_path: Path, suffix: str, parameter: str) -> None:
    write.caption_table(tmp_path, suffix)
    for path in (tmp_path, tmp_path / f"captions{suffix}"):
        with pytest.raises(InputError) as told:
            open_dataset(f"captions(path={path}, {parameter}=foo)")
        assert f"captions{suffix}: no column 'foo'; it has 'image', 'caption'" in str(told.value)


def test_a_split_column_that_is_not_there_is_named(tmp_path: Path) -> None:
    """Images would be spread over splits by their names, without a word."""
    write.caption_table(tmp_path, ".csv")
    with pytest.raises(InputError, match=r"captions\.csv: no column 'foo'; it has 'image'"):
        open_dataset(f"captions(path={tmp_path}, split=foo)")
