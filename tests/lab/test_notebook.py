"""`simgrad.show`: a search drawn in a notebook."""

import re
from pathlib import Path

import simgrad
from simgrad.retriever.search import Searcher
from simgrad.runs.run import Run


def test_a_sentence_shows_pictures(runs: dict[str, Path], easy: tuple[str, int]) -> None:
    shown = Run.open(runs["nt"]).show(easy[0], top=3, split="test", device="cpu")
    html = shown._repr_html_()
    assert html.count("data:image/webp;base64,") == 3
    assert 'class="right"' in html
    assert re.search(r"\d+%", html)
    assert "✓" in repr(shown)
    assert "the very picture that is meant with a probability" in repr(shown)


def test_a_picture_shows_captions(
    runs: dict[str, Path], searcher: Searcher, tmp_path: Path
) -> None:
    assert searcher.split is not None
    assert searcher.split.pictures is not None
    picture = searcher.split.pictures.picture(4)
    picture.save(tmp_path / "mine.png")
    best = searcher.row(4, 1).captions[0].captions[0]
    for query in (tmp_path / "mine.png", str(tmp_path / "mine.png"), picture):
        shown = simgrad.show(runs["nt"], query, top=2, split="test", device="cpu")
        assert best in shown._repr_html_()
        assert shown._repr_html_().count("data:image/webp;base64,") == 1  # the query
        assert best in repr(shown)
