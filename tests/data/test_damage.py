"""Damaged input: each kind gives an error that names the file and the place."""

import contextlib
import gzip
import json
import shutil
import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from simgrad.data import (
    WordPieces,
    open_dataset,
    read_candidates,
    read_judgments,
    read_published,
)
from simgrad.data.base import open_logged
from simgrad.data.check import check
from simgrad.data.log import Log
from simgrad.errors import InputError

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


@damage("coco_train.json", "record 1")
def x_vlm_without_image(folder: Path) -> object:
    edit_json(write.x_vlm(folder) / "coco_train.json", lambda v: v[1].pop("image"))
    return open_dataset(folder)


@damage("coco_test.json", "record 0, caption 1")
def x_vlm_caption_is_a_number(folder: Path) -> object:
    edit_json(write.x_vlm(folder) / "coco_test.json", lambda v: v[0]["caption"].__setitem__(1, 4))
    return open_dataset(folder)


@damage("captions.csv", "line 1")
def csv_without_header(folder: Path) -> object:
    (folder / "captions.csv").write_text("a.jpg,A dog\n")
    return open_dataset(folder)


@damage("captions.csv", "line 3")
def csv_with_an_extra_column(folder: Path) -> object:
    (folder / "captions.csv").write_text("image,caption\na.jpg,x\nb.jpg,Two men, one hat\n")
    return open_dataset(folder)


@damage("captions.csv", "line 2")
def csv_with_an_open_quote(folder: Path) -> object:
    (folder / "captions.csv").write_text('image,caption\na.jpg,"A dog\nb.jpg,x\n')
    return open_dataset(folder)


@damage("captions.csv", "line 3")
def csv_line_not_utf_8(folder: Path) -> object:
    (folder / "captions.csv").write_bytes(b"image,caption\na.jpg,x\nb.jpg,caf\xe9\n")
    return open_dataset(folder)


@damage("captions.csv", "empty")
def csv_empty(folder: Path) -> object:
    (folder / "captions.csv").write_text("")
    return open_dataset(folder)


@damage("captions.tsv", "line 2")
def tsv_without_image(folder: Path) -> object:
    (folder / "captions.tsv").write_text("image\tcaption\n \tA dog\n")
    return open_dataset(folder)


@damage("captions.jsonl", "line 2")
def json_line_cut_off(folder: Path) -> object:
    (folder / "captions.jsonl").write_text('{"image": "a.jpg", "caption": "x"}\n{"image": "b.')
    return open_dataset(folder)


@damage("captions.jsonl", "line 1")
def json_line_without_caption(folder: Path) -> object:
    (folder / "captions.jsonl").write_text('{"image": "a.jpg"}\n')
    return open_dataset(folder)


@damage("captions.parquet", "no readable parquet")
def parquet_cut_off(folder: Path) -> object:
    file = write.caption_table(folder, ".parquet") / "captions.parquet"
    file.write_bytes(file.read_bytes()[:-20])
    return open_dataset(folder)


@damage("captions.parquet", "row 1")
def parquet_with_a_null(folder: Path) -> object:
    import pyarrow
    import pyarrow.parquet

    table = pyarrow.table({"image": ["a.jpg", "b.jpg"], "caption": ["x", None]})
    pyarrow.parquet.write_table(table, folder / "captions.parquet")
    return open_dataset(folder)


@damage("b.jpg", "no b.txt")
def pair_without_text(folder: Path) -> object:
    (write.side_by_side(folder) / "train" / "b.txt").unlink()
    return open_dataset(folder)


@damage("b.txt", "no picture beside it")
def pair_without_picture(folder: Path) -> object:
    (write.side_by_side(folder) / "train" / "b.jpg").unlink()
    return open_dataset(folder)


@damage("b.txt", "line 2")
def pair_text_not_utf_8(folder: Path) -> object:
    (write.side_by_side(folder) / "train" / "b.txt").write_bytes(b"fine\ncaf\xe9\n")
    return open_dataset(folder)


@damage("train-0000.tar", "member b")
def shard_without_text(folder: Path) -> object:
    write.webdataset(folder)
    with tarfile.open(folder / "train-0000.tar", "w") as archive:
        write.add_member(archive, "b.jpg", write.picture_bytes("b.jpg"))
    return open_dataset(folder)


