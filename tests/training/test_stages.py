"""An image network that is frozen first and thawed later: killed in either stage, or between."""

from pathlib import Path
from typing import Any

import pytest

from simgrad.core.errors import InputError
from simgrad.retriever.prepare import prepare
from simgrad.training import train
from tests.retriever.test_prepare import _SMALL, recipe, tiny
from tests.training.test_loop import Killed, killing, same, without_time

__all__ = ["tiny"]  # the fixture that makes the network known


# Four epochs of four steps, the network thawed after the second.
@pytest.mark.long
@pytest.mark.parametrize("stop_at", [6, 8, 9, 11])
@pytest.mark.parametrize(
    "stages", [{"epochs": 2, "finetune_epochs": 2}, {"epochs": 4, "freeze_epochs": 2}]
)
def test_interrupted_in_any_stage_ends_with_the_same_weights(
    tmp_path: Path,
    weights: Any,
    monkeypatch: pytest.MonkeyPatch,
    stages: dict[str, int],
    stop_at: int,
) -> None:
    model = f"vse++({_SMALL}, finetune=true)"
    chosen = recipe(model, evaluate_every=3, lr=1e-2, finetune_lr=1e-3, **stages)
    assert "frozen" in prepare(chosen).sources
    whole = train(chosen, tmp_path / "whole", quiet=True)
    assert whole.info["steps"] == 16
    killing(monkeypatch, stop_at)
    often = chosen.replace(checkpoint_seconds=0.0)
    with pytest.raises(Killed):
        train(often, tmp_path / "parts", quiet=True)
    resumed = train(often, tmp_path / "parts", quiet=True)
    assert without_time(resumed) == without_time(whole)
    assert same(weights(tmp_path / "parts"), weights(tmp_path / "whole"))
    assert resumed.test == whole.test


def test_what_is_never_thawed_is_kept_once() -> None:
    prepared = prepare(recipe(f"vse++({_SMALL})", epochs=2))
    assert prepared.sources["train"].image_shape == (6,)
    assert "frozen" not in prepared.sources
    with pytest.raises(InputError, match="finetune_epochs"):  # there is nothing to thaw
        prepare(recipe(f"vse++({_SMALL})", epochs=2, finetune_epochs=1))
