"""Word vocabularies: built from captions, kept as JSON, read from published files.

Special words come first, as published: <pad> 0, <start> 1, <end> 2, <unk> 3. A caption becomes
start + words + end.

Published vocabularies are pickles of a class, and nothing from them is run. Only an empty stand-in
for `vocab.Vocabulary` and plain containers can be named (`core/pickles.py`); anything else is
refused before it is looked up. Containers can be made empty only: a call with arguments could
multiply what is in the file.
"""

import io
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol, Self

from simgrad.core.errors import InputError
from simgrad.core.files import read_json, write_json
from simgrad.core.pickles import LARGEST, Call, Machine, RefusedName
from simgrad.data.subwords import Subwords, WordPieces
from simgrad.data.words import tokenize

SPECIALS = ("<pad>", "<start>", "<end>", "<unk>")


class Tokenizer(Protocol):
    """What turns a caption into numbers; a checkpoint carries it as JSON."""

    pad: int
    longest: int | None  # tokens of a caption; None: as many as it has

    @property
    def mask(self) -> int | None:
        """The word that stands for a hidden one, where there is one."""
        ...

    @property
    def continuations(self) -> tuple[int, ...]:
        """Pieces that continue a word."""
        ...

    def __len__(self) -> int: ...

    def encode(self, text: str) -> list[int]:
        """A caption as ids, special words included."""
        ...

    def cut(self, longest: int | None) -> Self:
        """The same, with captions of at most `longest` ids; None: as they are."""
        ...

    def unknown_words(self, text: str) -> list[str]:
        """Words of a text that it cannot tell from each other; those who spell have none."""
        ...

    def to_json(self) -> dict[str, Any]:
        """Everything needed to make it again."""
        ...


class Vocabulary:
    """Words and their ids.

    Examples:
        >>> vocabulary = simgrad.data.Vocabulary.build(["a red heart", "a heart"], min_count=1)
        >>> vocabulary.words
        ('<pad>', '<start>', '<end>', '<unk>', 'a', 'heart', 'red')
        >>> vocabulary.encode("a blue heart")  # start, a, unknown, heart, end
        [1, 4, 3, 5, 2]
    """

    continuations: tuple[int, ...] = ()  # words are whole

    def __init__(self, words: Sequence[str], longest: int | None = None) -> None:
        self.words = tuple(words)
        self.longest = longest  # ids of a caption, the first and last included; None: all
        self._ids = {word: i for i, word in enumerate(self.words)}
        if len(self._ids) != len(self.words):
            double = next(word for word, n in Counter(self.words).items() if n > 1)
            raise InputError(f"the vocabulary has the word {double!r:.60} twice.")
        missing = [word for word in SPECIALS if word not in self._ids]
        if missing:
            raise InputError(f"the vocabulary lacks {', '.join(missing)}.")
        if self._ids["<pad>"] != 0:
            raise InputError("the vocabulary's <pad> must have id 0.")
        self.pad = 0
        self.start, self.end, self.unknown = (self._ids[word] for word in SPECIALS[1:])
        self.mask: int | None = self._ids.get("<mask>")

    @classmethod
    def build(cls, captions: Iterable[str], min_count: int = 4) -> Self:
        """Words that occur at least `min_count` times, commonest first, ties alphabetical.

        Give it the captions of the train split alone; published vocabularies also saw others.
        """
        counts: Counter[str] = Counter()
        for caption in captions:
            counts.update(tokenize(caption))
        kept = [word for word, n in counts.items() if n >= min_count and word not in SPECIALS]
        return cls([*SPECIALS, *sorted(kept, key=lambda word: (-counts[word], word))])

    def __len__(self) -> int:
        return len(self.words)

    def __contains__(self, word: str) -> bool:
        return word in self._ids

    def id(self, word: str) -> int:
        """The id of a word; <unk>'s for one that is not in the vocabulary."""
        return self._ids.get(word, self.unknown)

    def encode(self, text: str) -> list[int]:
        """start + words + end, as ids."""
        ids, unknown = self._ids, self.unknown
        words = [ids.get(word, unknown) for word in tokenize(text)]
        if self.longest is not None:
            words = words[: self.longest - 2]
        return [self.start, *words, self.end]

    def cut(self, longest: int | None) -> "Vocabulary":
        """The same, with captions of at most `longest` ids; None: as they are."""
        return self if longest is None else Vocabulary(self.words, longest)

    def unknown_words(self, text: str) -> list[str]:
        """Words of a text that are not in the vocabulary, each once."""
        return [word for word in dict.fromkeys(tokenize(text)) if word not in self._ids]

    def decode(self, tokens: Iterable[int]) -> str:
        """Words of these ids, special ones left out."""
        words = (self.words[token] for token in tokens)
        return " ".join(word for word in words if word not in SPECIALS)

    def to_json(self) -> dict[str, Any]:
        told: dict[str, Any] = {"kind": "words", "words": list(self.words)}
        return told if self.longest is None else {**told, "longest": self.longest}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Self:
        words = value.get("words")
        if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
            raise InputError("a word vocabulary is {'kind': 'words', 'words': [...]}.")
        return cls(words, value.get("longest"))

    def save(self, path: str | Path) -> None:
        """Write it as JSON."""
        write_json(path, self.to_json())

    @classmethod
    def load(cls, path: str | Path) -> "Vocabulary":
        """Read what `save` wrote, or a published file."""
        return read_published(path)


