"""Tables as files: Markdown, LaTeX, HTML and CSV, from one description.

What stands in a cell may come from a file of a stranger: a label, a file name, a caption. So every
cell is escaped for the format it goes to, a line break never ends a row, and a spreadsheet that
opens the CSV file sees text where text was, not a formula.
"""

import csv
import html
import io
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from simgrad.core.errors import InputError
from simgrad.core.files import atomic_write
from simgrad.core.text import one_line

TEXT_SUFFIXES = (".md", ".tex", ".html")


class Bold(str):
    """A cell in bold."""


@dataclass(frozen=True)
class TableFile:
    """Rows of text under named columns; the first column names the rows."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    title: str = ""
    notes: tuple[str, ...] = ()  # lines beneath


class Tabular:
    """A result whose text is a table: printed, at a prompt and in a notebook.

    A dataclass that is one is declared with `repr=False`.
    """

    def as_table(self) -> TableFile:
        raise NotImplementedError

    def __str__(self) -> str:
        return plain_text(self.as_table())

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return html_table(self.as_table())


def write_tables(path: Path, tables: Sequence[TableFile]) -> None:
    """Write tables to a .md, .tex or .html file."""
    text = text_of(path, tables)
    with atomic_write(path) as file:
        file.write(text)


def text_of(path: Path, tables: Sequence[TableFile]) -> str:
    """What a .md, .tex or .html file of tables holds."""
    if path.suffix not in _WRITERS:
        raise InputError(f"{path}: tables are written as {', '.join(_WRITERS)}.")
    return _WRITERS[path.suffix](tables)


def plain_text(table: TableFile) -> str:
    """Columns under their names, for `print` in Python; commands print through `core.console`."""
    lines = [table.columns, *table.rows]
    cells = [[one_line(cell) for cell in line] for line in lines]
    widths = [max(len(line[i]) for line in cells) for i in range(len(table.columns))]
    texts = [
        "  ".join(
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in cells
    ]
    return "\n".join([*filter(None, [table.title]), *texts, *table.notes])


def frame(records: Sequence[dict[str, Any]], index: str) -> Any:
    """A pandas DataFrame, where pandas is installed."""
    try:
        import pandas
    except ImportError:
        raise InputError(
            "a DataFrame needs pandas: pip install 'simgrad[pandas]'; to_dict() needs nothing."
        ) from None
    return pandas.DataFrame(records).set_index(index)


def markdown(tables: Sequence[TableFile]) -> str:
    """GitHub's table format."""
    return "\n".join(_markdown(table) for table in tables)


def _markdown(table: TableFile) -> str:
    head = "".join(f" {_markdown_cell(name)} |" for name in table.columns)
    lines = [f"|{head}", "|---" + "|---:" * (len(table.columns) - 1) + "|"]
    for row in table.rows:
        lines.append("|" + "".join(f" {_markdown_cell(cell)} |" for cell in row))
    title = [f"### {_markdown_cell(table.title)}", ""] if table.title else []
    notes = [line for note in table.notes for line in ("", _markdown_cell(note))]
    return "\n".join([*title, *lines, *notes]) + "\n"


def _markdown_cell(text: str) -> str:
    bare = re.sub(r"([\\`*_\[\]<>|#])", r"\\\1", one_line(text))
    return f"**{bare}**" if isinstance(text, Bold) and bare else bare


_LATEX = {
    "\\": r"\textbackslash{}",
    **{c: f"\\{c}" for c in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "±": r"$\pm$",
    "−": r"$-$",
    "–": "--",
    "→": r"$\rightarrow$",
    "≥": r"$\geq$",
    "≤": r"$\leq$",
}


def latex(tables: Sequence[TableFile]) -> str:
    """Tables for the package booktabs, which a comment names."""
    return "\n".join([r"% needs \usepackage{booktabs}", *map(_latex, tables)])


def _latex(table: TableFile) -> str:
    def line(row: Iterable[str]) -> str:
        return " & ".join(map(_latex_cell, row)) + r" \\"

    # A comment ends with its line, and one_line leaves none inside: nothing in it can run.
    comments = [f"% {one_line(text)}" for text in (table.title, *table.notes) if text]
    parts = [
        *comments,
        rf"\begin{{tabular}}{{l{'r' * (len(table.columns) - 1)}}}",
        r"\toprule",
        line(table.columns),
        r"\midrule",
        *map(line, table.rows),
        r"\bottomrule",
        r"\end{tabular}",
    ]
    return "\n".join(parts) + "\n"


def _latex_cell(text: str) -> str:
    bare = "".join(_LATEX.get(c, c) for c in one_line(text))
    # LaTeX would take "[" at the start of a row for an option of the line break before it.
    bare = "{[}" + bare[1:] if bare.startswith("[") else bare
    bare = rf"\quad {bare}" if text.startswith(" ") and bare else bare
    return rf"\textbf{{{bare}}}" if isinstance(text, Bold) and bare else bare


def html_page(tables: Sequence[TableFile]) -> str:
    """A page of its own, light and dark."""
    title = html.escape(one_line(tables[0].title or "simgrad")) if tables else "simgrad"
    body = "\n".join(html_table(table) for table in tables)
    return _PAGE.replace("{title}", title).replace("{body}", body)


def html_table(table: TableFile) -> str:
    """One table, for a page or a notebook."""
    head = "".join(f'<th scope="col">{_html_cell(name)}</th>' for name in table.columns)
    rows = []
    for first, *rest in table.rows:
        cells = "".join(f"<td>{_html_cell(cell)}</td>" for cell in rest)
        rows.append(f'<tr><th scope="row">{_html_cell(first)}</th>{cells}</tr>')
    caption = f"<caption>{_html_cell(table.title)}</caption>" if table.title else ""
    body = "\n".join(rows)
    notes = "".join(f"\n<p>{_html_cell(note)}</p>" for note in table.notes)
    return (
        f'<table class="simgrad">{caption}\n<thead><tr>{head}</tr></thead>\n'
        f"<tbody>\n{body}\n</tbody>\n</table>{notes}"
    )


def _html_cell(text: str) -> str:
    bare = html.escape(one_line(text))
    return f"<strong>{bare}</strong>" if isinstance(text, Bold) and bare else bare


_PAGE = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
:root { color-scheme: light dark; font: 15px/1.5 system-ui, sans-serif; }
body { max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; margin: 2rem 0 0; }
caption { font-weight: 600; text-align: left; padding: 0 0 .5rem; }
th, td { padding: .2rem .9rem .2rem 0; text-align: right; font-variant-numeric: tabular-nums; }
td { white-space: nowrap; }
th:first-child { text-align: left; font-weight: 400; }
thead th { border-bottom: 1px solid; font-weight: 600; }
</style>
</head>
<body>
{body}
</body>
</html>
"""

_WRITERS = {".md": markdown, ".tex": latex, ".html": html_page}


def write_csv(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    """Records under the names of the first, in their order."""
    with atomic_write(path) as file:
        file.write(csv_text(rows))


def csv_text(rows: Sequence[dict[str, Any]]) -> str:
    """Records as comma-separated values; None is an empty cell."""
    out = io.StringIO()
    names = list(rows[0]) if rows else []
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(names)
    writer.writerows([_csv_cell(row.get(name)) for name in names] for row in rows)
    return out.getvalue()


def _csv_cell(value: Any) -> Any:
    """Numbers as they are; a text that a spreadsheet would take for a formula is marked as text."""
    if value is None:
        return ""
    if not isinstance(value, str):
        return value
    text = one_line(value)
    return f"'{text}" if text.lstrip()[:1] in ("=", "+", "-", "@") else text
