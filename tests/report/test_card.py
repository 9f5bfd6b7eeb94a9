"""The head of a model card, as the hub reads it."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from simgrad.report.card import model_card
from simgrad.runs.run import Run


def exported(source: str | None) -> Any:
    """As `export` gives it, as far as a card looks at it."""
    config = SimpleNamespace(source=source)
    model = SimpleNamespace(config=config, longest=None, fills_captions=False)
    checkpoint = SimpleNamespace(model=model)
    return SimpleNamespace(checkpoint=checkpoint, format="onnx", adapter=False, scale=None)


def head(card: str) -> dict[str, Any]:
    told: dict[str, Any] = yaml.safe_load(card.split("---\n")[1])
    return told


def test_the_hub_reads_licence_base_model_and_numbers_with_intervals(study: Path) -> None:
    run = Run.open(study / "runs" / "triplet-s0")
    card = model_card(exported("openai/clip"), run, "me/finder", licence="mit")
    told = head(card)
    assert (told["license"], told["base_model"]) == ("mit", "openai/clip")
    (index,) = told["model-index"]
    (result,) = index["results"]
    assert (index["name"], result["dataset"]["split"]) == ("finder", "test")
    numbers = {one["type"]: one for one in result["metrics"]}
    assert numbers["rsum"]["value"] == pytest.approx(run.test["rsum"], abs=1e-3)
    low, high = numbers["i2t_r1"]["args"]["confidence_interval"]
    assert low <= numbers["i2t_r1"]["value"] <= high


def test_huggingface_hub_reads_it(study: Path) -> None:
    hub = pytest.importorskip("huggingface_hub")
    run = Run.open(study / "runs" / "triplet-s0")
    card = hub.ModelCard(model_card(exported("openai/clip"), run, "me/finder", licence="mit"))
    values = {one.metric_type: one.metric_value for one in card.data.eval_results}
    assert values["rsum"] == pytest.approx(run.test["rsum"], abs=1e-3)


def test_what_is_not_known_is_not_stated() -> None:
    card = model_card(exported("/home/me/clip"), None, "finder")
    assert set(head(card)) == {"library_name", "pipeline_tag", "tags"}
    assert "Licence: not stated." in card
