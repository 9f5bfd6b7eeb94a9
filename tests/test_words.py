"""Pages have the words that people type; tests/test_site.py asks the search of the built site."""

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[1] / "docs"
TYPED = {
    "InfoNCE": "losses",
    "CLIP loss": "losses",
    "MultipleNegativesRankingLoss": "losses",
    "confidence intervals": "evaluation",
    "hard negatives": "negatives",
    "MTEB": "evaluation",
    "fine-tune CLIP": "finetune",
    "write your own": "own",
    "custom loss": "own",
    "custom metric": "own",
    "recall@k": "evaluation",
    "statistical significance": "evaluation",
    "hyperparameter": "training",
}
FIRST = 5  # results that are seen without scrolling
Section = tuple[str, str, str]  # page, title, text


def found(words: str, sections: list[Section]) -> list[str]:
    """Pages in the order of the search: all words, in the title before in the text."""
    terms = re.split(r"[\s-]+", words.lower())
    held = []
    for page, title, text in sections:
        heading, body = title.lower(), text.lower()
        if all(term in heading or term in body for term in terms):
            in_title = sum(term in heading for term in terms)
            held.append((-in_title, -sum(body.count(term) for term in terms), page))
    return list(dict.fromkeys(page for _, _, page in sorted(held)))


def sections_of(page: Path) -> list[Section]:
    parts = re.split(r"^#+ (.+)$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return [(page.stem, title, text) for title, text in zip(parts[1::2], parts[2::2], strict=True)]


@pytest.mark.parametrize(("words", "page"), TYPED.items())
def test_pages_are_found_by_the_words_that_people_type(words: str, page: str) -> None:
    sections = [one for path in sorted(DOCS.glob("*.md")) for one in sections_of(path)]
    assert page in found(words, sections)[:FIRST]
