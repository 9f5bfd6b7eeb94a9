"""Damaged data sets: lists, tables, pairs, shards, and the files beside the data."""

import gzip
import json
import tarfile
from pathlib import Path

import numpy as np
import pytest

from simgrad.data import WordPieces, open_dataset, read_judgments, read_published
from simgrad.data.candidates import read_candidates

from . import layout_writers as write
from .damages import DAMAGES, damage, edit_json

__all__ = ["DAMAGES"]


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
    (folder / "captions.csv").write_text("Hund,A dog\n")
    return open_dataset(folder)


@damage("captions.csv", "line 3")
def csv_with_an_extra_column(folder: Path) -> object:
    rows = "a.jpg,x,train\nb.jpg,Two men, one hat,train\n"
    (folder / "captions.csv").write_text("image,caption,split\n" + rows)
    return open_dataset(folder)


@damage("captions.csv", "line 2")
def csv_with_an_open_quote(folder: Path) -> object:
    (folder / "captions.csv").write_text('image,caption,split\na.jpg,"A dog\nb.jpg,x\n')
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
    found = read_candidates(folder, "coco")
    found.check(split)
    return found


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
