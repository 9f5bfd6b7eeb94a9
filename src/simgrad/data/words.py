"""Captions to words: lower-cased, punctuation split off, contractions apart, any script.

On ordinary English captions this gives the words of the tokenizer behind the published
vocabularies (Penn Treebank conventions: do + n't, dog + 's, quotes as `` and ''). Beyond English:
marks stay with their letters (Hindi, Thai), each Han or kana character is a word of its own.
"""

import re
import unicodedata
from functools import lru_cache

# Kept inside a word by the Treebank conventions, as in "and/or", "t-shirt", "c++".
_INSIDE = frozenset("-/_+=*~^|\\.'`‐‑·")
_CLOSING = frozenset(["''", *"')]}>»”"])
_CONTRACTION = re.compile(r"(.*[^'])(n't|'s|'m|'d|'ll|'re|'ve|'+)")
_KEPT = 64  # characters
_WHOLE = {
    "cannot": ("can", "not"),
    "gonna": ("gon", "na"),
    "gotta": ("got", "ta"),
    "wanna": ("wan", "na"),
    "gimme": ("gim", "me"),
    "lemme": ("lem", "me"),
}
# Words whose period belongs to them unless they end the caption.
_ABBREVIATIONS = frozenset(
    re.findall(r"\S+", "mr mrs ms dr st jr sr vs no inc co corp ltd e.g i.e u.s u.k a.m p.m etc")
)


def tokenize(text: str) -> list[str]:
    """The words of a caption."""
    words: list[str] = []
    chunks = unicodedata.normalize("NFC", text).lower().replace("’", "'").split()
    last = len(chunks) - 1
    for i, chunk in enumerate(chunks):
        # Chunks of a caption repeat, so they are kept; a monstrous one is not worth the memory.
        split = _split if len(chunk) < _KEPT else _split.__wrapped__
        words.extend(split(chunk, i == last))
    return words


@lru_cache(maxsize=1 << 16)
def _split(chunk: str, last: bool) -> tuple[str, ...]:
    """The words of a piece without blanks; `last` if it ends the caption."""
    if chunk.isalpha() and chunk.isascii() and chunk not in _WHOLE:
        return (chunk,)
    pieces = _pieces(chunk)
    end = len(pieces) - 1  # the last piece that is not a closing quote or bracket
    while end > 0 and pieces[end] in _CLOSING:
        end -= 1
    words: list[str] = []
    for i, piece in enumerate(pieces):
        if any(character.isalnum() for character in piece):
            words.extend(_apart(piece, i >= end, last))
        else:
            words.append(piece)
    return tuple(words)


def _pieces(chunk: str) -> list[str]:
    """Cut punctuation and ideographs off; words keep what may stand inside them."""
    pieces: list[str] = []
    word = ""
    i = 0
    while i < len(chunk):
        character = chunk[i]
        run = _run(chunk, i)
        inside = character in _INSIDE and run == 1
        if character in ",:" and chunk[i + 1 : i + 2].isdigit():
            inside = True  # 1,000 and 10:30
        if inside or (_belongs(character) and not _ideograph(character)):
            word += character
            i += 1
            continue
        if word:
            pieces.append(word)
            word = ""
        if not _invisible(character):
            pieces.append(_mark(chunk, i, run))
        i += run
    return [*pieces, word] if word else pieces


def _run(chunk: str, i: int) -> int:
    """How many of a dot, dash or quote stand together here; 1 for anything else."""
    if chunk[i] not in ".-'`":
        return 1
    end = i
    while end < len(chunk) and chunk[end] == chunk[i]:
        end += 1
    return end - i


def _mark(chunk: str, i: int, run: int) -> str:
    """Punctuation as a word; straight double quotes open or close."""
    mark = chunk[i : i + run]
    if mark in {'"', "''"}:
        return "``" if i == 0 or chunk[i - 1] in "([{<" else "''"
    return mark


def _apart(word: str, at_end: bool, last: bool) -> list[str]:
    """Take a final period and contractions off a word."""
    tail: list[str] = []
    if word.endswith(".") and at_end and (last or not _abbreviation(word[:-1])):
        word, tail = word[:-1], ["."]
    for _ in range(3):  # "couldn't've'" is as long as they get
        match = _CONTRACTION.fullmatch(word)
        if match is None:
            break
        word = match.group(1)
        tail.insert(0, match.group(2))
    return [*_WHOLE.get(word, (word,)), *tail]


def _abbreviation(word: str) -> bool:
    return word in _ABBREVIATIONS or (len(word) == 1 and word.isalpha())


def _belongs(character: str) -> bool:
    """Letters, digits, marks, joiners and unknown characters make words."""
    return (
        character.isalnum()
        or unicodedata.category(character)[0] not in "PSZC"
        or (character in "\u200c\u200d")
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
