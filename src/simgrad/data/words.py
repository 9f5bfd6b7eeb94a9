"""Captions to words: lower-cased, punctuation split off, contractions apart, any script.

Beyond ASCII marks stay with their letters (Hindi, Thai), each Han or kana character is a word of
its own, and so is other punctuation. English is cut as NLTK before 3.4 does it, with which the
published vocabularies were made, `nltk.word_tokenize(caption.lower())`:

1. Sentences (Kiss and Strunk, 2006, with the abbreviations that NLTK ships): a period ends one
   unless it belongs to an abbreviation, an initial or a number.
2. Words within a sentence (the Penn Treebank's rules, after Robert MacIntyre): only a sentence's
   last period comes off; do + n't, dog + 's, quotes as `` and ''.

Oddities of theirs are kept, because words of the published vocabularies depend on them: "street..",
"wouldn't" + "'ve", 'stop'.
"""

import re
import unicodedata
from functools import lru_cache
from itertools import pairwise


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


_ABBREVIATIONS = frozenset(
    re.findall(
        r"\S+",
        """a.a a.c a.d a.g a.h a.m a.m.e a.s a.t adm ala ariz aug ave b.f b.v bros c c.i.t c.o.m.b
        c.v calif chg cie co col colo conn corp cos ct d d.c d.h d.w dec dr e e.f e.h e.l e.m f f.g
        f.j feb fla fri ft g g.d g.f g.k ga gen h h.c h.f h.m i.m.s ill inc j.b j.c j.j j.k j.p j.r
        jan jr k kan ky l l.a l.f l.p lt ltd m m.b.a m.d.c m.j maj messrs mg mich minn mr mrs ms n
        n.c n.d n.h n.j n.m n.v n.y nev nov oct ok okla ore p p.a.m p.m pa ph.d prof r r.a r.h r.i
        r.j r.k r.t rep reps s s.a s.a.y s.c s.g s.p.a s.s sen sep sept sr st sw t t.j tenn tues u.k
        u.n u.s u.s.a u.s.s.r v va vs vt w w.c w.r w.va w.w wash wed wis yr""",
    )
)
_ENDS = frozenset(".?!")
_PUNCTUATION = frozenset(";:,.!?")
_NO_WORD = r"[?!)\";}\]*:@'({\[]"
_MANY = r"(?:-{2,}|\.{2,})"
# The last place in a piece without blanks where a sentence may end.
_LAST_WITHIN = re.compile(rf".*[.?!](?={_NO_WORD})", re.DOTALL)
_PIECES = re.compile(
    rf"{_MANY}|(?=[^(\"`{{\[:;&#*@)}}\]\-,])\S+?(?=\s|$|{_NO_WORD}|{_MANY}|,(?=$|\s|{_NO_WORD}|{_MANY}))|\S"
)
_CLOSING = re.compile(r"[\"')\]}]+?(?:\s+|(?=--)|$)")
_NUMBER = re.compile(r"-?[.,]?\d[\d,.-]*\.?")
_INITIAL = re.compile(r"[^\W\d]\.")

_RULES = [
    (re.compile(pattern), to)
    for pattern, to in (
        (r'^"', "``"),
        (r"(``)", r" \1 "),
        (r'([ (\[{<])"', r"\1 `` "),
        (r"([:,])([^\d])", r" \1 \2"),
        (r"([:,])$", r" \1 "),
        (r"\.\.\.", " ... "),
        (r"[;@#$%&]", r" \g<0> "),
        (r"([^.])(\.)([\])}>\"']*)\s*$", r"\1 \2\3 "),  # a sentence's last period
        (r"[?!]", r" \g<0> "),
        (r"([^'])' ", r"\1 ' "),
        (r"[\]\[(){}<>]", r" \g<0> "),
        (r"--", " -- "),
        (r"^|$", " "),
        (r'"', " '' "),
        (r"(\S)('')", r"\1 \2 "),
        (r"([^' ])('s|'m|'d|') ", r"\1 \2 "),
        (r"([^' ])('ll|'re|'ve|n't) ", r"\1 \2 "),
        (r"\b(can)(not)\b", r" \1 \2 "),
        (r"\b(d)('ye)\b", r" \1 \2 "),
        (r"\b(gim)(me)\b", r" \1 \2 "),
        (r"\b(gon)(na)\b", r" \1 \2 "),
        (r"\b(got)(ta)\b", r" \1 \2 "),
        (r"\b(lem)(me)\b", r" \1 \2 "),
        (r"\b(mor)('n)\b", r" \1 \2 "),
        (r"\b(wan)(na)\s", r" \1 \2 "),
        (r" ('t)(is)\b", r" \1 \2 "),
        (r" ('t)(was)\b", r" \1 \2 "),
    )
]
# Most captions are letters, digits, commas and a last period: the rules then come to this.
_PLAIN = re.compile(r"(?:[a-z0-9 ]|,(?=[a-z ]))*\.?")
_WHOLE = frozenset(("cannot", "gimme", "gonna", "gotta", "lemme", "wanna"))


def english_words(text: str) -> list[str]:
    """The words of a lower-cased text with single blanks."""
    if _PLAIN.fullmatch(text):
        words = text.replace(",", " , ").replace(".", " .").split()
        if _WHOLE.isdisjoint(words):
            return words
    return [word for sentence in sentences(text) for word in _words_of_sentence(sentence)]


def _words_of_sentence(sentence: str) -> list[str]:
    for pattern, to in _RULES:
        sentence = pattern.sub(to, sentence)
    return sentence.split()


def sentences(text: str) -> list[str]:
    """The sentences of a lower-cased text with single blanks."""
    if _ENDS.isdisjoint(text):
        return [text]
    pieces = text.split(" ")
    spans, start, at = [], 0, 0
    for piece, following in zip(pieces, [*pieces[1:], ""], strict=True):
        length = 0 if _ENDS.isdisjoint(piece) else _length_to_end(piece, following)
        if length:
            end = at + length
            spans.append((start, end))
            start = end + (length == len(piece))  # past the blank
        at += len(piece) + 1
    spans.append((start, len(text)))
    return _with_closing_marks(text, spans)


def _length_to_end(piece: str, following: str) -> int:
    """How much of a piece without blanks ends a sentence; 0 if none does."""
    if piece[-1] in _ENDS and following:
        length, after = len(piece), f" {following}"
    else:
        found = _LAST_WITHIN.match(piece)
        if found is None:
            return 0
        length, after = found.end(), piece[found.end()]
    tokens = _PIECES.findall(piece[:length] + after)
    return length if any(_is_end(token, after) for token, after in pairwise(tokens)) else 0


def _is_end(token: str, following: str) -> bool:
    if token in _ENDS:
        return True
    if not token.endswith(".") or token.endswith(".."):
        return False
    word = token[:-1]
    if word in _ABBREVIATIONS or word.rpartition("-")[2] in _ABBREVIATIONS:
        return False
    if _NUMBER.fullmatch(token) or _INITIAL.fullmatch(token):
        return not (following in _PUNCTUATION or following[0].islower())
    return True


def _with_closing_marks(text: str, spans: list[tuple[int, int]]) -> list[str]:
    """Quotes and brackets that close right after a sentence belong to it."""
    found, skipped = [], 0
    for i, (start, end) in enumerate(spans):
        start += skipped
        closing = (
            _CLOSING.match(text[spans[i + 1][0] : spans[i + 1][1]]) if spans[i + 1 :] else None
        )
        skipped = closing.end() if closing else 0
        if closing:
            end = spans[i + 1][0] + len(closing.group().rstrip())
        if closing or text[start:end]:
            found.append(text[start:end])
    return found
