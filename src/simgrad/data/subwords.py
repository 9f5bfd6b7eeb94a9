"""Captions as pieces of words, by the `tokenizers` package; no hub is asked for anything.

`Subwords` are a pretrained network's own `tokenizer.json`, of any kind; `WordPieces` are BERT's.
"""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

from simgrad.core.errors import InputError
from simgrad.core.files import read_json

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Inner

SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


class Subwords:
    """Captions as a network's own tokenizer gives them, its first and last token included."""

    kind: ClassVar[str] = "subwords"  # in JSON
    pad = 0  # never read: models are told how long a caption is
    mask: int | None = None

    def __init__(self, inner: "Inner", longest: int | None = None) -> None:
        inner.no_padding()
        inner.no_truncation()
        self._inner = inner
        self.longest = longest  # tokens of a caption, the first and last included; None: all

    @classmethod
    def load(cls, path: str | Path, longest: int | None = None) -> Self:
        """The `tokenizer.json` of a network's folder."""
        path = Path(path)
        path = path / "tokenizer.json" if path.is_dir() else path
        if not path.is_file():
            raise InputError(f"{path}: there is no such file; the network's captions need it.")
        return cls.from_json({"tokenizer": read_json(path), "longest": longest}, str(path))

    def __len__(self) -> int:
        return int(self._inner.get_vocab_size())

    @property
    def continuations(self) -> tuple[int, ...]:
        """Pieces that continue a word: none, as networks of this kind do not hide words."""
        return ()

    def cut(self, longest: int | None) -> Self:
        """The same, with captions of at most `longest` ids; None: as they are."""
        return self if longest is None else type(self)(self._inner, longest)

    def encode(self, text: str) -> list[int]:
        """A caption as ids; one that is too long loses tokens before its last."""
        tokens = list(self._inner.encode(clean(text)).ids)
        if self.longest is None or len(tokens) <= self.longest:
            return tokens
        return [*tokens[: self.longest - 1], tokens[-1]]

    def unknown_words(self, text: str) -> list[str]:
        """None: every word can be spelled."""
        return []

    def decode(self, tokens: Iterable[int]) -> str:
        """The text of these ids, special ones left out."""
        return str(self._inner.decode(list(tokens), skip_special_tokens=True))

    def to_json(self) -> dict[str, Any]:
        inner = json.loads(self._inner.to_str())
        return {"kind": self.kind, "longest": self.longest, "tokenizer": inner}

    @classmethod
    def from_json(cls, value: dict[str, Any], where: str = "") -> Self:
        """What `to_json` gave."""
        from tokenizers import Tokenizer as Inner

        try:
            inner = Inner.from_str(json.dumps(value["tokenizer"]))
        except Exception as error:  # `tokenizers` raises plain Exception
            told = f"not a readable tokenizer ({str(error)[:120]})"
            raise InputError(f"{where or cls.kind}: {told}.") from None
        return cls(inner, value.get("longest"))


