"""Words that reports and the lab page use and not everybody knows, each with its meaning."""

import re

from simgrad.core.blocks import Inline, Term

MEANINGS = {
    "95% interval": (
        "where the true value lies in 95 of 100 such experiments; it covers the choice of test "
        "images and, with several seeds, the luck of the seed"
    ),
    "p": (
        "how often chance alone would make a difference at least this large. The smaller, the "
        "surer. Corrected for the number of comparisons (Holm)"
    ),
    "baseline": "the setting that all others are compared with",
    "seed": "which random numbers a run began with; several seeds show how much luck varies",
    "negatives": "items of the batch that do not belong to the query",
    "push": "the weight with which an objective drives a query and a negative apart",
    "triplet": "a query, its right answer (the positive) and a wrong one (a negative)",
    "epoch": "one pass over the training data",
    "loss": "what training makes smaller; losses of different objectives cannot be compared",
    "validation": "images kept out of training, on which the best moment of a run is chosen",
    "cross-retrieval rank": (
        "the worse of two ranks: of the text when searched from its image, and of the image when "
        "searched from its text. The image's other captions do not count; as there are fewer "
        "images than texts, a place among images counts as several"
    ),
}


def explain(word: str) -> Term:
    """One of the words above."""
    return Term(word, MEANINGS[word])


def explained(text: str, **others: Inline) -> list[Inline]:
    """A text in which {word} is one of the words above, or one of `others`."""
    parts: list[Inline] = []
    for place, piece in enumerate(re.split(r"\{([^{}]+)\}", text)):
        if place % 2:
            parts.append(others[piece] if piece in others else explain(piece))
        elif piece:
            parts.append(piece)
    return parts