def read_published(path: str | Path) -> Vocabulary:
    """A vocabulary file: ours, a published JSON, or a published pickle (nothing in it runs).

    Examples:
        >>> simgrad.data.Vocabulary.build(["a red heart"], min_count=1).save("vocabulary.json")
        >>> simgrad.data.read_published("vocabulary.json").words[-1]
        'red'
    """
    path = Path(path)
    if path.suffix in {".pkl", ".pickle", ".p"}:
        value: Any = read_pickled_vocabulary(path)
    else:
        value = read_json(path)
    if not isinstance(value, dict):
        raise InputError(f"{path}: not a vocabulary.")
    try:
        if "words" in value:
            return Vocabulary.from_json(value)
        return Vocabulary(_published_words(value))
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def _published_words(value: dict[str, Any]) -> list[str]:
    """{word2idx, idx2word, idx} -> the words in the order of their ids."""
    ids = value.get("word2idx")
    if not isinstance(ids, dict) or not ids:
        raise InputError("no 'word2idx', so not a published vocabulary.")
    words: list[str | None] = [None] * len(ids)
    for word, i in ids.items():
        if not isinstance(word, str) or not isinstance(i, int) or not 0 <= i < len(ids):
            raise InputError(f"'word2idx' gives {word!r:.60} the id {i!r:.30} of {len(ids):,}.")
        if words[i] is not None:
            raise InputError(f"{words[i]!r:.60} and {word!r:.60} share the id {i}.")
        words[i] = word
    back = value.get("idx2word")
    if isinstance(back, dict):
        for i, word in back.items():
            if not str(i).isdecimal() or int(i) >= len(words) or words[int(i)] != word:
                raise InputError(f"'idx2word' at {i!r:.30} disagrees with 'word2idx'.")
    return [word for word in words if word is not None]


def tokenizer_from_json(value: dict[str, Any]) -> Tokenizer:
    """What `to_json` of a vocabulary or of word pieces gave.

    Examples:
        >>> vocabulary = simgrad.data.Vocabulary.build(["a red heart"], min_count=1)
        >>> simgrad.data.tokenizer_from_json(vocabulary.to_json()).words == vocabulary.words
        True
    """
    kind = value.get("kind") if isinstance(value, dict) else None
    if kind == "words":
        return Vocabulary.from_json(value)
    if kind == "wordpieces":
        return WordPieces.from_json(value)
    if kind == "subwords":
        return Subwords.from_json(value)
    kinds = "'words', 'wordpieces' or 'subwords'"
    raise InputError(f"a tokenizer is of kind {kinds}, not {kind!r:.40}.")


_CONTAINERS: dict[str, type] = {
    "dict": dict,
    "list": list,
    "str": str,
    "int": int,
    "object": object,
    "unicode": str,  # Python 2
    "long": int,
}


class _Inert:
    """Stands in for vocab.Vocabulary: holds attributes, has no behaviour."""


def read_pickled_vocabulary(path: Path) -> dict[str, Any]:
    """The attributes of a pickled vocabulary, written by Python 2 or 3."""
    if not path.is_file():
        raise InputError(f"{path}: there is no such file.")
    if path.stat().st_size > LARGEST:
        raise InputError(f"{path}: too large for a vocabulary.")
    try:
        data = path.read_bytes()
        value = Machine(_named, _build).load(io.BytesIO(data), len(data))
    except RefusedName as refused:
        raise InputError(
            f"{path}: wants to load '{str(refused)[:120]}', which a vocabulary does not need; "
            "not read."
        ) from None
    except Exception as error:  # a damaged pickle can fail in any way
        raise InputError(f"{path}: not a readable pickle ({str(error)[:120]}).") from None
    attributes = value if isinstance(value, dict) else getattr(value, "__dict__", None)
    if not isinstance(attributes, dict):
        raise InputError(f"{path}: holds a {type(value).__name__}, not a vocabulary.")
    return attributes


def _named(name: str) -> Call:
    module, _, own = name.rpartition(".")
    if name in {"vocab.Vocabulary", "__main__.Vocabulary"}:
        return Call(_Inert)
    if module in {"__builtin__", "builtins"} and own in _CONTAINERS:
        return Call(_empty(own))
    if name == "collections.defaultdict":
        return Call(lambda *_: {})
    if name in {"copy_reg._reconstructor", "copyreg._reconstructor"}:
        return Call(lambda *_: _Inert())  # how Python 2 made an object of a class
    raise RefusedName(name)


def _empty(name: str) -> Any:
    def make(*arguments: object) -> object:
        if arguments:
            raise RefusedName(f"{name}(...)")
        return _CONTAINERS[name]()

    return make


def _build(made: Any, state: Any) -> None:
    if not isinstance(made, _Inert) or not isinstance(state, dict):
        raise ValueError("attributes for what has none")
    made.__dict__.update(state)