class WordPieces(Subwords):
    """Captions as BERT's word pieces between [CLS] and [SEP].

    Examples:
        >>> pieces = simgrad.data.WordPieces.build(["a red heart", "a blue star"])
        >>> pieces.decode(pieces.encode("a red star"))
        'a red star'
    """

    kind = "wordpieces"

    def __init__(self, inner: "Inner", longest: int | None = None) -> None:
        missing = [word for word in SPECIALS if inner.token_to_id(word) is None]
        if missing:
            raise InputError(f"the word pieces lack {', '.join(missing)}.")
        if inner.token_to_id("[PAD]") != 0:
            raise InputError("the word pieces' [PAD] must have id 0.")
        super().__init__(inner, longest)
        self.unknown, self.start, self.end, self.mask = (
            inner.token_to_id(word) or 0 for word in SPECIALS[1:]
        )

    @classmethod
    def load(cls, path: str | Path, longest: int | None = None) -> Self:
        """A `vocab.txt`, a `tokenizer.json`, or a folder with one of them (BERT, lower-cased)."""
        from tokenizers import Tokenizer as Inner

        path = Path(path)
        if path.is_dir():
            found = [path / name for name in ("tokenizer.json", "vocab.txt")]
            path = next((file for file in found if file.is_file()), path)
        if not path.is_file():
            raise InputError(f"{path}: no vocab.txt or tokenizer.json there.")
        try:
            if path.suffix == ".json":
                read_json(path)  # names the line of damaged JSON
                return cls(Inner.from_file(str(path)), longest)
            return cls(_bert(_read_pieces(path)), longest)
        except InputError as error:
            named = str(error).startswith(str(path))
            raise InputError(str(error) if named else f"{path}: {error}") from None
        except Exception as error:  # `tokenizers` raises plain Exception
            raise InputError(f"{path}: not readable word pieces ({str(error)[:120]}).") from None

    @classmethod
    def build(cls, captions: Iterable[str], size: int = 8000, longest: int | None = None) -> Self:
        """Learn word pieces from captions, for when there is no published list.

        Of pairs that are equally frequent the trainer joins the one with the lower ids first, and
        gives letters within words their ids in the order of a hash that differs each time. So the
        letters are found first, and given in order: the same captions, the same pieces.
        """
        texts = [clean(caption) for caption in captions]
        letters = set(_learned(texts, 0, SPECIALS)) - set(SPECIALS)
        begun = (*SPECIALS, *sorted(letters, key=lambda one: (one.startswith("##"), one)))
        vocabulary = _learned(texts, size, begun)
        return cls(_bert(dict.fromkeys(sorted(vocabulary, key=vocabulary.__getitem__))), longest)

    @property
    def continuations(self) -> tuple[int, ...]:
        """Pieces that continue a word."""
        pieces = self._inner.get_vocab().items()
        return tuple(sorted(i for piece, i in pieces if piece.startswith("##")))


def read_pieces(path: str | Path) -> WordPieces | Subwords:
    """The tokenizer of a folder or file: BERT's word pieces, or those of any other network."""
    path = Path(path)
    file = path / "tokenizer.json" if path.is_dir() else path
    if file.suffix == ".json" and file.is_file():
        told = read_json(file)
        model = told.get("model") if isinstance(told, dict) else None
        if isinstance(model, dict) and model.get("type") != "WordPiece":
            return Subwords.load(file)
    return WordPieces.load(path)


def clean(text: str) -> str:
    """Half surrogate pairs, which JSON may carry and Rust refuses, become U+FFFD."""
    return text.encode("utf-8", "replace").decode("utf-8") if not text.isascii() else text


def _learned(texts: list[str], size: int, begun: Sequence[str]) -> dict[str, int]:
    """The trainer's pieces and their ids, those of `begun` first; of size 0, letters alone."""
    from tokenizers import trainers

    inner = _bert(dict.fromkeys(SPECIALS))
    trainer = trainers.WordPieceTrainer(
        vocab_size=size, special_tokens=list(begun), show_progress=False
    )
    inner.train_from_iterator(texts, trainer)
    return inner.get_vocab()


def _read_pieces(path: Path) -> dict[str, None]:
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 text (byte {error.start}).") from None
    if lines[-1] == "":
        lines.pop()
    pieces: dict[str, None] = {}
    for number, line in enumerate(lines, 1):
        piece = line.rstrip("\r")
        if not piece or piece in pieces:
            raise InputError(f"{path}, line {number}: an empty or repeated word piece.")
        pieces[piece] = None
    return pieces


def _bert(pieces: dict[str, None]) -> "Inner":
    """BERT's lower-casing word-piece pipeline over these pieces, ids in their order."""
    from tokenizers import Tokenizer as Inner
    from tokenizers import decoders, models, normalizers, pre_tokenizers, processors

    ids = {piece: i for i, piece in enumerate(pieces)}
    missing = [word for word in SPECIALS if word not in ids]
    if missing:
        raise InputError(f"the word pieces lack {', '.join(missing)}.")
    inner = Inner(models.WordPiece(vocab=ids, unk_token="[UNK]", max_input_chars_per_word=100))
    inner.normalizer = normalizers.BertNormalizer(lowercase=True)
    inner.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    inner.decoder = decoders.WordPiece()
    inner.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", ids["[CLS]"]), ("[SEP]", ids["[SEP]"])],
    )
    inner.add_special_tokens(list(SPECIALS))
    return inner
