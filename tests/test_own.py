"""docs/own.md: each of one's own works as the page shows it."""

import re
from pathlib import Path

import pytest

from simgrad.core.errors import InputError
from simgrad.evaluation import METRICS, check, metric
from tests.processes import script

PAGE = (Path(__file__).parents[1] / "docs" / "own.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
VALUES, SETTINGS, WEIGHTS, _, METRIC, _ = BLOCKS

CHECKED = """
import torch
torch.manual_seed(0)
print(simgrad.analysis.check("smooth-triplet", torch.randn(8, 16), torch.randn(8, 16)))
"""
IGNORED = """
import torch
S, owner = torch.rand(4, 5), torch.tensor([0, 1, 2, 3, -1])
objective = simgrad.objective("NAME")
assert objective.copes_with_gaps()
found = objective.weigh(S, owner, ignore=torch.tensor([[k, 4] for k in range(4)]))
expected = objective.weigh(S[:, :4])
torch.testing.assert_close(found.i2t[:, :4], expected.i2t)
torch.testing.assert_close(found.value, expected.value)
"""


def run(code: str, folder: Path) -> str:
    path = folder / "mine.py"
    path.write_text(code, encoding="utf-8")
    done = script(path)
    assert done.returncode == 0, done.stderr
    return done.stdout


def lines_of(block: str) -> int:
    return len([line for line in block.split("@", 1)[1].splitlines() if line.strip()])


def test_an_objective_is_six_lines_and_right(tmp_path: Path) -> None:
    assert lines_of(VALUES) <= 6
    out = run(VALUES + CHECKED + IGNORED.replace("NAME", "smooth-triplet"), tmp_path)
    assert "smooth-triplet: a loss: its weights are the derivative of its value" in out


def test_its_parameters_have_limits_a_meaning_and_a_range(tmp_path: Path) -> None:
    asked = """
import simgrad.cli.program as program
from simgrad.core.errors import InputError
print(simgrad.objective("smooth-margin").searched())
for spec in ("smooth-margin(tau=0)", "smooth-margin(margin=-1)"):
    try:
        simgrad.objective(spec)
    except InputError as error:
        print(error)
program.main(["objectives", "smooth-margin"])
"""
    out = run(SETTINGS + asked, tmp_path)
    assert "'tau': Range(low=0.02, high=0.2, log=True)" in out
    assert "parameter 'tau' must be greater than 0, not 0" in out
    assert "parameter 'margin' must be at least 0, not -1" in out
    (line,) = re.findall(r"tau .*", out[out.index("meaning") :])
    assert re.split(r"  +", line) == ["tau", "0.05", "greater than 0", "0.02 to 0.2", "how soft"]


def test_with_weights_it_is_right_too(tmp_path: Path) -> None:
    """On a GPU batches are padded: with -inf times 0 the example was NaN there."""
    out = run("import torch\ntorch.manual_seed(0)\n" + WEIGHTS, tmp_path)
    assert "squared-triplet: a loss: its weights are the derivative of its value" in out
    declared = WEIGHTS[: WEIGHTS.index("if __name__")]
    run(declared + IGNORED.replace("NAME", "squared-triplet"), tmp_path)


def test_a_metric_in_torch_is_what_the_page_says_it_is(tmp_path: Path) -> None:
    (said,) = re.findall(r"# (log_rank: .+)", METRIC)
    assert run(METRIC, tmp_path).strip() == said


# Of made lists nobody knows where there were ties.
OURS = [m.name for m in METRICS if m.factory(1).each is not None and m.name != "ties"]


@pytest.mark.parametrize("name", OURS)
def test_our_own_metrics_pass_the_check(name: str) -> None:
    found = check(name)
    assert found.ok, str(found)


@pytest.fixture
def forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test declares is gone after it."""
    monkeypatch.setattr(METRICS, "_declared", dict(METRICS._declared))


@pytest.mark.usefixtures("forgotten")
def test_a_wrong_metric_is_told_what_is_wrong() -> None:
    @metric("upside_down", label="x", description="worse is called better", bounds=(0, 50))
    def upside_down(positions):  # type: ignore[no-untyped-def]
        return positions.best

    @metric("one_number", label="x", description="not one for each query")
    def one_number(positions):  # type: ignore[no-untyped-def]
        return 1.0

    found = check("upside_down")
    assert not found.ok
    assert "a random order" in str(found)
    assert "outside its bounds, 0 to 50" in str(found)
    with pytest.raises(InputError, match="one finite number for each of the 50 queries"):
        check("one_number")


def test_a_number_from_elsewhere_cannot_be_tried() -> None:
    with pytest.raises(InputError, match="does not come from ranks"):
        check("approved")
