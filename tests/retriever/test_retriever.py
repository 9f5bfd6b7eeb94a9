"""A Retriever is the same thing, whatever it was opened from."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

import simgrad
from simgrad.core.errors import InputError
from simgrad.models import load
from simgrad.retriever.opening import open_folder
from simgrad.retriever.similarities import average
from simgrad.runs.run import Run

FIXTURES = Path(__file__).parents[1] / "fixtures" / "aef3eeb"


@pytest.fixture
def before(tmp_path: Path) -> Path:
    """A copy: what is read may be added to."""
    return Path(shutil.copytree(FIXTURES, tmp_path / "before"))


def test_a_run_gives_what_its_test_gave(before: Path) -> None:
    run = Run.open(before / "run")
    for target in (run, before / "run", str(before / "run")):
        model = simgrad.open(target, device="cpu")
        assert model.evaluate().rsum == pytest.approx(run.test["rsum"])
    assert model.evaluate("test").rsum == pytest.approx(run.test["rsum"])
    assert np.array_equal(model.evaluate("test").ranks.t2i, run.ranks().t2i)


def test_stored_ranks_need_no_weights(before: Path) -> None:
    shutil.rmtree(before / "run" / "best")
    model = simgrad.open(before / "run", device="cpu")
    assert model.evaluate().rsum == pytest.approx(Run(before / "run").test["rsum"])
    with pytest.raises(InputError, match="no checkpoint yet, or none any more"):
        model.evaluate("val")


def test_a_study_is_its_best_run_on_validation(before: Path) -> None:
    runs = {path.name: Run.open(path) for path in (before / "study" / "runs").iterdir()}
    best = max(runs, key=lambda name: runs[name].info["best"]["rsum"])
    assert simgrad.open(before / "study", device="cpu").name == best
    assert simgrad.open(before / "choice", device="cpu").path == before / "choice" / "model"


def test_a_folder_that_is_nothing(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such folder"):
        open_folder(tmp_path / "absent")
    with pytest.raises(InputError, match="neither a run nor a checkpoint"):
        simgrad.open(tmp_path)
    with pytest.raises(InputError, match="no such run, checkpoint or file"):
        simgrad.open("absent")
    with pytest.raises(InputError, match="nobody has trained yet"):
        simgrad.open("vse++")


def test_a_checkpoint_is_asked_about_data_that_are_named(before: Path) -> None:
    run = Run.open(before / "run")
    model = simgrad.open(before / "run" / "best", data=run.recipe.data, device="cpu")
    assert model.evaluate("test").rsum == pytest.approx(run.test["rsum"])
    with pytest.raises(InputError, match="has no data of its own"):
        simgrad.open(before / "run" / "best", device="cpu").evaluate()


def test_sentences_are_encoded_alone_as_together(before: Path) -> None:
    model = simgrad.open(before / "run", device="cpu")
    several = ["a red circle", "a small blue star left of a large green square"]
    together = model.encode(several).vectors
    assert together is not None
    for row, text in enumerate(several):
        alone = model.encode(text).vectors
        assert alone is not None
        assert torch.allclose(alone[0], together[row], atol=1e-6)
    with pytest.raises(InputError, match="not both"):
        model.encode(["a dog", Path("dog.jpg")])
    with pytest.raises(InputError, match="features that came with its data"):
        model.encode(Path(__file__).parents[2] / "docs" / "images" / "scenes.png")


def test_arrays_are_evaluated_and_mined_but_have_no_model() -> None:
    torch.manual_seed(0)
    images = torch.nn.functional.normalize(torch.randn(6, 4), dim=1)
    owner = np.repeat(np.arange(6), 2)
    texts = torch.nn.functional.normalize(images[owner] + 0.5 * torch.randn(12, 4), dim=1)
    opened = [
        simgrad.open(images, texts, image_of_caption=owner),
        simgrad.open({"images": images, "texts": texts}, captions_per_image=2),
        simgrad.open(images @ texts.T, image_of_caption=torch.from_numpy(owner)),
    ]
    expected = simgrad.evaluate(images, texts, owner)
    lists = simgrad.mine(images, texts, owner, depth=3)
    for arrays in opened:
        assert arrays.evaluate().to_dict() == expected.to_dict()
        assert np.array_equal(arrays.mine(depth=3).i2t, lists.i2t)
        with pytest.raises(InputError, match="arrays have no splits, so there is no 'test'"):
            arrays.mine(depth=3, split="test")
        with pytest.raises(InputError, match="have no model"):
            arrays.encode("a dog")


def test_the_mean_of_similarities_is_one_system(before: Path) -> None:
    first = simgrad.open(before / "run", device="cpu").similarities()
    twice = average([first, first])
    assert twice.measure().rsum == pytest.approx(first.measure().rsum)
    other = simgrad.open(before / "run", device="cpu").similarities("train")
    with pytest.raises(InputError, match="same images and captions"):
        average([first, other])


def test_what_the_commands_do_the_methods_do(before: Path, tmp_path: Path) -> None:
    model = simgrad.open(before / "run", device="cpu")
    found = model.search("a red circle", 3)
    assert [hit.rank for hit in found.images] == [1, 2, 3]
    assert model.cocos(batches=1).corrected.rows()
    assert model.mine(tmp_path / "lists", depth=5).i2t.shape == (24, 5)
    assert len(model.false_negatives("test", most=7).pairs) == 7
    formats = model.model.formats()
    if formats:
        model.export(tmp_path / "out")
    else:
        with pytest.raises(InputError, match="it has none"):
            model.export(tmp_path / "out")


def test_another_model_with_the_same_data(before: Path) -> None:
    model = simgrad.open(before / "run", device="cpu")
    other = load(before / "run" / "best").model
    with torch.no_grad():
        for weight in other.parameters():
            weight.zero_()
    assert model.with_model(other).similarities().measure().rsum == 0  # ties count against it
    assert model.similarities().measure().rsum > 0
