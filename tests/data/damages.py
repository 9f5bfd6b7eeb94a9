"""Damaged data sets: json, pictures and precomputed features."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from simgrad.data import open_dataset

from . import layout_writers as write


@dataclass(frozen=True)
class Damage:
    name: str
    make: Callable[[Path], object]  # writes damaged files, then uses them
    file: str
    place: str


DAMAGES: list[Damage] = []


def damage(file: str, place: str = "") -> Callable[[Callable[[Path], object]], None]:
    def add(make: Callable[[Path], object]) -> None:
        DAMAGES.append(Damage(make.__name__, make, file, place))

    return add


def edit_json(file: Path, change: Callable[[Any], None]) -> None:
    value = json.loads(file.read_text())
    change(value)
    file.write_text(json.dumps(value))


def karpathy(folder: Path, change: Callable[[Any], None]) -> object:
    edit_json(write.karpathy(folder) / "dataset_flickr8k.json", change)
    return open_dataset(folder)


@damage("dataset_flickr8k.json", "line 1")
def json_cut_off(folder: Path) -> object:
    file = write.karpathy(folder) / "dataset_flickr8k.json"
    file.write_text(file.read_text()[:300])
    return open_dataset(folder)


@damage("dataset_flickr8k.json", "byte")
def json_in_latin_1(folder: Path) -> object:
    file = write.karpathy(folder) / "dataset_flickr8k.json"
    file.write_bytes(file.read_bytes().replace(b"A boat", b"caf\xe9"))
    return open_dataset(folder)


@damage("dataset_x.json", "nested")
def json_nested_without_end(folder: Path) -> object:
    (folder / "dataset_x.json").write_text('{"images": ' + "[" * 200_000)
    return open_dataset(folder)


@damage("dataset_x.json", "list 'images'")
def json_images_is_no_list(folder: Path) -> object:
    (folder / "dataset_x.json").write_text('{"images": 3}')
    return open_dataset(folder)


@damage("dataset_flickr8k.json", "images[1]")
def record_is_no_object(folder: Path) -> object:
    return karpathy(folder, lambda value: value["images"].__setitem__(1, 5))


@damage("dataset_flickr8k.json", "images[2]")
def record_without_file_name(folder: Path) -> object:
    return karpathy(folder, lambda value: value["images"][2].pop("filename"))


@damage("dataset_flickr8k.json", "images[2]")
def record_without_split(folder: Path) -> object:
    return karpathy(folder, lambda value: value["images"][2].pop("split"))


@damage("dataset_flickr8k.json", "images[0]")
def record_without_sentences(folder: Path) -> object:
    return karpathy(folder, lambda value: value["images"][0].update(sentences=[]))


@damage("dataset_flickr8k.json", "images[0].sentences[1]")
def sentence_without_text(folder: Path) -> object:
    return karpathy(
        folder, lambda value: value["images"][0]["sentences"][1].update(raw=7, tokens=1)
    )


@damage("dataset_flickr8k.json", "images[1]")
def image_listed_twice(folder: Path) -> object:
    return karpathy(folder, lambda value: value["images"][1].update(filename="a.jpg"))


def first_picture(folder: Path) -> object:
    pictures = open_dataset(folder).split("train").pictures
    assert pictures is not None
    return pictures.picture(0)


@damage("a.jpg", "no such picture")
def picture_missing(folder: Path) -> object:
    (write.karpathy(folder) / "images" / "a.jpg").unlink()
    return first_picture(folder)


@damage("a.jpg", "is empty")
def picture_empty(folder: Path) -> object:
    (write.karpathy(folder) / "images" / "a.jpg").write_bytes(b"")
    return first_picture(folder)


@damage("a.jpg", "not a picture")
def picture_is_a_web_page(folder: Path) -> object:
    (write.karpathy(folder) / "images" / "a.jpg").write_text("<html>404</html>")
    return first_picture(folder)


@damage("a.jpg", "cannot be decoded")
def picture_cut_off(folder: Path) -> object:
    file = write.karpathy(folder) / "images" / "a.jpg"
    file.write_bytes(write.picture_bytes("a.jpg", (400, 300))[:900])
    return first_picture(folder)


@damage("train_caps.txt", "19 captions for 4 rows")
def captions_do_not_divide(folder: Path) -> object:
    file = write.precomp(folder) / "train_caps.txt"
    file.write_text("\n".join(file.read_text().split("\n")[1:]))
    return open_dataset(folder)


@damage("train_ims.npy", "no such file")
def features_missing(folder: Path) -> object:
    (write.precomp(folder) / "train_ims.npy").unlink()
    return open_dataset(folder)


@damage("train_ims.npy", "not a readable")
def features_cut_off(folder: Path) -> object:
    file = write.precomp(folder) / "train_ims.npy"
    file.write_bytes(file.read_bytes()[:-10])
    return open_dataset(folder)


@damage("train_ims.npy", "not a readable")
def features_are_pickled_objects(folder: Path) -> object:
    np.save(write.precomp(folder) / "train_ims.npy", np.array([{}, {}]), allow_pickle=True)
    return open_dataset(folder)


@damage("train_ims.npy", "shape")
def features_have_four_axes(folder: Path) -> object:
    np.save(write.precomp(folder) / "train_ims.npy", np.zeros((4, 2, 2, 2), np.float32))
    return open_dataset(folder)


@damage("train_ims.npy", "int64")
def features_are_whole_numbers(folder: Path) -> object:
    np.save(write.precomp(folder) / "train_ims.npy", np.zeros((4, 2), np.int64))
    return open_dataset(folder)


@damage("train_ims.npy", "row 2")
def features_with_nan(folder: Path) -> object:
    array = write.features(4)
    array[2, 1] = np.nan
    np.save(write.precomp(folder) / "train_ims.npy", array)
    features = open_dataset(folder).split("train").features
    assert features is not None
    return features.rows(np.array([3, 2, 0]))


@damage("train_caps.txt", "line 3")
def caption_line_not_utf_8(folder: Path) -> object:
    file = write.precomp(folder) / "train_caps.txt"
    lines = file.read_bytes().split(b"\n")
    lines[2] = b"caf\xe9"
    file.write_bytes(b"\n".join(lines))
    return open_dataset(folder)


@damage("train_caps.txt", "UTF-16")
def captions_in_utf_16(folder: Path) -> object:
    file = write.precomp(folder) / "train_caps.txt"
    file.write_text(file.read_text(), encoding="utf-16")
    return open_dataset(folder)


@damage("train_ids.txt", "3 ids")
def too_few_ids(folder: Path) -> object:
    (write.precomp(folder, ids=True) / "train_ids.txt").write_text("1\n2\n3\n")
    return open_dataset(folder)


@damage("train_ids.txt", "line 2")
def empty_id(folder: Path) -> object:
    (write.precomp(folder, ids=True) / "train_ids.txt").write_text("1\n\n3\n4\n")
    return open_dataset(folder)


@damage("train_ids.txt", "line 5")
def id_changes_within_an_image(folder: Path) -> object:
    ids = [str(i // 5) for i in range(20)]
    ids[4] = "1"
    (write.precomp(folder, ids=True) / "train_ids.txt").write_text("\n".join(ids) + "\n")
    return open_dataset(folder)


@damage("test_ids.txt", "image 1")
def id_not_in_the_mapping(folder: Path) -> object:
    edit_json(write.vse_infinity(folder, True) / "id_mapping.json", lambda v: None)
    (folder / "precomp" / "test_ids.txt").write_text("100\n555\n102\n")
    return open_dataset(folder)


@damage("id_mapping.json", "file names")
def mapping_is_a_list(folder: Path) -> object:
    (write.vse_infinity(folder, True) / "id_mapping.json").write_text("[1]")
    return open_dataset(folder)
