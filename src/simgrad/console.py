"""What commands print: tables that read well at 80 columns and in a pipe, and progress bars."""

import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Table

T = TypeVar("T")


def console(stderr: bool = False) -> Console:
    """A console that never wraps tables in a pipe."""
    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else 240
    return Console(file=stream, width=width, highlight=False, soft_wrap=not stream.isatty())


def print_table(
    columns: Sequence[str], rows: Iterable[Sequence[Any]], *, title: str | None = None
) -> None:
    """A table: the first column left-aligned, figures right-aligned."""
    rows = [[str(cell) for cell in row] for row in rows]
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for i, name in enumerate(columns):
        numeric = bool(rows) and all(_is_figure(row[i]) for row in rows if row[i])
        table.add_column(name, justify="right" if numeric else "left", no_wrap=i == 0)
    for row in rows:
        table.add_row(*row)
    console().print(table)


def _is_figure(text: str) -> bool:
    bare = text.replace("[bold]", "").replace("[/bold]", "").strip()
    return bare[:1].isdigit() or bare[:2] in {"–", "-", "±"} or bare[:1] in "+-<≥≤~.—"


def track(items: Iterable[T], description: str, total: int | None = None) -> Iterator[T]:
    """Iterate with a progress bar on the terminal; silent where there is none."""
    if not sys.stderr.isatty():
        yield from items
        return
    total = total if total is not None else len(items) if isinstance(items, Sequence) else None
    with progress() as bar:
        task = bar.add_task(description, total=total)
        for item in items:
            yield item
            bar.advance(task)


def progress() -> Progress:
    """A progress bar on standard error, so that a pipe gets the table alone."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )
