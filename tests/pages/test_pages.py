"""Blocks as HTML."""

import re

from simgrad.pages.blocks import Paragraph, Term
from simgrad.pages.rendering import fragment


def test_punctuation_stays_with_a_word_that_has_a_meaning() -> None:
    """Else a browser may begin a line with a comma, or end one with an open bracket."""
    interval, p = Term("interval", "how sure"), Term("p", "how surprising")
    html = fragment([Paragraph(["ahead (", interval, " 7 to 9, ", p, ") and ", p, "; a < b"])])
    kept = re.findall(r'<span class="whole">(.*?)<button.*?>(.*?)</button>(.*?)</span>', html)
    assert kept == [("(", "interval", ""), ("", "p", ")"), ("", "p", ";")]
    text = re.sub(r"<[^>]+>", "", html[html.index("<p>") : html.index("</p>")])
    assert text == "ahead (interval 7 to 9, p) and p; a &lt; b"
