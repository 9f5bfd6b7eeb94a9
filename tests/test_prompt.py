"""What a prompt shows of a result: its text, as `print` has it; never pages of numbers."""

import shutil
from pathlib import Path

import pytest
import torch

import simgrad
from simgrad.evaluation import stand
from simgrad.retriever.exporting import Exported
from simgrad.retriever.retriever import Retriever

FIXTURES = Path(__file__).parent / "fixtures" / "aef3eeb"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Retriever:
    """Of a copy: what is read may be added to."""
    there = shutil.copytree(FIXTURES / "run", tmp_path_factory.mktemp("prompt") / "run")
    return simgrad.open(there, device="cpu")


def told(result: object) -> list[str]:
    """The lines of a result; they are the same wherever it is shown."""
    assert repr(result) == str(result)
    return repr(result).splitlines()


def test_a_search_shows_what_show_shows(model: Retriever) -> None:
    found = model.search("a red heart", top=2)
    lines = told(found)
    assert lines[0].startswith("a red heart: ")
    assert lines[1].split() == ["1", found.images[0].told, found.images[0].name]
    assert lines[2].strip() == found.images[0].captions[0]
    assert "\n".join(lines) == str(simgrad.show(str(model.path), "a red heart", top=2))


def test_what_was_mined(model: Retriever) -> None:
    found = model.mine(depth=3)
    images, captions = len(found.i2t), len(found.t2i)
    lines = told(found)
    assert len(lines) == 5
    assert lines[1].split()[:6] == ["i2t:", "captions", "of", "images", str(images), "3"]
    hardest = found.info["statistics"]["t2i"]["hardest"]["mean"]
    assert lines[2].split()[:5] == ["t2i:", "images", "of", "captions", str(captions)]
    assert lines[2].split()[7] == f"{hardest:.3f}"
    alone = told(simgrad.mine(torch.eye(4), torch.eye(4), depth=2))
    assert alone[1].split()[4:] == ["4", "2"]
    assert len(alone) == 4


def test_counts(model: Retriever) -> None:
    counts = model.cocos("nt-xent", batches=2, batch=8)
    effective = counts.corrected.summary()["t2i"]["effective"][0]
    for result in (counts, counts.corrected):
        lines = told(result)
        assert len(lines) == 4
        assert f"{effective:.2f}" in lines[3].split()
    one = simgrad.cocos("triplet-sh", torch.tensor([[0.9, 0.8], [0.1, 0.7]]))
    assert told(one)[0] == "triplet-sh, epsilon 0.01"
    assert told(one)[2].split() == ["i2t", "1.00", "1.00", "100.0%", "50.0%", "50.0%", "–"]


def test_false_negatives(model: Retriever, tmp_path: Path) -> None:
    found = model.false_negatives(most=7)
    first, *_ = found.named()
    lines = told(found)
    assert lines[0] == "7 pairs probably right although nobody marked them:"
    assert lines[1].split() == [f"{first.probability:.2f}", first.image]
    assert lines[2].strip() == first.text
    assert lines[11].startswith("2 more: ")
    found.save(tmp_path)
    assert f'"{model.name}"' in (tmp_path / "false-negatives.json").read_text()


def test_an_export_names_its_files(tmp_path: Path, model: Retriever) -> None:
    (tmp_path / "model.onnx").touch()
    assert repr(Exported(tmp_path, "onnx", False, model.checkpoint)) == (
        f"onnx in {tmp_path}: model.onnx"
    )


def test_answers_and_standings() -> None:
    answer = simgrad.Answer(Path("choose/photos"), "nt-xent leads.\nOver 3 seeds.")
    assert told(answer) == ["nt-xent leads.", "Over 3 seeds."]
    ranks = [simgrad.evaluate_similarities(torch.rand(20, 20)).ranks for _ in range(4)]
    found = stand({"a": ranks[:2], "b": ranks[2:]})
    assert told(found)[0].startswith(f"{found.leader} has the highest mean, rsum ")
    assert told(found)[-1].startswith("In brackets: 95% intervals")


def test_a_registry_lists_what_it_holds() -> None:
    lines = told(simgrad.objectives.objectives)
    assert len(lines) == len(list(simgrad.objectives.objectives))
    described = simgrad.objectives.objectives["siglip"].description
    assert any(line.split("  ")[0] == "siglip" and line.endswith(described) for line in lines)
