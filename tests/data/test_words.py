"""Words of captions: the Treebank conventions on English, sensible on everything else."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simgrad.data import Vocabulary, tokenize
from simgrad.data.words import _words, english_words, sentences

# Captions and their words, by NLTK 3.2.5: `nltk.word_tokenize(caption.lower())`.
ORIGINAL = json.loads((Path(__file__).parent / "original_words.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("case", ORIGINAL, ids=lambda case: case["caption"][:40])
def test_words_are_those_of_the_published_vocabularies(case: dict[str, Any]) -> None:
    assert tokenize(case["caption"]) == case["words"]


@pytest.mark.parametrize(
    ("caption", "words"),
    [
        ("A dog runs.", "a dog runs ."),
        ("A dog runs .", "a dog runs ."),
        ("They don't, can't and won't!", "they do n't , ca n't and wo n't !"),
        ("The dog's ball; the boys' bats", "the dog 's ball ; the boys ' bats"),
        (
            "I'm sure they'll say we've, you're, he'd",
            "i 'm sure they 'll say we 've , you 're , he 'd",
        ),
        ('She said "hello there" (twice)', "she said `` hello there '' ( twice )"),
        ("Mr. Smith in St. Louis", "mr. smith in st. louis"),
        ("He is here. She is not.", "he is here . she is not ."),
        ("A black-and-white T-shirt", "a black-and-white t-shirt"),
        ("1,000 people at 10:30, twice", "1,000 people at 10:30 , twice"),
        ("Waiting...", "waiting ..."),
        ("one -- two", "one -- two"),
        ("It costs $5.00 & 50%", "it costs $ 5.00 & 50 %"),
        ("cannot", "can not"),
        ("don’t", "do n't"),
        ("and/or", "and/or"),
        ("", ""),
        (" \t\u3000\n", ""),
    ],
)
def test_english(caption: str, words: str) -> None:
    assert tokenize(caption) == words.split()


@pytest.mark.parametrize(
    ("caption", "words"),
    [
        ("猫が寝ている。", ["猫", "が", "寝", "て", "い", "る", "。"]),
        ("एक कुत्ता दौड़ता है।", ["एक", "कुत्ता", "दौड़ता", "है", "।"]),
        ("Ein großer Hund läuft.", ["ein", "großer", "hund", "läuft", "."]),
        ("L'été à Paris", ["l'été", "à", "paris"]),
        ("кот спит!", ["кот", "спит", "!"]),
        ("كلب يركض؟", ["كلب", "يركض", "؟"]),
        ("cafe\u0301", ["café"]),  # combining accent: the same word
        ("a \u200bdog", ["a", "dog"]),  # zero-width space
        ("«Привет»", ["«", "привет", "»"]),
    ],
)
def test_other_scripts(caption: str, words: list[str]) -> None:
    assert tokenize(caption) == words


ODD = st.text(
    alphabet=st.characters(codec=None)
    | st.sampled_from("\u2028\x85\x0b\x1c\u200d\ufeff\ud800\U0001f468'\".-,:"),
    max_size=60,
)


@settings(max_examples=300, deadline=None)
@given(ODD)
def test_any_text_has_words(caption: str) -> None:
    words = tokenize(caption)
    assert all(word and not any(c.isspace() for c in word) for word in words)
    assert tokenize(caption) == words  # the cache changes nothing
    # Nothing but blanks and invisible characters is lost.
    kept = sum(character.isalnum() for word in words for character in word)
    import unicodedata

    normal = unicodedata.normalize("NFC", caption).lower()
    assert kept == sum(character.isalnum() for character in normal)


@settings(max_examples=500, deadline=None)
@given(st.text("abn019 ,.", max_size=12) | st.lists(st.sampled_from(
    ["dog", "12", "3d", "a", "cannot", "gonna", "wanna", "7,", "x,9", ",", "dr.", "5."]), max_size=6
).map(" ".join))  # fmt: skip
def test_the_short_way_for_plain_captions_ends_where_the_rules_do(text: str) -> None:
    text = " ".join(text.split())
    by_rules = [word for sentence in sentences(text) for word in _words(sentence)]
    assert english_words(text) == by_rules


@settings(max_examples=20, deadline=None)
@given(st.lists(st.sampled_from(["dog", "don't", "A", "naïve", "猫", "...", "x.y"]), min_size=1))
def test_thousands_of_words(some: list[str]) -> None:
    parts = some * (2000 // len(some) + 1)
    caption = " ".join(parts)
    vocabulary = Vocabulary.build([caption], min_count=1)
    tokens = vocabulary.encode(caption)
    assert len(tokens) >= len(parts) + 2
    assert vocabulary.unknown not in tokens


def test_long_words_take_linear_time() -> None:
    """A hundred thousand characters without a blank must not hang."""
    import time

    started = time.process_time()
    for caption in ("a'" * 50_000, "." * 100_000, "a." * 50_000, "n't" * 30_000, "猫" * 100_000):
        tokenize(caption)
    assert time.process_time() - started < 3  # 0.4 on an idle core
