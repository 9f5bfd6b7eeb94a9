"""Tables as files: whatever stands in a cell, the table keeps its shape and nothing runs."""

import csv
import html.parser
import io
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simgrad.core.errors import InputError
from simgrad.core.tables import Bold, TableFile, csv_text, html_table, latex, markdown, write_tables

EVIL = [
    "a & b # 100% of_it {x} $y$ ~z^2 \\input{/etc/passwd}",
    "two\nlines \r\n and \x1b[31m a | pipe",
    "[5pt] <script>alert(1)</script> `code` *star*",
]


def table(*cells: str) -> TableFile:
    return TableFile(
        ("name", "value"), tuple((cell, Bold("1.5")) for cell in cells), cells[0], cells
    )


def test_latex_prints_every_character_and_runs_none() -> None:
    lines = latex([table(*EVIL)]).splitlines()
    comments = [line for line in lines if line.startswith("%")]
    assert len(comments) == 2 + len(EVIL)  # what it needs, title and notes, a line each
    rows = lines[lines.index("\\midrule") + 1 : lines.index("\\bottomrule")]
    assert len(rows) == len(EVIL)
    for row in rows:
        assert row.endswith(r"& \textbf{1.5} \\")
        bare = re.sub(r"\\(textbackslash|textasciitilde|textasciicircum|textless|textgreater)\{\}",
                      "", row[: row.rindex(" & ")])  # fmt: skip
        assert not re.search(r"(?<!\\)[&#%_$~^]", bare), row
        assert "\\input" not in bare
    assert rows[0].startswith(r"a \& b \# 100\% of\_it \{x\} \$y\$ \textasciitilde{}z")
    assert rows[2].startswith("{[}5pt]")


def test_markdown_keeps_its_columns() -> None:
    lines = [line for line in markdown([table(*EVIL)]).splitlines() if line.startswith("|")]
    assert len(lines) == 2 + len(EVIL)
    assert {len(re.findall(r"(?<!\\)\|", line)) for line in lines} == {3}
    assert "<script>" not in "".join(lines).replace("\\<", "")
    assert "**1.5**" in lines[2]


class _Tags(html.parser.HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.append(tag)


@given(st.text(max_size=60))
def test_no_text_becomes_markup(text: str) -> None:
    assert _Tags(html_table(table(f"x{text}"))).tags == _Tags(html_table(table("x"))).tags


@given(st.text(max_size=60))
def test_a_row_stays_a_row(text: str) -> None:
    for write in (markdown, latex):
        assert len(write([table(f"x{text}", "b")]).split("\n")) == len(
            write([table("a", "b")]).split("\n")
        )
    rows = list(csv.reader(io.StringIO(csv_text([{"name": text, "value": 1.5}]))))
    assert len(rows) == 2
    assert len(rows[1]) == 2


@pytest.mark.parametrize(
    "text", ['=HYPERLINK("http://x")', "+1+1", "-2+3", "@SUM(A1)", "\t=1", "  =1", "\r=1"]
)
def test_a_spreadsheet_sees_text_and_no_formula(text: str) -> None:
    (_, row) = csv.reader(io.StringIO(csv_text([{"name": text, "value": -1.5}])))
    assert row[0].startswith("'")
    assert row[1] == "-1.5"  # a number is a number


def test_files_by_their_suffix(tmp_path: Path) -> None:
    for suffix, words in ((".md", "|---|"), (".tex", "\\toprule"), (".html", "<table")):
        write_tables(tmp_path / f"t{suffix}", [table("a"), table("b")])
        assert (tmp_path / f"t{suffix}").read_text().count(words) == 2
    with pytest.raises(InputError, match=r"\.md, \.tex, \.html"):
        write_tables(tmp_path / "t.docx", [table("a")])
