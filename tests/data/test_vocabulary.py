"""Vocabularies: built, kept, and read from published files without running anything in them."""

import io
import json
import os
import pickle
import struct
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simgrad.core.errors import InputError
from simgrad.data import (
    Vocabulary,
    WordPieces,
    open_dataset,
    read_published,
    tokenizer_from_json,
)

WORDS = ["<pad>", "<start>", "<end>", "<unk>", "dog", "a", "naïve"]
IDS = {word: i for i, word in enumerate(WORDS)}


def test_build_counts_and_orders() -> None:
    captions = ["A dog .", "a Dog", "a cat", "a zebra cat"]
    vocabulary = Vocabulary.build(captions, min_count=2)
    assert vocabulary.words == ("<pad>", "<start>", "<end>", "<unk>", "a", "cat", "dog")
    assert vocabulary.encode("A zebra dog") == [1, 4, 3, 6, 2]
    assert vocabulary.decode([1, 4, 3, 6, 2, 0]) == "a dog"
    assert len(Vocabulary.build(captions)) == 5  # only "a" occurs four times


def test_json_round_trip(tmp_path: Path) -> None:
    vocabulary = Vocabulary.build(["a naïve 猫 \ud800 dog's"], min_count=1)
    again = tokenizer_from_json(json.loads(json.dumps(vocabulary.to_json())))
    assert isinstance(again, Vocabulary)
    assert again.words == vocabulary.words
    plain = Vocabulary.build(["a naïve 猫 dog's"], min_count=1)
    plain.save(tmp_path / "vocabulary.json")
    assert Vocabulary.load(tmp_path / "vocabulary.json").words == plain.words


def test_published_json(tmp_path: Path) -> None:
    """SCAN's: {word2idx, idx2word with string keys, idx}."""
    value = {"word2idx": IDS, "idx2word": {str(i): w for w, i in IDS.items()}, "idx": len(IDS)}
    file = tmp_path / "coco_precomp_vocab.json"
    file.write_text(json.dumps(value))
    vocabulary = read_published(file)
    assert vocabulary.words == tuple(WORDS)
    assert vocabulary.encode("A dog jumps") == [1, 5, 4, 3, 2]


class _Published:
    """Pickles as the published class does, under its name."""

    def __init__(self) -> None:
        self.word2idx = dict(IDS)
        self.idx2word = {i: w for w, i in IDS.items()}
        self.idx = len(IDS)


def published_pickle(protocol: int, word2idx: Any = None) -> bytes:
    """The bytes that pickling vocab.Vocabulary gives."""
    vocabulary = _Published()
    if word2idx is not None:
        vocabulary.word2idx = word2idx
    _Published.__module__, _Published.__qualname__ = "vocab", "Vocabulary"
    import sys
    import types

    module = types.ModuleType("vocab")
    module.Vocabulary = _Published  # type: ignore[attr-defined]
    sys.modules["vocab"] = module
    try:
        return pickle.dumps(vocabulary, protocol=protocol)
    finally:
        del sys.modules["vocab"]


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_published_pickle(protocol: int, tmp_path: Path) -> None:
    file = tmp_path / "f8k_vocab.pkl"
    file.write_bytes(published_pickle(protocol))
    assert read_published(file).words == tuple(WORDS)


def test_published_pickle_of_a_defaultdict(tmp_path: Path) -> None:
    file = tmp_path / "vocab.pkl"
    file.write_bytes(published_pickle(2, defaultdict(int, IDS)))
    assert read_published(file).words == tuple(WORDS)


def python_2_text(text: str) -> bytes:
    """A Python 2 `unicode` in protocol 0."""
    return b"V" + text.encode("raw-unicode-escape") + b"\n"


@pytest.mark.parametrize("old_class", [False, True])
def test_python_2_pickle(old_class: bool, tmp_path: Path) -> None:
    """Opcodes as Python 2's pickle.dump(vocab, f) wrote them, word by word."""
    out = io.BytesIO()
    if old_class:
        out.write(b"(ivocab\nVocabulary\n")  # class Vocabulary:
    else:
        out.write(b"ccopy_reg\n_reconstructor\n(cvocab\nVocabulary\nc__builtin__\nobject\nNtR")
    out.write(b"(dS'idx'\nI7\nsS'word2idx'\n(d")
    for word, i in IDS.items():
        out.write(python_2_text(word) + b"I%d\ns" % i)
    out.write(b"sS'idx2word'\n(d")
    for word, i in IDS.items():
        out.write(b"I%d\n" % i + python_2_text(word) + b"s")
    out.write(b"sb.")
    file = tmp_path / "vocab.pkl"
    file.write_bytes(out.getvalue())
    assert read_published(file).words == tuple(WORDS)


class _Evil:
    def __init__(self, call: Any, *arguments: Any) -> None:
        self.call, self.arguments = call, arguments

    def __reduce__(self) -> Any:
        return self.call, self.arguments


