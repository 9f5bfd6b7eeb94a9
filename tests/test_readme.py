"""What the README says is so: its code runs as written, its table is the declarations'."""

import re
from pathlib import Path

from simgrad.objectives import objectives
from tests.processes import script

README = Path(__file__).parents[1] / "README.md"
BLOCKS = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)

IGNORED = """
S, owner = torch.rand(4, 5), torch.tensor([0, 1, 2, 3, -1])
objective = simgrad.objective("squared-triplet")
assert objective.copes_with_gaps()
found = objective.weigh(S, owner, ignore=torch.tensor([[k, 4] for k in range(4)]))
expected = objective.weigh(S[:, :4])
torch.testing.assert_close(found.i2t[:, :4], expected.i2t)
torch.testing.assert_close(found.value, expected.value)
"""


def run(code: str, folder: Path) -> str:
    path = folder / "example.py"
    path.write_text(code, encoding="utf-8")
    done = script(path)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_five_lines_in_a_loop_of_ones_own(tmp_path: Path) -> None:
    example = BLOCKS[0]
    assert len([line for line in example.splitlines() if line.strip()]) <= 5
    check = "\nassert (images._base.grad.abs().sum(dim=(1, 2)) > 0).all()"
    assert "loss.backward()" in example
    run(example + check, tmp_path)


def test_a_new_objective_in_ten_lines_is_right(tmp_path: Path) -> None:
    example = BLOCKS[1]
    declared = example[example.index("@") : example.index("if __name__")]
    assert len([line for line in declared.splitlines() if line.strip()]) <= 10
    out = run("import torch\ntorch.manual_seed(0)\n" + example, tmp_path)
    assert "squared-triplet: a loss: its weights are the derivative of its value" in out


def test_the_new_objective_ignores_pairs_and_fills_up_batches(tmp_path: Path) -> None:
    """On a GPU batches are padded: with -inf times 0 the example was NaN there."""
    example = BLOCKS[1][: BLOCKS[1].index("if __name__")]
    run(example + IGNORED, tmp_path)


def test_the_table_of_objectives_is_the_declarations() -> None:
    text = README.read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([^`]+)` \| ([^|]+) \| ([^|]+) \|$", text, re.MULTILINE)
    declared = [e for e in objectives if e.paper != "your own"]
    expected = {(e.name, e.paper, e.description) for e in declared}
    assert {row for row in rows if not row[0].startswith("simgrad")} == expected


def test_linked_files_are_there() -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", README.read_text(encoding="utf-8")):
        assert (README.parent / target).exists(), target
