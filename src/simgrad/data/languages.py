"""In which language captions are, roughly; and whether a network's tokenizer seems to know it.

A network that was trained on English alone still cuts a German caption into something, and finds
little with it, silently. Two plain signs together tell it: the captions are not English (their
letters, or their commonest words), and the tokenizer needs clearly more pieces for them than it
needs for English. A network that knows several languages, or theirs, does not.
"""

import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence

from simgrad.data.vocabulary import Tokenizer

_SAMPLE = 500  # captions that are looked at
_FOREIGN_SCRIPT = 0.3  # share of letters from which on a script is the captions' own
_COMMON = 0.1  # share of words that are among a language's commonest
_MORE = 1.3  # times the pieces that English needs
_UNKNOWN = 0.1  # share of pieces that stand for anything unknown

# Commonest words of captions that few other languages share.
_WORDS = {
    "English": "the and with of is are his her their while on at a an in wearing man woman",
    "German": "der die das und ein eine einem einen einer mit auf im ist sind von vor mann frau",
    "French": "le la les des une un et dans sur avec est sont du au homme femme qui porte",
    "Spanish": "el la los las una un y en con del al es por hombre mujer sobre que su",
    "Italian": "il lo la gli una un e in con di del della che uomo donna su sono nel",
    "Portuguese": "o a os as uma um e em com do da no na homem mulher de que ao",
    "Dutch": "de het een en met op in van is zijn man vrouw die aan naar voor",
    "Polish": "i w z na do się jest kobieta mężczyzna przez po nad przy od",
    "Swedish": "en ett och med på i är som av till man kvinna den det",
    "Turkish": "bir ve ile bu için adam kadın üzerinde olan bir iki",
    "Indonesian": "seorang dan dengan di yang pada sebuah pria wanita sedang orang",
    "Vietnamese": "một và đang người với trên của trong các cái",
}
_LISTS = {name: frozenset(words.split()) for name, words in _WORDS.items()}
_ENGLISH = (
    "a man in a blue shirt is standing on a ladder cleaning a window",
    "two young dogs run through the green grass with a red ball",
    "a little girl climbs the stairs of her wooden playhouse",
    "people are sitting at a table in front of a large building",
)
_HIEROGLYPH = "\N{EGYPTIAN HIEROGLYPH A001}"  # in nobody's captions
_WRITTEN_WITHOUT_SPACES = ("CJK", "HIRAGANA", "KATAKANA", "THAI", "LAO", "KHMER", "MYANMAR")


def language_of(captions: Sequence[str]) -> str:
    """English, another language, a script, or nothing where it cannot be told."""
    some = _some(captions)
    letters = Counter(_script(letter) for text in some for letter in text if letter.isalpha())
    if not letters:
        return ""
    script, count = max(
        ((s, n) for s, n in letters.items() if s != "LATIN"), key=lambda o: o[1], default=("", 0)
    )
    if count >= _FOREIGN_SCRIPT * letters.total():
        return {"CJK": "Chinese", "HIRAGANA": "Japanese", "KATAKANA": "Japanese",
                "HANGUL": "Korean"}.get(script, script.title())  # fmt: skip
    words = Counter(word for text in some for word in _words(text))
    shares = {
        name: sum(words[word] for word in common) / max(1, words.total())
        for name, common in _LISTS.items()
    }
    best = max(shares, key=lambda name: shares[name])
    return best if shares[best] >= _COMMON else ""


def seems_foreign(captions: Sequence[str], tokenizer: Tokenizer) -> str | None:
    """The captions' language, where a tokenizer seems not to know it."""
    language = language_of(captions)
    if language in ("", "English"):
        return None
    some = _some(captions)
    pieces, letters = _pieces(some, tokenizer)
    stranger = list(_pieces([_HIEROGLYPH], tokenizer)[0])
    # One piece alone: it stands for anything unknown.
    if len(stranger) == 1 and pieces[stranger[0]] > _UNKNOWN * pieces.total():
        return language
    scripts = Counter(_script(letter) for text in some for letter in text if letter.isalpha())
    if scripts.most_common(1)[0][0] in _WRITTEN_WITHOUT_SPACES:
        usual = 1.0  # a letter is a syllable or a word
    else:
        english, of = _pieces(_ENGLISH, tokenizer)
        usual = english.total() / of
    return language if pieces.total() / max(1, letters) > _MORE * usual else None


def _pieces(captions: Iterable[str], tokenizer: Tokenizer) -> tuple[Counter[int], int]:
    """Pieces, without those that stand at the ends of any caption; and letters."""
    ends, letters = set(tokenizer.encode("")), 0
    pieces: Counter[int] = Counter()
    for text in captions:
        pieces.update(piece for piece in tokenizer.encode(text) if piece not in ends)
        letters += sum(letter.isalpha() for letter in text)
    return pieces, letters


def _some(captions: Sequence[str]) -> list[str]:
    """From all over the data."""
    step = max(1, len(captions) // _SAMPLE)
    return [captions[row] for row in range(0, len(captions), step)][:_SAMPLE]


def _words(text: str) -> list[str]:
    letters = "".join(c if c.isalpha() else " " for c in unicodedata.normalize("NFC", text))
    return letters.lower().split()


def _script(letter: str) -> str:
    return unicodedata.name(letter, "OTHER").split()[0]
