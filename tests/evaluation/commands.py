"""Commands as a person types them."""

import pytest

from simgrad.cli.program import main


def ask(capsys, command, *arguments, status=0):
    """What a command prints; where it should fail, its error."""
    with pytest.raises(SystemExit) as ended:
        main([command, *map(str, arguments)])
    printed = capsys.readouterr()
    assert ended.value.code == status, printed.err
    return printed.out if status == 0 else printed.err


def run(capsys, *arguments, status=0):
    """`simgrad evaluate`"""
    return ask(capsys, "evaluate", *arguments, status=status)
