"""Tables: whole figures at any width, nothing trailing in a pipe, brackets as they are."""

import io
import json
import sys
from collections.abc import Callable

import pytest
from rich.console import Console

from simgrad.core import console
from simgrad.core.console import print_table, say
from simgrad.core.tables import Bold
from simgrad.core.text import as_json


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console, "console", lambda: Console(file=sys.stdout, width=80))


def lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return capsys.readouterr().out.splitlines()


def test_in_a_pipe_lines_are_whole_and_have_no_trailing_blanks(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_table(("name", "what"), [("a", "word " * 60), ("b", "short")])
    printed = lines(capsys)
    assert len(printed) == 3
    assert printed[2] == "b     short"
    assert all(line == line.rstrip() for line in printed)


@pytest.mark.usefixtures("narrow")
def test_texts_are_wrapped_and_words_kept(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("name", "value", "what"), [("a row of a table", "1.0", "word " * 40)])
    printed = lines(capsys)
    assert all(len(line) <= 80 for line in printed)
    assert sum(line.split().count("word") for line in printed) == 40
    assert printed[1].startswith("a row of a table    1.0  word word")


@pytest.mark.usefixtures("narrow")
def test_figures_are_never_cut_columns_come_in_parts(capsys: pytest.CaptureFixture[str]) -> None:
    names = [f"column {i}" for i in range(6)]
    rows = [("paper 1.3 VSE++ F30k", *(f"2715.{i}±490" for i in range(6)))] * 2
    print_table(("loss", *names), rows, title="Counts")
    printed = lines(capsys)
    assert all(len(line) <= 80 for line in printed)
    assert printed[0] == "Counts"
    assert [line[:4] for line in printed[1:]] == ["loss", "pape", "pape"] * 2
    assert printed[2].split()[-3:] == ["2715.0±490", "2715.1±490", "2715.2±490"]
    assert printed[5].split()[-3:] == ["2715.3±490", "2715.4±490", "2715.5±490"]


@pytest.mark.usefixtures("narrow")
def test_headers_give_way_before_figures_do(capsys: pytest.CaptureFixture[str]) -> None:
    heads = ("run", "contributing", "on the hardest", "without gradient", "on false negatives")
    print_table(heads, [("a-name-of-a-run", "79.19", "14.6%", "0.0%", "133.5 ± 8.6")])
    printed = lines(capsys)
    assert all(len(line) <= 80 for line in printed)
    assert printed[-1].split() == ["a-name-of-a-run", "79.19", "14.6%", "0.0%", "133.5", "±", "8.6"]


def test_brackets_from_data_stand_for_themselves(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [("[/red] a [dim]dog", Bold("1.5")), ("[bold]x[/bold]", "2.5")]
    print_table(("caption", "score [/x]"), rows, title="of [/this]")
    printed = lines(capsys)
    assert printed[0] == "of [/this]"
    assert printed[1].split() == ["caption", "score", "[/x]"]
    assert printed[2].split() == ["[/red]", "a", "[dim]dog", "1.5"]
    assert printed[3].split() == ["[bold]x[/bold]", "2.5"]


# Colours, a bell, a window's title, a C1 control, a line that overwrites itself, reversed text.
HOSTILE = "a\x1b[31mb\x07c\x1b]0;title\x07d\x9b2Je\rf\u202eg[/b]h[link=x]"


@pytest.mark.parametrize(
    "show",
    [
        say,
        lambda text: say(text, stderr=True),
        lambda text: console.console().print(text, style="bold"),
        lambda text: console.console(stderr=True).print(text),
        lambda text: print_table((text, text), [(text, Bold(text))], title=text),
    ],
)
def test_nothing_printed_steers_the_terminal(
    capsys: pytest.CaptureFixture[str], show: Callable[[str], None]
) -> None:
    show(HOSTILE)
    out, err = capsys.readouterr()
    printed = (out + err).replace("\n", "")
    assert "[/b]h[link=x]" in printed  # markup is not read
    assert "\\x1b[31m" in printed  # what cannot be printed is spelled out
    assert printed.isprintable()


def test_a_progress_bar_shows_any_description(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()
    screen.isatty = lambda: True  # type: ignore[method-assign]
    monkeypatch.setattr(sys, "stderr", screen)
    with console.progress() as bar:
        bar.update(bar.add_task("start", total=2), completed=1, description=HOSTILE)
        bar.refresh()
    assert "a\\x1b[31mb" in screen.getvalue()
    assert "]0;title\x07" not in screen.getvalue()


def test_other_scripts_are_left_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    text = "می\u200cخواهم 犬\u3000と猫 👩\u200d🌾 naïve\u00a0word"
    say(text)
    assert lines(capsys) == [text]


def test_a_table_without_rows_is_its_head(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("a", "b"), [])
    print_table(("alone",), [("x",)])
    assert lines(capsys) == ["a  b", "alone", "x"]


def test_progress_leaves_nothing_in_a_pipe(capfd: pytest.CaptureFixture[str]) -> None:
    with console.progress() as bar:
        bar.update(bar.add_task("work", total=2), completed=1)
    assert capfd.readouterr() == ("", "")


def test_json_steers_no_terminal_and_reads_back() -> None:
    value = {
        "name": f"{HOSTILE}\x7f\x9b31m\u2066\ud800\U000e0001",
        "captions": ["ein Überraschungsei 日本"],
    }
    printed = as_json(value)
    assert json.loads(printed) == value
    assert printed.replace("\n", "").isprintable()
    assert "ein Überraschungsei 日本" in printed


@pytest.mark.usefixtures("narrow")
def test_intervals_are_not_broken(capsys: pytest.CaptureFixture[str]) -> None:
    row = ("average recall, both ways", "0.439", "[0.370, 0.508]", "0.371", "[-0.320, 0.422]")
    print_table(("", "image \u2192 text", "95%", "text \u2192 image", "95%"), [row])
    printed = capsys.readouterr().out
    assert "[0.370, 0.508]" in printed
    assert "[-0.320, 0.422]" in printed
    assert max(map(len, printed.splitlines())) <= 80


@pytest.mark.parametrize(
    ("each", "line"),
    [
        (10.0, "timing: 2 of 5, about 30 s left"),
        (0.01, "pictures: 992 of 2,001, 100.0 a second, about 10 s left"),
    ],
)
def test_a_log_tells_a_rate_where_one_can_feel_it(
    each: float,
    line: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 0.0
    monkeypatch.setattr(console, "monotonic", lambda: now)
    monkeypatch.setattr(console, "SECONDS_BETWEEN_LINES", 9.9)
    name, *_ = line.split(":")
    total = 5 if each > 1 else 2_001
    progress = console.ProgressLines(name)
    for done in range(1, total + 1):
        progress.report(done, total)
        now += each
        if printed := capsys.readouterr().err:
            break
    assert printed.strip() == line
