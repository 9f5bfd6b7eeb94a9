"""Captions of any kind survive being written and read: odd Unicode, empty lines, great length."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from simgrad.core.errors import InputError
from simgrad.data import Source, Split, Vocabulary, open_dataset
from simgrad.data.batches import index_batch
from tests.hardening.memory import at_most

from . import layout_writers as write

# Every character but half surrogate pairs; often those that others take for line breaks.
CHARACTERS = st.characters(codec="utf-8") | st.sampled_from(
    "\x0b\x0c\x1c\x85\u2028\u2029\ufeff\u200d\"',\t\0"
)
TEXT = st.text(CHARACTERS, max_size=40)
LINE = TEXT.map(lambda text: text.replace("\n", "").replace("\r", "").lstrip("\ufeff"))
some = settings(max_examples=60, deadline=None)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("odd")


def check(folder: Path, captions: list[str]) -> Split:
    """All captions, in order, each with its own image, and they can be encoded."""
    split = open_dataset(folder).split("train")
    assert list(split.captions) == captions
    assert [split.image_names[i] for i in split.image_of_caption] == [
        f"{i}.jpg" for i in range(len(captions))
    ]
    return split


@some
@given(st.lists(TEXT, min_size=1, max_size=6))
def test_csv(folder: Path, captions: list[str]) -> None:
    (folder / "csv").mkdir(exist_ok=True)
    with open(folder / "csv" / "captions.csv", "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["image", "caption", "split"])
        writer.writerows([f"{i}.jpg", text, "train"] for i, text in enumerate(captions))
    check(folder / "csv", captions)


@some
@given(st.lists(TEXT, min_size=1, max_size=6))
def test_json_lines(folder: Path, captions: list[str]) -> None:
    (folder / "jsonl").mkdir(exist_ok=True)
    lines = [
        json.dumps(
            {"image": f"{i}.jpg", "caption": text, "split": "train"}, ensure_ascii=i % 2 == 0
        )
        for i, text in enumerate(captions)
    ]
    text = "\n\n".join(lines) + "\n"  # with empty lines between
    (folder / "jsonl" / "captions.jsonl").write_bytes(text.encode())
    check(folder / "jsonl", captions)


@some
@given(st.lists(TEXT, min_size=1, max_size=6))
def test_karpathy(folder: Path, captions: list[str]) -> None:
    (folder / "karpathy").mkdir(exist_ok=True)
    images = [
        {"filename": f"{i}.jpg", "split": "train", "sentences": [{"raw": text}]}
        for i, text in enumerate(captions)
    ]
    (folder / "karpathy" / "dataset_odd.json").write_text(json.dumps({"images": images}))
    check(folder / "karpathy", captions)


@some
@given(st.lists(LINE, min_size=1, max_size=4), st.sampled_from(["\n", "\r\n"]), st.booleans())
def test_precomp_lines_pair_by_place(
    folder: Path, captions: list[str], newline: str, final: bool
) -> None:
    """Empty lines are captions here: dropping one would move all that follow to other images."""
    (folder / "precomp").mkdir(exist_ok=True)
    lines = [text for text in captions for _ in range(2)]
    text = newline.join(lines) + (newline if final or not lines[-1] else "")
    (folder / "precomp" / "train_caps.txt").write_bytes(text.encode())
    np.save(folder / "precomp" / "train_ims.npy", write.features(len(captions)))
    split = open_dataset(folder / "precomp").split("train")
    assert list(split.captions) == lines
    assert split.image_of_caption.tolist() == [i // 2 for i in range(len(lines))]


@settings(max_examples=10, deadline=None)
@given(st.text(CHARACTERS, min_size=10, max_size=30), st.integers(1000, 5000))
def test_thousands_of_words_become_a_batch(folder: Path, word: str, count: int) -> None:
    caption = " ".join([word] * count)
    (folder / "long").mkdir(exist_ok=True)
    with open(folder / "long" / "captions.tsv", "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, delimiter="\t")
        writer.writerows([["image", "caption", "split"], ["0.jpg", caption, "train"]])
        writer.writerow(["1.jpg", "short", "train"])
    write.write_pictures(folder / "long", ["0.jpg", "1.jpg"])
    split = check(folder / "long", [caption, "short"])
    vocabulary = Vocabulary.build(split.captions, min_count=1)
    source = Source(split, vocabulary, transform=lambda picture, _: torch.zeros(1))
    short = vocabulary.encode("short")
    batch = source.fetch(index_batch(split, np.array([0, 1])))
    long = vocabulary.encode(caption)
    assert batch.tokens[0].tolist()[: len(long)] == long
    assert batch.lengths.tolist() == [len(long), len(short)]
    assert batch.tokens[1].tolist() == [*short, *[0] * (batch.tokens.shape[1] - len(short))]


_JSON = '{{"image": "0.jpg", "caption": "{}"}}'
_KARPATHY = (
    '{{"images": [{{"filename": "0.jpg", "split": "train", "sentences": [{{"raw": "{}"}}]}}]}}'
)


@pytest.mark.parametrize(
    ("file", "text", "place"),
    [
        ("captions.txt", "0.jpg\t{}\n1.jpg\tshort\n", "line 1"),
        ("captions.csv", 'image,caption\n0.jpg,"{}\n1.jpg,short\n', "line 2"),
        ("captions.csv", 'caption,image\n"{}",0.jpg\n', "line 2"),
        ("captions.csv", 'caption,image\n"{},0.jpg\nshort,1.jpg\n', "line 2"),
        ("captions.jsonl", _JSON.replace("{}", "a") + f"\n{_JSON}\n", "line 2"),
        ("dataset.json", _KARPATHY, "images[0].sentences[0]"),
    ],
)
def test_a_caption_without_an_end_is_refused_at_its_place(
    file: str, text: str, place: str, tmp_path: Path
) -> None:
    write.write_pictures(tmp_path, ["0.jpg", "1.jpg"])
    path = tmp_path / file
    for words, refused in ((150_000, False), (2_500_000, True)):
        path.write_text(text.format("word " * words))
        if not refused and "{},0.jpg" not in text:
            open_dataset(tmp_path)
            continue
        with at_most(150), pytest.raises(InputError) as error:
            open_dataset(tmp_path)
        assert str(error.value).startswith(f"{path}, {place}: ")
    assert "closing quote" in str(error.value)
