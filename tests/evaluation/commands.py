"""`simgrad evaluate` as a person types it."""

import pytest

from simgrad.cli.program import main


def run(capsys, *arguments, status=0):
    with pytest.raises(SystemExit) as ended:
        main(["evaluate", *map(str, arguments)])
    printed = capsys.readouterr()
    assert ended.value.code == status, printed.err
    return printed.out if status == 0 else printed.err
