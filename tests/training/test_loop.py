"""The loop: same seed same numbers, interrupted equals uninterrupted, nothing torn."""

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from simgrad.core.errors import InputError
from simgrad.training import Run, observe, train
from simgrad.training import loop as loop_module
from simgrad.training.loop import Step


def same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)


def without_time(run: Run) -> list[dict[str, Any]]:
    return [
        {k: v for k, v in e.items() if k not in ("seconds", "samples_per_second", "batch_seconds")}
        for e in run.history
    ]


class Killed(Exception):
    """What ends a run without a word."""


def killing(monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    """Let a run die once, when the weights of a step are there and nothing of it is written."""
    original, updates = Step.update, 0

    def update(self: Step, batch: Any, objective: Any) -> torch.Tensor:
        nonlocal updates
        loss = original(self, batch, objective)
        updates += 1
        if updates == step:
            raise Killed
        return loss

    monkeypatch.setattr(Step, "update", update)


def test_a_run_leaves_everything_behind(small: Any, scenes: Any, tmp_path: Path) -> None:
    run = train(small(), tmp_path / "run", dataset=scenes, quiet=True)
    assert run.finished
    assert len(run.history) == 2
    assert run.test["rsum"] > 0
    assert len(run.ranks().i2t) == 20
    assert run.info["versions"]["torch"] == torch.__version__
    assert run.info["data_fingerprint"] == scenes.fingerprint()
    assert set(np.load(tmp_path / "run" / "triplets.npz")) >= {"early", "middle"}
    assert run.load().extra["rsum"] == max(e["val"]["rsum"] for e in run.history)
    assert not list((tmp_path / "run").rglob("*.tmp"))


@pytest.mark.parametrize("select", ["t2i_meanr", "rsum"])
def test_the_best_checkpoint_is_the_best_by_the_metric_s_own_direction(
    small: Any, scenes: Any, tmp_path: Path, select: str
) -> None:
    recipe = small(select=select, epochs=4, early_stop=10)
    run = train(recipe, tmp_path / "run", dataset=scenes, quiet=True)
    scores = [entry["val"][select] for entry in run.history]
    best = min(scores) if select == "t2i_meanr" else max(scores)
    assert len(set(scores)) > 1
    assert run.info["best"][select] == best
    assert run.load().extra[select] == best
    assert run.info["best"]["step"] == run.history[scores.index(best)]["step"]


def test_a_metric_that_is_better_the_lower_stops_early_where_it_rises(
    small: Any, scenes: Any, tmp_path: Path
) -> None:
    recipe = small(select="t2i_meanr", epochs=4)
    whole = train(recipe, tmp_path / "whole", dataset=scenes, quiet=True)
    scores = [entry["val"]["t2i_meanr"] for entry in whole.history]
    rises = [i for i in range(1, 4) if scores[i] >= min(scores[:i])]
    falls = [i for i in range(1, 4) if scores[i] <= max(scores[:i])]
    assert [*rises, 3][0] != [*falls, 3][0], "this run does not tell the two directions apart"
    run = train(recipe.replace(early_stop=1), tmp_path / "run", dataset=scenes, quiet=True)
    assert len(run.history) == [*rises, 3][0] + 1


def test_same_seed_same_numbers_another_seed_others(
    small: Any, scenes: Any, tmp_path: Path, weights: Any
) -> None:
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        train(small(seed=seed), tmp_path / name, dataset=scenes, quiet=True)
    assert same(weights(tmp_path / "a"), weights(tmp_path / "b"))
    assert not same(weights(tmp_path / "a"), weights(tmp_path / "c"))


@pytest.mark.long
@pytest.mark.parametrize("stop_at", [1, 3, 10, 14, 19])
@pytest.mark.parametrize("objective", ["triplet-sh", "nt-xent(learned=true)"])
def test_interrupted_anywhere_ends_with_the_same_weights(
    small: Any,
    scenes: Any,
    tmp_path: Path,
    weights: Any,
    monkeypatch: pytest.MonkeyPatch,
    stop_at: int,
    objective: str,
) -> None:
    recipe = small(objective=objective, evaluate_every=4)
    whole = train(recipe, tmp_path / "whole", dataset=scenes, quiet=True)
    assert whole.info["steps"] == 20

    killing(monkeypatch, stop_at)
    often = recipe.replace(checkpoint_seconds=0.0)
    with pytest.raises(Killed):
        train(often, tmp_path / "parts", dataset=scenes, quiet=True)
    assert not Run(tmp_path / "parts").finished
    resumed = train(often, tmp_path / "parts", dataset=scenes, quiet=True)
    assert resumed.finished
    assert without_time(resumed) == without_time(whole)
    assert same(weights(tmp_path / "parts"), weights(tmp_path / "whole"))
    assert resumed.test == whole.test


def test_asked_to_stop_and_resumed(small: Any, scenes: Any, tmp_path: Path, weights: Any) -> None:
    train(small(), tmp_path / "whole", dataset=scenes, quiet=True)
    for _ in range(100):
        run = train(small(), tmp_path / "parts", dataset=scenes, quiet=True, stop_after=0.0)
        if run.finished:
            break
        assert run.info["status"] == "stopped"
    assert run.finished
    assert same(weights(tmp_path / "parts"), weights(tmp_path / "whole"))


def test_another_recipe_in_the_same_folder_is_refused(
    small: Any, scenes: Any, tmp_path: Path
) -> None:
    train(small(), tmp_path / "run", dataset=scenes, quiet=True)
    with pytest.raises(InputError, match="lr differ"):
        train(small(lr=2e-3), tmp_path / "run", dataset=scenes, quiet=True)


def test_non_finite_loss_names_the_step(
    small: Any, scenes: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = Step.update

    def update(self: Any, *arguments: Any, **named: Any) -> torch.Tensor:
        value = original(self, *arguments, **named)
        return value * (float("nan") if self.count() == 5 else 1.0)

    counter = iter(range(1, 100))
    monkeypatch.setattr(Step, "count", lambda self: next(counter), raising=False)
    monkeypatch.setattr(Step, "update", update)
    with pytest.raises(InputError, match="step 5 "):
        train(small(), tmp_path / "run", dataset=scenes, quiet=True)
    assert Run(tmp_path / "run").info["status"] == "failed"


def test_early_stop(small: Any, scenes: Any, tmp_path: Path) -> None:
    run = train(
        small(epochs=30, lr=0.0, early_stop=2), tmp_path / "run", dataset=scenes, quiet=True
    )
    assert run.finished
    assert len(run.history) == 3
    assert any("learning rate is 0" in w["text"] for w in run.info["warnings"])


def test_history_with_a_line_cut_off_is_read(tmp_path: Path) -> None:
    from simgrad.runs.run import read_history

    path = tmp_path / "metrics.jsonl"
    entry = {"step": 1, "epoch": 0.5, "loss": 2.0, "val": {"rsum": 9.0}}
    path.write_text(json.dumps(entry) + "\n" + '{"step": 2, "lo')
    assert read_history(path) == [entry]


def test_history_without_push_has_no_share_of_it(tmp_path: Path) -> None:
    """Runs of 0.1.0 noted 0 where no query was pushed."""
    from simgrad.runs.run import read_history

    path = tmp_path / "metrics.jsonl"
    pushed = {"contributing": 1.0, "effective": 1.0, "hardest_share": 1.0, "zero_share": 0.5}
    none = {"contributing": 0.0, "effective": 0.0, "hardest_share": 0.0, "zero_share": 1.0}
    entry = {"step": 1, "epoch": 0.5, "loss": 2.0, "val": {"rsum": 9.0}}
    path.write_text(json.dumps({**entry, "attention": {"i2t": pushed, "t2i": none}}) + "\n")
    assert read_history(path)[0]["attention"] == {"i2t": pushed, "t2i": {"zero_share": 1.0}}


def test_the_speed_is_that_of_training_without_evaluation(
    small: Any, scenes: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    evaluate = observe.validate
    waits = 3.0

    def slowly(*given: Any, **named: Any) -> Any:
        time.sleep(waits)
        return evaluate(*given, **named)

    monkeypatch.setattr(observe, "validate", slowly)
    run = train(small(epochs=1), tmp_path / "run", dataset=scenes, quiet=True)
    captions = scenes.split("train").num_captions
    assert run.history[0]["samples_per_second"] > captions / waits
    assert run.seconds_per_batch is not None
    assert 0 < run.seconds_per_batch < waits / run.info["steps"]
    assert run.info["seconds"] > waits


def test_each_run_has_the_precision_of_its_own_recipe(
    small: Any, scenes: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    original = loop_module.Step.update

    def update(self: Any, *arguments: Any) -> Any:
        seen.append(torch.get_float32_matmul_precision())
        return original(self, *arguments)

    monkeypatch.setattr(loop_module.Step, "update", update)
    before = torch.get_float32_matmul_precision()
    for precision, wanted in (("tf32", "high"), ("float32", "highest")):
        seen.clear()
        recipe = small(precision=precision, epochs=1, batch=200)
        train(recipe, tmp_path / precision, dataset=scenes, quiet=True)
        assert set(seen) == {wanted}
    assert torch.get_float32_matmul_precision() == before
