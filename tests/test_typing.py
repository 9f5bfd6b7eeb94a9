"""What type checkers and editors see of the public names: everything, and mistakes are found.

mypy is run here. pyright 1.1.414 (strict), run by hand over the same lines, finds the same mistakes
and no others: `python tests/test_typing.py > user.py && pyright user.py`.
"""

import ast
import importlib
import os
from pathlib import Path

import pytest

import simgrad

ROOT = Path(__file__).parents[1]
# A user's file: a line, and words of what a checker says of it; "": nothing.
LINES = {
    "import simgrad": "",
    "import torch": "",
    "from simgrad.objectives import Goal": "",
    "images, texts = torch.rand(3, 4), torch.rand(3, 4)": "",
    'objective = simgrad.objective("triplet")': "",
    "S: torch.Tensor = objective(images, texts)": "",
    'each = simgrad.objective("nt-xent", tau=0.05, reduction="none")': "",
    "value: torch.Tensor = each(images, texts).i2t": "",
    'simgrad.objective("nt-xent", direction="up")': "No overload variant",
    "each(images, texts).i2i": '"i2i"',
    "objective.within(images)": '"labels"',
    "line: str = objective.explain(images, texts)": "",
    "objective.explain(images)": '"texts"',
    "loss: torch.Tensor = simgrad.distributed(objective)(images, texts, ignore=None)": "",
    "first: torch.Tensor = objective.weigh(S).i2t": "",
    "rsum: float = simgrad.evaluate(images, texts).rsum": "",
    'made: simgrad.objectives.Objective = Goal(triplet="cir", margin=0.3)': "",
    'split: simgrad.data.Split = simgrad.data.open_dataset("x").splits["test"]': "",
    'answer: simgrad.Answer = simgrad.choose("photos", minutes=5)': "",
    "print(answer.text, answer.report, answer.recipe, answer.model)": "",
    'simgrad.choose("photos", minuts=5)': '"minuts"',
    "answer.txet": '"txet"',
    'model: simgrad.Retriever = simgrad.open("runs/x", data="scenes")': "",
    'metrics: float = model.evaluate("test", protocol="all").rsum': "",
    'hits = model.search("a dog", top=3).images[0].rank': "",
    'lists = model.mine("lists", depth=9).i2t': "",
    "simgrad.nonsense": '"nonsense"',
    "objective.wiegh(S)": "not callable",
    "simgrad.mine(images, texts, dept=3)": '"dept"',
    "simgrad.objectives.Gaol": '"Gaol"',
    'Goal(tripplet="cir")': '"tripplet"',
    'Goal(margin="0.2")': 'expected "float"',
    "objective(images, txets=texts)": '"txets"',
    "objective.on(S, positive=None)": '"positive"',
    "objective.weigh(S).t2t": '"t2t"',
    "simgrad.evaluate(images, texts, normalize=True)": '"normalize"',
    "simgrad.data.open_datset": '"open_datset"',
    "simgrad.analysis.chekc": '"chekc"',
    "simgrad.cocos(objective, S, epsilom=0.1)": '"epsilom"',
    "model.evalaute()": '"evalaute"',
    "model.mine(dept=9)": '"dept"',
    "model.cocos(epsilom=0.1)": '"epsilom"',
    "simgrad.models.bild": '"bild"',
    "simgrad.integrations.ClipLos": '"ClipLos"',
    'simgrad.train("recipe.yaml", "runs/x").plto()': '"plto"',
}


@pytest.mark.long
def test_a_checker_finds_a_users_mistakes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from mypy import api

    file = tmp_path / "user.py"
    file.write_text("\n".join(LINES) + "\n", "utf-8")
    monkeypatch.setenv("MYPYPATH", str(ROOT / "src"))
    monkeypatch.chdir(tmp_path)
    # The settings and the cache of `make check`: what is known of simgrad is not read again.
    settings = ["--config-file", str(ROOT / "pyproject.toml")]
    cache = ["--cache-dir", os.fspath(ROOT / ".mypy_cache")]
    told, problems, _ = api.run([*settings, *cache, "--strict", "--no-error-summary", str(file)])
    assert not problems
    said: dict[int, str] = {}
    for line in told.splitlines():
        place, _, words = line.partition(" error: ")
        if words:
            number = int(place.rsplit(":", 2)[1])
            said[number] = f"{said.get(number, '')}{words}; "
    for number, (line, expected) in enumerate(LINES.items(), 1):
        found = said.get(number, "")
        assert (expected in found) if expected else not found, f"{line}: {found!r}"


@pytest.mark.parametrize("package", ["simgrad", "simgrad.data", "simgrad.analysis"])
def test_names_that_load_late_are_named_for_checkers(package: str) -> None:
    module = importlib.import_module(package)
    assert module.__file__ is not None
    tree = ast.parse(Path(module.__file__).read_text("utf-8"))
    blocks = [
        node
        for node in tree.body
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    ]
    imports = [node for node in blocks[0].body if isinstance(node, ast.ImportFrom)]
    shown = {alias.asname: (node.module, alias.name) for node in imports for alias in node.names}
    assert set(shown) == set(module.__all__)
    for name, (place, original) in shown.items():
        assert place is not None
        assert getattr(importlib.import_module(place), original) is getattr(module, name), name


def test_what_is_not_there_is_said() -> None:
    with pytest.raises(AttributeError, match="nonsense"):
        simgrad.nonsense  # type: ignore[attr-defined]  # noqa: B018


if __name__ == "__main__":  # for a checker that the tests do not install
    print("\n".join(LINES))
