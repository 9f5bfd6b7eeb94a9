"""Text from files, made harmless: names, labels and captions may hold any character."""

import unicodedata

_JOINERS = "\u200c\u200d"  # Persian, Hindi and many emoji need them


def _harmless(character: str) -> bool:
    """Printable, or a space of any script."""
    return (
        character.isprintable() or character in _JOINERS or unicodedata.category(character) == "Zs"
    )


def plain(text: str) -> str:
    """Text in which nothing can steer a terminal: what cannot be printed is spelled out."""
    if text.isprintable():
        return text
    return "".join(c if _harmless(c) or c == "\n" else ascii(c)[1:-1] for c in text)


def one_line(text: str) -> str:
    """Text in one line: breaks and what cannot be printed become spaces."""
    return " ".join("".join(c if _harmless(c) else " " for c in text).split())
