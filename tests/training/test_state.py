"""The state to resume from: damage anywhere is noticed, another version is refused in words."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open

from simgrad.core.errors import InputError
from simgrad.training import Run, train
from simgrad.training.checkpoints import Progress
from simgrad.training.state import (
    PREVIOUS,
    STATE,
    OtherVersion,
    load_state,
    optimizer_tensors,
    restore_optimizer,
    save_state,
)

FIXTURES = Path(__file__).parents[1] / "fixtures"


def flip(path: Path, bit: int) -> None:
    content = bytearray(path.read_bytes())
    content[bit // 8] ^= 1 << bit % 8
    path.write_bytes(content)


def two_states(folder: Path) -> None:
    for step in (1, 2):
        at = Progress(step=step, epoch=3, place=step + 4, since_best=2)
        save_state(folder, {"a": torch.arange(4 + step), "b": torch.zeros(3)}, at.to_json())


def test_a_torn_state_falls_back_on_the_one_before(tmp_path: Path) -> None:
    two_states(tmp_path)
    path = tmp_path / STATE
    path.write_bytes(path.read_bytes()[:-3])
    found = load_state(tmp_path)
    assert found is not None
    tensors, counters, problems = found
    assert counters["step"] == 1
    assert len(tensors["a"]) == 5
    assert STATE in problems[0]


def test_a_flipped_bit_anywhere_is_noticed_or_changes_nothing(tmp_path: Path) -> None:
    """In counters, names, shapes, offsets, checksum, format and numbers alike."""
    two_states(tmp_path / "whole")
    whole = load_state(tmp_path / "whole")
    assert whole is not None
    size = (tmp_path / "whole" / STATE).stat().st_size
    random, noticed = np.random.default_rng(0), 0
    for byte in range(0, size, 2):
        folder = tmp_path / "damaged"
        shutil.copytree(tmp_path / "whole", folder, dirs_exist_ok=True)
        flip(folder / STATE, 8 * byte + int(random.integers(8)))
        found = load_state(folder)
        assert found is not None
        step = found[1]["step"]
        noticed += step == 1
        assert step == 1 or (
            found[1] == whole[1] and all(torch.equal(found[0][k], v) for k, v in whole[0].items())
        )
    assert noticed > 0.9 * size / 2  # all but the header's padding


@pytest.mark.parametrize("name", ["step", "place", "since_best", "watch"])
def test_counters_that_are_not_ours_are_refused(name: str) -> None:
    told: dict[str, Any] = {**Progress().to_json(), name: "7"}
    with pytest.raises((InputError, TypeError)):
        Progress.from_json(told)
    told = Progress().to_json()
    assert Progress.from_json(json.loads(json.dumps(told))) == Progress()
    del told[name]
    with pytest.raises(InputError, match="not those of this version"):
        Progress.from_json(told)


def test_a_run_goes_on_from_the_state_before_and_ends_the_same(
    small: Any, scenes: Any, tmp_path: Path, weights: Any
) -> None:
    recipe = small(checkpoint_seconds=0.0)
    whole = train(recipe, tmp_path / "whole", dataset=scenes, quiet=True)
    for _ in range(2):  # two sittings of a step each: two states
        train(recipe, tmp_path / "run", dataset=scenes, quiet=True, stop_after=0.0)
    with safe_open(tmp_path / "run" / "last" / STATE, "pt") as file:
        text = file.metadata()["counters"]
    place = (tmp_path / "run" / "last" / STATE).read_bytes().find(b"place")
    assert '"place": 2' in text
    flip(tmp_path / "run" / "last" / STATE, 8 * (place + 9))  # its number
    run = train(recipe, tmp_path / "run", dataset=scenes, quiet=True)
    assert run.test == whole.test
    one, other = weights(tmp_path / "run"), weights(tmp_path / "whole")
    assert all(torch.equal(one[k], other[k]) for k in one)


def test_with_both_states_gone_the_advice_works(
    small: Any, scenes: Any, tmp_path: Path, weights: Any
) -> None:
    recipe = small(checkpoint_seconds=0.0)
    whole = train(recipe, tmp_path / "whole", dataset=scenes, quiet=True)
    for _ in range(2):
        train(recipe, tmp_path / "run", dataset=scenes, quiet=True, stop_after=0.0)
    last = tmp_path / "run" / "last"
    for name in (STATE, PREVIOUS):
        (last / name).write_bytes(b"nonsense")
    with pytest.raises(InputError, match="delete the folder") as told:
        train(recipe, tmp_path / "run", dataset=scenes, quiet=True)
    assert str(last) in str(told.value)
    shutil.rmtree(last)
    run = train(recipe, tmp_path / "run", dataset=scenes, quiet=True)
    assert run.test == whole.test
    assert len(run.history) == len(whole.history)


def test_a_run_stopped_by_an_earlier_version_is_not_resumed(tmp_path: Path) -> None:
    shutil.copytree(FIXTURES / "stopped-71b75c7", tmp_path / "run")
    run = Run.open(tmp_path / "run")
    before = (tmp_path / "run" / "run.json").read_bytes()
    with pytest.raises(OtherVersion, match="format 1"):
        train(run.recipe, tmp_path / "run", quiet=True)
    assert (tmp_path / "run" / "run.json").read_bytes() == before
    assert run.load().model is not None  # what it has reached can still be used


def test_an_optimiser_of_an_earlier_version_goes_on() -> None:
    """Temperatures were scalars once; they are vectors of one number."""
    before, now = torch.nn.Parameter(torch.tensor(0.5)), torch.nn.Parameter(torch.tensor([0.5]))
    optimizers = [torch.optim.Adam([p], lr=0.1) for p in (before, now)]

    def step(k: int) -> None:
        optimizers[k].zero_grad()
        (3 * (before, now)[k] ** 2).sum().backward()
        optimizers[k].step()

    step(0)
    with torch.no_grad():
        now.copy_(before)
    kept = {name: tensor.clone() for name, tensor in optimizer_tensors(optimizers[0]).items()}
    restore_optimizer(optimizers[1], kept)
    for k in (0, 1):
        step(k)
    assert now.tolist() == [before.item()]
