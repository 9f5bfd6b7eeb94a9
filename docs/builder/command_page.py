"""The page of commands: what each says of itself with `--help`, as tables."""

import contextlib
import io
import os
import re
from html import escape

from simgrad.cli.program import COMMANDS, help_text, main

_HEAD = """# Commands

Every command explains itself with `--help`. This page is made from what they print.

```text
{whole}
```
"""


def page() -> str:
    """All commands on one page."""
    parts = [_HEAD.format(whole=help_text().strip())]
    for name in COMMANDS:
        parts.append(f"## simgrad {name}\n\n{_section(said(name))}\n")
    return "\n".join(parts)


def said(name: str) -> str:
    """What `simgrad COMMAND --help` prints, without the boxes around it."""
    out = io.StringIO()
    with _columns("112"), contextlib.redirect_stdout(out), contextlib.suppress(SystemExit):
        main([name, "--help"])
    lines = (re.sub(r"^[│╭╰]|[│╮╯]$", "", line).rstrip() for line in out.getvalue().splitlines())
    return "\n".join(line for line in lines if not re.fullmatch(r"\s*[-─]{20,}", line)).strip()


@contextlib.contextmanager
def _columns(width: str):
    """A terminal of this width."""
    before = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = width
    try:
        yield
    finally:
        del os.environ["COLUMNS"]
        if before is not None:
            os.environ["COLUMNS"] = before


def _section(text: str) -> str:
    """Usage, what it does, and a table for each group of options."""
    usage, _, rest = text.partition("\n\n")
    told, tables, rows = [], [], []
    for line in rest.splitlines():
        heading = re.fullmatch(r"[\s─]*([a-z, ]+(?:arguments|options)|options)[\s─]*", line)
        if heading:
            rows = []
            tables.append((heading[1], rows))
        elif not tables or line[:1] not in (" ", "─"):  # prose, before and after
            told.append(line)
        elif line.startswith(" " * 10) and rows:
            rows[-1][1].append(line.strip())
        elif line.strip():
            option, _, meaning = line.strip().partition("  ")
            rows.append((option, [meaning.strip()] if meaning else []))
    parts = [f"```text\n{usage}\n```", "\n".join(told).strip()]
    for heading, rows in tables:
        parts.append(f"| {heading} | meaning |\n|---|---|\n" + "\n".join(map(_row, rows)))
    return "\n\n".join(parts)


def _row(row: tuple[str, list[str]]) -> str:
    option, meaning = row
    shown = escape(option).replace("|", "&#124;")
    text = " ".join(meaning).replace("|", "\\|").replace("<", "&lt;")
    return f"| <code>{shown}</code> | {text} |"
