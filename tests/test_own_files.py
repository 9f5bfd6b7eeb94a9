"""Files of one's own with a mistake in them: one sentence with file and line, and no traceback."""

import re
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

import simgrad
from simgrad.core.errors import InputError
from simgrad.core.extras import import_file
from simgrad.models import Encoded, Inputs, ModelConfig, RetrievalModel, models
from simgrad.objectives import objectives

INPUTS = Inputs("features", (16,), vocabulary_size=20)
MODEL = """
from dataclasses import dataclass
from simgrad import models
from simgrad.core.spec import setting
@models.models.declare("mine", paper="none", description="x")
class Mine(models.ModelConfig):
    dimension: int = setting(64, "size")
"""
OBJECTIVE = """
import simgrad
@simgrad.objectives.objectives.declare("mine", paper="", description="x")
class Mine(simgrad.objectives.Objective):
    tau: float = 0.1
"""

FILES = {
    "syntax": ("import simgrad\n\ndef f(s, p, pairs) return 1\n", ", line 3: expected ':'"),
    "import": ("import simgrad\nimport notthere\n", ", line 2: No module named 'notthere'"),
    "attribute": ("import simgrad\nsimgrad.nothere\n", ", line 2: AttributeError: module 'simg"),
    "twice": (
        'import simgrad\n@simgrad.objectives.declare("nt-xent")\ndef f(s, p, pairs): ...\n',
        ", line 2: the objective 'nt-xent' is declared twice, first in simgrad: take another",
    ),
    "name": (
        'import simgrad\n@simgrad.objectives.declare("My Loss")\ndef f(s, p, pairs): ...\n',
        ", line 2: the objective 'My Loss': a name has letters, digits and + - . _ alone",
    ),
    "no dataclass": (
        MODEL,
        ", line 5: the model 'mine': Mine is no dataclass: write @dataclass(frozen=True) between",
    ),
    "no dataclass of an objective": (
        OBJECTIVE,
        ", line 3: the objective 'mine': Mine is no dataclass: write @dataclass between",
    ),
}


@pytest.fixture(autouse=True)
def forgotten(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What a test declares and imports is gone after it."""
    monkeypatch.chdir(tmp_path)
    for registry in (objectives, models):
        monkeypatch.setattr(registry, "_declared", dict(registry._declared))


@pytest.mark.parametrize("kind", FILES)
def test_a_file_that_fails_is_named_with_its_line(kind: str) -> None:
    text, told = FILES[kind]
    Path("mine.py").write_text(text)
    with pytest.raises(InputError) as caught:
        import_file(Path("mine.py"))
    assert str(caught.value).startswith(f"--with mine.py{told}")


def test_a_folder_is_no_file() -> None:
    with pytest.raises(InputError, match=r"--with \.: this is a folder; name a Python file"):
        import_file(Path("."))


def test_the_first_place_of_two_is_named() -> None:
    def add() -> None:
        simgrad.objectives.declare("mine", description="x")(lambda s, p, pairs: s.sum(1))

    add()
    with pytest.raises(InputError, match=r"twice, first in .*test_own_files.py:\d+: take"):
        add()


class Plain(RetrievalModel):
    def __init__(self, config: Any, inputs: Any) -> None:
        super().__init__(config, inputs)
        self.image = torch.nn.Linear(16, 8)
        self.words = torch.nn.Embedding(20, 8)

    def encode_images(self, images: Any) -> Any:
        return Encoded(torch.nn.functional.normalize(self.image(images), dim=1))

    def encode_captions(self, tokens: Any, lengths: Any) -> Any:
        return Encoded(torch.nn.functional.normalize(self.words(tokens).sum(1), dim=1))


def build(kind: type | None, **attributes: Any) -> Any:
    inside = {} if kind is None else {"build": lambda self, inputs: kind(self, inputs)}
    models.declare("mine", paper="", description="")(
        type("Mine", (ModelConfig,), {**inside, **attributes})
    )
    return simgrad.models.build("mine", INPUTS)


def test_what_is_right_is_built_without_a_word() -> None:
    before = torch.random.get_rng_state()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        made = build(Plain)
    assert made.training
    torch.manual_seed(0)
    Plain(made.config, INPUTS)
    after = torch.rand(1)
    torch.manual_seed(0)
    simgrad.models.build("mine", INPUTS)
    assert torch.equal(torch.rand(1), after)  # trying it draws no random numbers
    torch.random.set_rng_state(before)


def test_a_model_without_a_method_is_told_which() -> None:
    with pytest.raises(InputError, match=r"Mine needs a method `build\(self, inputs\)`"):
        build(None)
    del models._declared["mine"]
    silent = type("Silent", (Plain,), {"encode_captions": RetrievalModel.encode_captions})
    with pytest.raises(InputError, match=r"Silent needs a method `encode_captions\(self, tok"):
        build(silent)


def test_what_a_model_reads_is_a_known_word() -> None:
    with pytest.raises(InputError, match="'mine': `reads` is global, regions or pixels, not 'gl"):
        build(Plain, reads="globl")


WRONG = {
    "encode_images returned a Tensor; simgrad.models.Encoded": lambda self, x: self.image(x),
    "encode_images returned NaN": lambda self, x: Encoded(self.image(x) * torch.nan),
    "encode_images returned 1 items for 2": lambda self, x: Encoded(self.image(x)[:1]),
    "dimensions differ: encode_images 4 and encode_captions 8": lambda self, x: Encoded(
        torch.nn.functional.normalize(self.image(x)[:, :4], dim=1)
    ),
}


@pytest.mark.parametrize("told", WRONG)
def test_what_a_model_gives_is_looked_at_when_it_is_built(told: str) -> None:
    with pytest.raises(InputError, match=f"model 'mine': .*{re.escape(told)}"):
        build(type("Wrong", (Plain,), {"encode_images": WRONG[told]}))


def test_vectors_of_another_length_are_told_of() -> None:
    long = type("Long", (Plain,), {"encode_images": lambda self, x: Encoded(self.image(x))})
    with pytest.warns(UserWarning, match=r"Long.encode_images returned vectors of length .* not 1"):
        build(long)
