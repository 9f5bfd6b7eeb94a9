"""Pieces of words as a pretrained network cuts them: its own `tokenizer.json`, of any kind."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from simgrad.core.errors import InputError
from simgrad.core.files import read_json
from simgrad.data.wordpieces import WordPieces, clean

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Inner


class Subwords:
    """Captions as a network's own tokenizer gives them, its first and last token included."""

    pad = 0  # never read: models are told how long a caption is
    mask: int | None = None
    continuations: tuple[int, ...] = ()  # networks of this kind do not hide words

    def __init__(self, inner: "Inner", longest: int | None = None) -> None:
        inner.no_padding()
        inner.no_truncation()
        self._inner = inner
        self.longest = longest  # tokens of a caption, the first and last included; None: all

    @classmethod
    def load(cls, folder: str | Path, longest: int | None = None) -> Self:
        """The `tokenizer.json` of a network's folder."""
        path = Path(folder)
        path = path / "tokenizer.json" if path.is_dir() else path
        if not path.is_file():
            raise InputError(f"{path}: there is no such file; the network's captions need it.")
        return cls.from_json({"tokenizer": read_json(path), "longest": longest}, str(path))

    def __len__(self) -> int:
        return int(self._inner.get_vocab_size())

    def cut(self, longest: int | None) -> "Subwords":
        """The same, with captions of at most `longest` ids; None: as they are."""
        return self if longest is None else Subwords(self._inner, longest)

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
        return {"kind": "subwords", "longest": self.longest, "tokenizer": inner}

    @classmethod
    def from_json(cls, value: dict[str, Any], where: str = "subwords") -> Self:
        """What `to_json` gave."""
        from tokenizers import Tokenizer as Inner

        try:
            inner = Inner.from_str(json.dumps(value["tokenizer"]))
        except Exception as error:  # `tokenizers` raises plain Exception
            raise InputError(f"{where}: not a readable tokenizer ({str(error)[:120]}).") from None
        return cls(inner, value.get("longest"))


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
