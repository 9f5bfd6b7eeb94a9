"""What commands print: tables that read well at 80 columns and in a pipe, and progress bars."""

import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar

from rich.cells import cell_len
from rich.console import Console, JustifyMethod
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

T = TypeVar("T")
_GAP = 2  # between columns


def console(stderr: bool = False) -> Console:
    """A console that never wraps tables in a pipe."""
    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else 100_000
    return Console(file=stream, width=width, highlight=False, soft_wrap=not stream.isatty())


def print_table(
    columns: Sequence[str], rows: Iterable[Sequence[Any]], *, title: str | None = None
) -> None:
    """A table: the first column left-aligned, figures right-aligned and never cut.

    On a terminal that is too narrow texts are wrapped; where that is not enough, the columns come
    in parts, one below the other.
    """
    rows = [[str(cell) for cell in row] for row in rows]
    out = console()
    sizes = [_sizes(name, [row[i] for row in rows]) for i, name in enumerate(columns)]
    best, least = sizes[0]
    sizes[0] = best, max(least, min(best, out.width // 2))  # names of rows stay in one line
    for number, part in enumerate(_parts([least for _, least in sizes], out.width)):
        table = Table(title_justify="left", box=None, pad_edge=False, header_style="bold")
        table.title = Text(title, style="italic") if title and number == 0 else None
        widths = _fit([sizes[i] for i in part], out.width)
        for i, width in zip(part, widths, strict=True):
            justify: JustifyMethod = "right" if _numeric([row[i] for row in rows]) else "left"
            table.add_column(Text(columns[i]), justify=justify, width=width, overflow="fold")
        for row in rows:
            table.add_row(*(_text(row[i]) for i in part))
        out.width = max(out.width, sum(widths) + _GAP * (len(widths) - 1))
        with out.capture() as printed:
            out.print(table)
        print("\n".join(line.rstrip() for line in printed.get().rstrip("\n").split("\n")))


def _sizes(name: str, cells: Sequence[str]) -> tuple[int, int]:
    """How wide a column is best, and at least: words are kept whole, and so are figures."""
    texts = [_text(cell).plain for cell in cells]
    kept = texts if _numeric(cells) else [word for text in texts for word in text.split()]
    lines = [*name.split("\n"), *(line for text in texts for line in text.split("\n"))]
    return max(map(cell_len, lines)), max(map(cell_len, [*name.split(), *kept]), default=0)


def _parts(least: Sequence[int], limit: int) -> list[list[int]]:
    """Columns in even groups that fit, each after the first column, which names the rows."""
    rest = range(1, len(least))
    for size in sorted({-(-len(rest) // number) for number in rest}, reverse=True):
        parts = [[0, *rest[i : i + size]] for i in range(0, len(rest), size)]
        if size == 1 or all(sum(least[j] + _GAP for j in p) - _GAP <= limit for p in parts):
            return parts
    return [[0]]


def _fit(sizes: Sequence[tuple[int, int]], limit: int) -> list[int]:
    """Widths within the limit where possible: the widest gives way first, the first column last."""
    widths = [best for best, _ in sizes]
    for giving in (range(1, len(sizes)), range(len(sizes))):
        while sum(widths) + _GAP * (len(widths) - 1) > limit:
            can = [i for i in giving if widths[i] > sizes[i][1]]
            if not can:
                break
            widths[max(can, key=widths.__getitem__)] -= 1
    return widths


def _numeric(cells: Sequence[str]) -> bool:
    return bool(cells) and all(_is_figure(cell) for cell in cells if cell)


def _is_figure(text: str) -> bool:
    bare = _text(text).plain.strip()
    return bare[:1].isdigit() or bare[:2] in {"–", "-", "±"} or bare[:1] in "+-<≥≤~.—"


def _text(cell: str) -> Text:
    """`[bold]12.3[/bold]` is bold; any other bracket stands for itself: captions have them too."""
    if cell.startswith("[bold]") and cell.endswith("[/bold]"):
        return Text(cell[6:-7], style="bold")
    return Text(cell)


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
        disable=not sys.stderr.isatty(),  # else blank lines in a pipe
    )
