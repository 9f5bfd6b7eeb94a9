"""docs/glossary.md, from the words that reports and the lab page explain."""

from repository import ROOT

from simgrad.pages.glossary import MEANINGS

_HEAD = """# Words

What the pages, reports and commands of simgrad mean by their words.

| word | meaning |
|---|---|
"""


def page() -> str:
    """One line for each word, by alphabet."""
    words = sorted(MEANINGS, key=str.casefold)
    return _HEAD + "".join(f"| {word} | {MEANINGS[word]} |\n" for word in words)


if __name__ == "__main__":
    target = ROOT / "docs" / "glossary.md"
    target.write_text(page(), encoding="utf-8")
    print(target)
