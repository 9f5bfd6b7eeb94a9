"""Captions to words: lower-cased, punctuation split off, contractions apart, any script.

English words are those of the tokenizer behind the published vocabularies (`treebank.py`). Beyond
ASCII: marks stay with their letters (Hindi, Thai), each Han or kana character is a word of its own,
and so is other punctuation.
"""

import unicodedata
from functools import lru_cache

from simgrad.data.treebank import english_words


def tokenize(text: str) -> list[str]:
    """The words of a caption.

    Examples:
        >>> simgrad.data.tokenize("A dog, on the grass.")
        ['a', 'dog', ',', 'on', 'the', 'grass', '.']
    """
    return list(_words(text))


@lru_cache(maxsize=1 << 17)  # a vocabulary, an index of tokens and a test read the same captions
def _words(text: str) -> tuple[str, ...]:
    if text.isascii():
        return tuple(english_words(" ".join(text.lower().split())))
    text = unicodedata.normalize("NFC", text).lower().replace("’", "'")
    words: list[str] = []
    for word in english_words(" ".join(text.split())):
        words.extend((word,) if word.isascii() else _pieces(word))
    return tuple(words)


@lru_cache(maxsize=1 << 14)
def _pieces(word: str) -> tuple[str, ...]:
    """Cut what is not ASCII apart where it is punctuation or an ideograph."""
    pieces: list[str] = []
    inside = False  # whether the last piece may grow
    for character in word:
        grows = character.isascii() or (_belongs(character) and not _ideograph(character))
        if grows and inside:
            pieces[-1] += character
        elif grows or not _invisible(character):
            pieces.append(character)
        inside = grows
    return tuple(pieces)


def _belongs(character: str) -> bool:
    """Letters, digits, marks, joiners and unknown characters make words."""
    return (
        character.isalnum()
        or unicodedata.category(character)[0] not in "PSZC"
        or character in "\u200c\u200d\u2010\u2011\u00b7"
    )


def _invisible(character: str) -> bool:
    return unicodedata.category(character) in {"Cc", "Cf"}


def _ideograph(character: str) -> bool:
    point = ord(character)
    return (
        0x3040 <= point <= 0x30FF  # kana
        or 0x3400 <= point <= 0x9FFF
        or 0xF900 <= point <= 0xFAFF
        or 0x20000 <= point <= 0x3FFFF
    )
