"""Yes-or-no options: a flag alone, its opposite, and a value after it."""

import pytest

from simgrad.cli.choose import choose
from simgrad.cli.options import complete_flags
from simgrad.cli.program import main
from simgrad.cli.report import report
from simgrad.core.tables import TableFile, latex


def test_a_flag_stands_alone_and_has_an_opposite() -> None:
    assert complete_flags(choose, ["x", "--dry-run"]) == ["x", "--dry-run", "True"]
    assert complete_flags(choose, ["--dry_run", "False"]) == ["--dry_run", "False"]
    assert complete_flags(report, ["--no-pictures", "r"]) == ["--pictures", "False", "r"]
    assert complete_flags(report, ["--no-output", "3"]) == ["--no-output", "3"]  # no flag: unknown


def test_help_shows_flags_as_one_types_them(capsys: pytest.CaptureFixture[str]) -> None:
    for command, line in (("choose", "--dry-run "), ("report", "--no-NAME turns it off")):
        with pytest.raises(SystemExit):
            main([command, "--help"])
        told = " ".join(capsys.readouterr().out.replace("│", " ").split())
        assert line.strip() in told
        assert "True|False" not in told
        assert "(default: False)" not in told


def test_latex_names_what_it_needs() -> None:
    assert latex([TableFile(("", "a"), (("x", "1"),))]).startswith(r"% needs \usepackage{booktabs}")
