"""A few lines on a terminal that stay in place: words, a bar, a table, drawn again and again."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from simgrad.core.console import as_text, console

_BAR = 40  # columns


class Screen:
    """What stands on the terminal now; gone when the work is over."""

    def __init__(self, live: Live) -> None:
        self.live = live

    def show(
        self, words: str, share: float, head: Sequence[str], rows: Sequence[Sequence[str]]
    ) -> None:
        """The first column is left-aligned, and gives way where the terminal is narrow."""
        table = Table(box=None, pad_edge=False, header_style="bold")
        table.add_column(as_text(head[0]), no_wrap=True, overflow="ellipsis")
        for name in head[1:]:
            table.add_column(as_text(name), justify="right", no_wrap=True, overflow="crop")
        for row in rows:
            table.add_row(*map(as_text, row))
        full = round(_BAR * min(1.0, share))
        bar = Text("━" * full, "green") + Text("━" * (_BAR - full), "bright_black")
        self.live.update(Group(as_text(words), bar, "", table), refresh=True)


@contextmanager
def screen() -> Iterator[Screen | None]:
    """On standard error, so that a pipe gets the result alone; None where that is no terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    out = console(stderr=True)
    with Live(console=out, transient=True, auto_refresh=False, redirect_stdout=False) as live:
        yield Screen(live)
