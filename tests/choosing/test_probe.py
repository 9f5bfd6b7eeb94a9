"""How long training takes here: timed by processes that know nothing of who asks."""

from pathlib import Path

import pytest

from simgrad.choosing.probe import measure
from simgrad.core.errors import InputError
from simgrad.runs.recipe import Recipe
from tests.processes import script

SCRIPT = """\
from simgrad.choosing.probe import measure
from simgrad.runs.recipe import Recipe

print("begins")
data = "scenes(train=40, val=10, test=10, features=global)"
recipe = Recipe(data=data, model="vse++(dimension=16, word_dimension=8)", device="cpu")
print(measure({"one": recipe}, 1, 1, 0.2)["one"].step > 0)
"""


def test_a_plain_script_is_not_run_again(tmp_path: Path) -> None:
    """One without `if __name__ == "__main__":`, as everybody writes them."""
    (tmp_path / "mine.py").write_text(SCRIPT)
    told = script(tmp_path / "mine.py", cwd=tmp_path)
    assert (told.stdout, told.stderr, told.returncode) == ("begins\nTrue\n", "", 0)


@pytest.mark.usefixtures("forked_workers")
def test_what_is_wrong_with_a_recipe_is_an_error_here() -> None:
    with pytest.raises(InputError, match="no such file or folder"):
        measure({"one": Recipe(data="nowhere")}, 2, 1, 0.2)


@pytest.mark.usefixtures("forked_workers")
def test_a_process_that_is_gone_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("simgrad.choosing.probe.python", lambda *_: ["python", "-P", "-m", "this"])
    with pytest.raises(InputError, match="ended without an answer"):
        measure({"one": Recipe()}, 1, 1, 0.2)
