"""What commands print: tables that read well at 80 columns and in a pipe, and progress bars.

Labels, captions and file names come from files, and may hold anything. Nothing that is printed
through here is read as markup, and no character in it steers the terminal.
"""

import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from time import monotonic
from typing import Any, TypeVar

from rich.cells import cell_len
from rich.console import Console, JustifyMethod
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from simgrad.core.tables import Bold
from simgrad.core.text import duration, plain

T = TypeVar("T")
_GAP = 2  # between columns
_WHOLE = 100_000  # the width of a pipe: lines are not broken there
_USUAL = 80
SECONDS_BETWEEN_LINES = 30.0


class _Plain(Console):
    """Prints text as it is: brackets are brackets, and escape sequences are shown, not obeyed."""

    def render_str(self, text: str, *, style: Any = "", **_: Any) -> Text:
        return Text(plain(text), style=style)


def console(stderr: bool = False) -> Console:
    """A console that never wraps tables in a pipe, and never obeys what it prints."""
    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else _WHOLE
    return _Plain(file=stream, width=width, highlight=False, soft_wrap=not stream.isatty())


def say(*lines: str, stderr: bool = False) -> None:
    """Print lines of text, whatever names from files are in them."""
    stream = sys.stderr if stderr else sys.stdout
    for line in lines:
        print(plain(line), file=stream, flush=stderr)


def say_wrapped(text: str, stderr: bool = False) -> None:
    """Print lines that may be long: on a terminal broken at words, further lines set in."""
    out = console(stderr)
    for line in text.split("\n"):
        start = line[: len(line) - len(line.lstrip())] + "  "
        broken = textwrap.wrap(
            plain(line), min(out.width, _WHOLE), subsequent_indent=start, break_on_hyphens=False,
            break_long_words=False,
        )  # fmt: skip
        say(*(broken or [""]), stderr=stderr)


def print_table(
    columns: Sequence[str], rows: Iterable[Sequence[Any]], *, title: str | None = None
) -> None:
    """A table: the first column left-aligned, figures right-aligned and never cut.

    On a terminal that is too narrow texts are wrapped; where that is not enough, the columns come
    in parts, one below the other. In a pipe rows stay whole, and headings of figures alone are
    broken where the table is wider than usual.
    """
    rows = [[cell if isinstance(cell, str) else str(cell) for cell in row] for row in rows]
    out = console()
    sizes = [_sizes(name, [row[i] for row in rows]) for i, name in enumerate(columns)]
    in_a_pipe = out.width >= _WHOLE
    if in_a_pipe:
        figures = [_numeric([row[i] for row in rows]) for i in range(len(columns))]
        sizes = [s if f else (s[0], s[0]) for s, f in zip(sizes, figures, strict=True)]
    best, least = sizes[0]
    sizes[0] = best, max(least, min(best, out.width // 2))  # names of rows stay in one line
    for number, part in enumerate(_parts([least for _, least in sizes], out.width)):
        table = Table(title_justify="left", box=None, pad_edge=False, header_style="bold")
        table.title = Text(plain(title), style="italic") if title and number == 0 else None
        widths = _fit([sizes[i] for i in part], _USUAL if in_a_pipe else out.width)
        for i, width in zip(part, widths, strict=True):
            justify: JustifyMethod = "right" if _numeric([row[i] for row in rows]) else "left"
            table.add_column(as_text(columns[i]), justify=justify, width=width, overflow="fold")
        for row in rows:
            table.add_row(*(as_text(row[i]) for i in part))
        out.width = max(out.width, sum(widths) + _GAP * (len(widths) - 1))
        with out.capture() as printed:
            out.print(table)
        print("\n".join(line.rstrip() for line in printed.get().rstrip("\n").split("\n")))


def _sizes(name: str, cells: Sequence[str]) -> tuple[int, int]:
    """How wide a column is best, and at least: words are kept whole, and so are figures."""
    name, texts = plain(name), [plain(cell) for cell in cells]
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
    return any(cells) and all(_is_figure(cell) for cell in cells if cell)


def _is_figure(text: str) -> bool:
    bare = text.strip()
    bare = bare.removeprefix("[")  # an interval stays in one line, too
    return bare[:1].isdigit() or bare[:2] in {"–", "-", "±"} or bare[:1] in "+-<≥≤~.—"


def as_text(cell: str) -> Text:
    """A cell of a table, plain; what is best in its column is bold."""
    return Text(plain(cell), style="bold" if isinstance(cell, Bold) else "")


def track(items: Iterable[T], description: str, total: int | None = None) -> Iterator[T]:
    """Iterate with a progress bar on the terminal; in a log, a line now and then."""
    total = total if total is not None else len(items) if isinstance(items, Sequence) else None
    with reporting(description) as report:
        for done, item in enumerate(items, 1):
            yield item
            report(done, total)


@contextmanager
def reporting(description: str) -> Iterator[Callable[[int, int | None], None]]:
    """What to call with how much is done, of how much: a bar, or in a log a line now and then.

    Nothing is shown of work that nobody reports.
    """
    lines = None if sys.stderr.isatty() else ProgressLines(description)
    with progress() as bar:
        task = bar.add_task(description, total=None, visible=False)

        def report(done: int, total: int | None) -> None:
            if lines is None:
                bar.update(task, completed=done, total=total, visible=True)
            else:
                lines.report(done, total)

        yield report


class ProgressLines:
    """Progress where there is no terminal: a line now and then, for whoever reads the log."""

    def __init__(self, description: str) -> None:
        self.description, self.begun = description, monotonic()
        self.told = self.begun
        self.first: int | None = None  # what an earlier run had done

    def report(self, done: int, total: int | None) -> None:
        """Say where it stands, if nothing was said for long."""
        self.first = done if self.first is None else self.first
        now = monotonic()
        if now - self.told < SECONDS_BETWEEN_LINES or done == self.first:
            return
        self.told = now
        rate = (done - self.first) / (now - self.begun)
        left = f", about {duration((total - done) / rate)} left" if total is not None else ""
        of = f" of {total:,}" if total is not None else ""
        pace = f", {rate:,.1f} a second" if rate >= 1 else ""  # of slow work, the time left says it
        say(f"{self.description}: {done:,}{of}{pace}{left}", stderr=True)


class _Description(ProgressColumn):
    """What is under way, as plain text."""

    def render(self, task: Task) -> Text:
        return Text(plain(task.description))


def progress() -> Progress:
    """A progress bar on standard error, so that a pipe gets the table alone."""
    return Progress(
        _Description(),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=_Plain(stderr=True),
        transient=True,
        disable=not sys.stderr.isatty(),  # else blank lines in a pipe
    )
