"""docs/own.md: each of one's own works as the page shows it."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import simgrad
from simgrad.core.errors import InputError
from simgrad.evaluation import METRICS, check, metric
from simgrad.runs.recipe import Recipe
from simgrad.runs.recipe_names import wrong_names
from simgrad.training.display import Display
from tests.processes import script

PAGE = (Path(__file__).parents[1] / "docs" / "own.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
VALUES, SETTINGS, WEIGHTS, _, METRIC, BOTH, _ = BLOCKS

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


def test_a_metric_may_see_both_directions(tmp_path: Path) -> None:
    asked = """
import simgrad, torch
print(simgrad.evaluation.check("both_ways"))
S = torch.tensor([[0.9, 0.1, 0.8, 0.0], [0.1, 0.2, 0.9, 0.3]])  # captions 0, 1 of image 0
print(simgrad.evaluate_similarities(S, [0, 0, 1, 1]).both_ways)
S[1, 1] = 0.0
S[0, 2:] = 1.0  # image 0 asks for captions of image 1
print(simgrad.evaluate_similarities(S, [0, 0, 1, 1]).both_ways)
"""
    out = run(BOTH + asked, tmp_path).splitlines()
    assert out[0].startswith("both_ways: perfect 1, random 0")
    assert out[1:] == ["1.0", "0.0"]


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


def given(positions):  # type: ignore[no-untyped-def]
    return torch.ones(len(positions), requires_grad=True) * torch.from_numpy(positions.best)


MISTAKES = {
    "text": (
        lambda positions: "good",
        "gave 'good', which is no number: one finite number for each",
    ),
    "texts": (lambda positions: ["a"] * len(positions), "which is no number"),
    "matrix": (lambda positions: np.zeros((len(positions), 2)), r"gave values of shape \(50, 2\)"),
    "nan": (
        lambda positions: np.full(len(positions), np.nan),
        "gave NaN or infinity for 50 queries",
    ),
    "nothing": (lambda positions: None, "gave nothing"),
}


@pytest.mark.usefixtures("forgotten")
@pytest.mark.parametrize("kind", MISTAKES)
def test_a_metric_that_gives_no_numbers_is_named_before_training(kind: str) -> None:
    function, told = MISTAKES[kind]
    metric("mine", label="x", description="x")(function)
    with pytest.raises(InputError, match=rf"metric 'mine' \(tests.test_own.py:\d+\) .*{told}"):
        check("mine")
    if kind != "nothing":
        assert re.search(told, wrong_names(Recipe(model="light"), "r.yaml")[0])


@pytest.mark.usefixtures("forgotten")
def test_a_metric_that_cannot_choose_is_refused_where_it_chooses() -> None:
    metric("same", label="x", description="x")(lambda positions: np.ones(len(positions)))
    metric("minus", label="x", description="x")(lambda positions: -positions.best)
    same = "the worst give the same: it tells no systems apart"
    assert same in str(check("same"))
    assert "-200 to -1 lies outside its bounds, 0 to inf: declare others" in str(check("minus"))
    assert wrong_names(Recipe(model="light"), "r.yaml") == []
    (told,) = wrong_names(Recipe(model="light", select="i2t_same"), "r.yaml")
    assert re.search(rf"select: metric 'same' \(tests.test_own.py:\d+\): .*{same}", told)
    (told,) = wrong_names(Recipe(model="light", select="i2t_other"), "r.yaml")
    assert "one of your own needs `simgrad --with FILE.py`" in told


@pytest.mark.usefixtures("forgotten")
def test_progress_prints_a_selected_metric_with_its_digits(
    capsys: pytest.CaptureFixture[str],
) -> None:
    metric("fine", label="x", digits=3, description="x")(lambda positions: 1 / positions.best)
    entry = {"epoch": 1, "step": 4, "loss": 1.0, "samples_per_second": 10.0}
    for select, value in (("i2t_fine", 0.12345), ("rsum", 204.56)):
        display = Display(Recipe(model="light", select=select), quiet=False)
        display.evaluated({**entry, "val": {select: value}}, on_cpu=False)
    out = capsys.readouterr().err
    assert "i2t_fine 0.123  " in out
    assert "rsum 204.6  " in out


@pytest.mark.usefixtures("forgotten")
def test_a_tensor_with_a_gradient_is_numbers() -> None:
    metric("graded", label="x", better="low", description="x")(given)
    assert check("graded").ok


def test_what_a_metric_asks_for_in_vain_is_named() -> None:
    with pytest.raises(InputError, match=r"test_own.py:\d+\) takes 'texts': .* ranks and direc"):
        metric("reading", label="x", description="x")(lambda positions, texts: positions.best)
    for first in (lambda ranks: ranks.i2t, lambda k, positions: positions.best, lambda *p: p):
        with pytest.raises(InputError, match=r"first: its first parameter is positions, .* direc"):
            metric("turned", label="x", description="x")(first)


@pytest.mark.usefixtures("forgotten")
def test_an_error_inside_a_metric_is_told_with_its_place() -> None:
    metric("broken", label="x", description="x")(lambda positions: positions.rank)
    told = r"metric 'broken' \(tests.test_own.py:\d+\) raised AttributeError: .* 'rank'"
    with pytest.raises(InputError, match=told):
        simgrad.evaluate_similarities(torch.eye(3))
    (said,) = wrong_names(Recipe(model="light"), "r.yaml")  # before training
    assert re.search(f"select: {told}", said)


@pytest.mark.parametrize(("better", "hint"), [("higher", " Did you mean 'high'?"), ("max", "")])
def test_what_is_better_is_high_or_low(better: Any, hint: str) -> None:
    with pytest.raises(InputError) as refused:
        metric("mine", label="x", better=better, description="x")
    told = f"metric 'mine': better='{better}' is neither 'high' nor 'low'.{hint}"
    assert str(refused.value) == told


@pytest.mark.usefixtures("forgotten")
@pytest.mark.parametrize("how", [{}, {"combine": "median"}, {"both": "mean"}])
def test_a_metric_may_tell_of_one_direction_alone(how: dict[str, Any]) -> None:
    metric("asked", label="x", bounds=(0, 1000), description="x", **how)(
        lambda positions, direction: positions.best if direction == "i2t" else None
    )
    first, second = (simgrad.evaluate_similarities(torch.rand(12, 12)) for _ in range(2))
    assert [name for name in first.values if "asked" in name] == ["i2t_asked"]
    low, high = simgrad.evaluation.intervals(first)["i2t_asked"]
    assert low <= first["i2t_asked"] <= high
    compared = [name for name in simgrad.compare(first, second) if "asked" in name]
    assert compared == ([] if "combine" in how else ["i2t_asked"])


@pytest.mark.usefixtures("forgotten")
def test_a_metric_may_take_whatever_else_is_given() -> None:
    metric("open", label="x", better="low", bounds=(1, 300), description="x")(
        lambda positions, *more, **named: positions.best
    )
    assert check("open").ok


def test_a_number_from_elsewhere_cannot_be_tried() -> None:
    with pytest.raises(InputError, match="does not come from ranks"):
        check("approved")