@damage("train-0000.tar", "member b.json")
def shard_with_bad_json(folder: Path) -> object:
    with tarfile.open(folder / "train-0000.tar", "w") as archive:
        write.add_member(archive, "b.jpg", write.picture_bytes("b.jpg"))
        write.add_member(archive, "b.json", b"{")
    return open_dataset(folder)


@damage("train-0000.tar", "member")
def shard_cut_off(folder: Path) -> object:
    file = write.webdataset(folder) / "train-0000.tar"
    file.write_bytes(file.read_bytes()[:1300])
    return open_dataset(folder)


@damage("train-0000.tar", "after member")
def shard_with_a_damaged_header(folder: Path) -> object:
    file = write.webdataset(folder) / "train-0000.tar"
    data = bytearray(file.read_bytes())
    second = 512 + (len(write.picture_bytes("a.jpg")) + 511) // 512 * 512
    data[second : second + 100] = b"\xff" * 100
    file.write_bytes(bytes(data))
    return open_dataset(folder)


@damage("train-0000.tar.gz", "compressed")
def shard_compressed(folder: Path) -> object:
    data = (write.webdataset(folder) / "train-0000.tar").read_bytes()
    for file in folder.glob("*.tar"):
        file.unlink()
    (folder / "train-0000.tar.gz").write_bytes(gzip.compress(data))
    return open_dataset(folder)


@damage("saved", "cannot be read")
def hugging_face_folder_damaged(folder: Path) -> object:
    pytest.importorskip("datasets", reason="the extra huggingface is not installed")
    (folder / "saved").mkdir()
    (folder / "saved" / "dataset_dict.json").write_text('{"splits": ["train"]}')
    return open_dataset(folder / "saved")


@damage("train.npy", "3 rows for the 2 images")
def features_folder_disagrees(folder: Path) -> object:
    data = write.karpathy(folder / "data")
    out = write.simgrad_features(folder / "out", data, {"train": ["a.jpg", "b.jpg"]})
    np.save(out / "train.npy", np.zeros((3, 4), np.float32))
    return open_dataset(out)


@damage("i2t_coco.npy", "row 1")
def candidates_point_outside(folder: Path) -> object:
    split = open_dataset(write.precomp(folder)).split("train")
    i2t = np.zeros((4, 3), np.int32)
    i2t[1, 2] = 20
    np.save(folder / "i2t_coco.npy", i2t)
    np.save(folder / "t2i_coco.npy", np.zeros((20, 3), np.int32))
    return read_candidates(folder, "coco", split)


@damage("ExpertAnnotations.txt", "line 2")
def judgment_without_a_score(folder: Path) -> object:
    (folder / "ExpertAnnotations.txt").write_text("a.jpg\tb.jpg#1\t1\t2\t3\na.jpg\tb.jpg#2\t1\n")
    return read_judgments(folder)


@damage("vocab.json", "share the id")
def vocabulary_with_a_shared_id(folder: Path) -> object:
    ids = {"<pad>": 0, "<start>": 1, "<end>": 2, "<unk>": 3, "dog": 3}
    (folder / "vocab.json").write_text(json.dumps({"word2idx": ids}))
    return read_published(folder / "vocab.json")


@damage("vocab.txt", "line 3")
def word_pieces_repeated(folder: Path) -> object:
    (folder / "vocab.txt").write_text("[PAD]\n[UNK]\n[PAD]\n")
    return WordPieces.load(folder)


@damage("skip.json", "entry 0")
def skip_list_without_places(folder: Path) -> object:
    (folder / "skip.json").write_text('{"skip": [{}]}')
    return open_dataset(write.karpathy(folder / "data"), skip=folder / "skip.json")


@damage("nowhere", "no such file or folder")
def path_missing(folder: Path) -> object:
    return open_dataset(folder / "nowhere")


@damage("stuff", "no known layout")
def folder_of_something_else(folder: Path) -> object:
    (folder / "stuff").mkdir()
    (folder / "stuff" / "notes.md").write_text("hello")
    return open_dataset(folder / "stuff")


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