def global_call(module: str, name: str, argument: str) -> bytes:
    return f"c{module}\n{name}\n(V{argument}\ntR.".encode()


def attacks(marker: Path) -> list[bytes]:
    touch = f"touch {marker}"
    nested = "\x8c\x08builtins\x8c\x0bdict.update\x93."
    return [
        pickle.dumps(_Evil(os.system, touch)),
        pickle.dumps(_Evil(eval, f"open({str(marker)!r}, 'w')")),
        pickle.dumps(_Evil(open, str(marker), "w"), protocol=0),
        pickle.dumps({"word2idx": _Evil(os.system, touch)}, protocol=4),
        global_call("os", "system", touch),
        global_call("posix", "system", touch),
        global_call("__builtin__", "eval", "1"),
        global_call("builtins", "getattr", "x"),
        global_call("simgrad.core.files", "sha256", "x"),
        global_call("copyreg", "__newobj__", "x"),
        global_call("vocab", "Vocabulary.__init__", "x"),
        global_call("collections", "OrderedDict", "x"),
        b"\x80\x04" + nested.encode("latin-1"),
        b"P1\n.",  # a persistent id
        b"\x80\x02\x82\x01.",  # an extension code
        b"\x80\x04\x95" + struct.pack("<Q", 1 << 40) + b".",  # a frame of a terabyte
        b"\x80\x04\x8d" + struct.pack("<Q", 1 << 40) + b".",  # a text of a terabyte
        b"",
        b"hello",
        b"(((((((",
        b"I7\n.",
        b"]q\x00h\x00a.",  # a list that holds itself
    ]


@pytest.mark.parametrize("which", range(22))
def test_nothing_from_a_pickle_runs(which: int, tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    file = tmp_path / "vocab.pkl"
    file.write_bytes(attacks(marker)[which])
    with pytest.raises(InputError, match=r"vocab\.pkl"):
        read_published(file)
    assert not marker.exists()


@settings(max_examples=100, deadline=None)
@given(cut=st.integers(0, 400), flip=st.integers(0, 400), value=st.integers(0, 255))
def test_damaged_pickles_are_refused_or_read(
    cut: int, flip: int, value: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    data = bytearray(published_pickle(2))
    data[flip % len(data)] = value
    file = tmp_path_factory.mktemp("vocab") / "vocab.pkl"
    file.write_bytes(bytes(data[: max(1, len(data) - cut % 50)]))
    refused = None
    try:
        read_published(file)
    except InputError as error:  # anything else would be a failure
        refused = str(error)
    assert refused is None or "vocab.pkl" in refused


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["<pad>", "<start>", "<end>"], "lacks <unk>"),
        (["<start>", "<pad>", "<end>", "<unk>"], "id 0"),
        ([*WORDS, "dog"], "'dog' twice"),
    ],
)
def test_impossible_vocabularies(words: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Vocabulary(words)


def bert_folder(folder: Path) -> Path:
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "dog", "run", "##ning", "##s", "."]
    (folder / "vocab.txt").write_text("\n".join(pieces) + "\n")
    return folder


def test_word_pieces(tmp_path: Path) -> None:
    pieces = WordPieces.load(bert_folder(tmp_path))
    assert len(pieces) == 11
    assert pieces.pad == 0
    assert pieces.encode("A DOG running.") == [2, 5, 6, 7, 8, 10, 3]
    assert pieces.encode("zebra") == [2, 1, 3]
    assert pieces.decode(pieces.encode("a dog runs")) == "a dog runs"
    again = tokenizer_from_json(json.loads(json.dumps(pieces.to_json())))
    assert again.encode("a dog runs.") == pieces.encode("a dog runs.")
    short = WordPieces.load(tmp_path, longest=4)
    assert short.encode("a dog runs.") == [2, 5, 6, 3]


def test_word_pieces_agree_with_transformers(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    bert_folder(tmp_path)
    theirs = transformers.BertTokenizer.from_pretrained(tmp_path)
    ours = WordPieces.load(tmp_path)
    for caption in ("A dog runs.", "running DOGS", "émigré a-dog", ""):
        assert ours.encode(caption) == theirs(caption)["input_ids"]


def test_the_same_captions_teach_the_same_pieces() -> None:
    """The trainer breaks ties by ids that it gives in the order of a hash."""
    captions = open_dataset("scenes(train=60, val=1, test=1)").split("train").captions
    learned = [WordPieces.build(captions, size).to_json() for size in (8000, 120) for _ in range(5)]
    assert learned[:5] == learned[:1] * 5
    assert learned[5:] == learned[5:6] * 5


def test_word_pieces_learned_from_captions() -> None:
    captions = [f"a {colour} dog is running" for colour in ("red", "blue", "green")] * 5
    pieces = WordPieces.build(captions, size=60)
    assert len(pieces) <= 60
    assert pieces.unknown not in pieces.encode("a red dog is running")
    assert pieces.encode("\ud800")[0] == pieces.start  # half a surrogate pair does not fail
