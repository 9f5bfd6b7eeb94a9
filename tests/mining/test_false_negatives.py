"""Finding right pairs that nobody marked, where the truth is known exactly."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from simgrad.cli.false_negatives import _print
from simgrad.cli.false_negatives import false_negatives as command
from simgrad.core.errors import InputError
from simgrad.data import open_dataset
from simgrad.data.base import Split
from simgrad.data.found import read_found
from simgrad.data.likeness import CaptionLikeness, perceptual_hash, thumbprint
from simgrad.evaluation.scores import Matrix
from simgrad.mining.evidence import NAMES, Probable, View, candidates, evidence, shipped
from simgrad.report.build import build_report
from simgrad.retriever.false_negatives import Finds
from simgrad.training import train

DATA = "scenes(train=60, val=10, test=20, features=global)"


def noisy_views(split: Split, count: int = 2, noise: float = 0.3) -> list[View]:
    """Models that see what is true, and much noise."""
    assert split.truth is not None
    true = split.truth(np.arange(split.num_images), np.arange(split.num_captions))
    views = []
    for seed in range(count):
        random = np.random.default_rng(seed)
        S = 0.5 * true + noise * random.normal(size=true.shape)
        views.append(View.of(Matrix(torch.from_numpy(S).float()), split.image_of_caption, 20))
    return views


@pytest.mark.long
def test_more_models_order_pairs_better_than_one() -> None:
    split = open_dataset(DATA).split("train")
    assert split.truth is not None
    views = noisy_views(split)
    pairs = candidates(views, split, 20)
    assert (split.image_of_caption[pairs[:, 1]] != pairs[:, 0]).all()
    assert len(np.unique(pairs, axis=0)) == len(pairs)
    right = np.array([bool(split.truth(p[:1], p[1:])[0, 0]) for p in pairs])
    column = list(NAMES).index("similarity")

    def area(score: Any) -> float:
        ranks = score.argsort().argsort() + 1.0
        n = right.sum()
        return float((ranks[right].sum() - n * (n + 1) / 2) / (n * (len(right) - n)))

    one, both = (evidence(views[:k], split, pairs)[:, column] for k in (1, 2))
    assert area(both) > area(one) > 0.6
    shown = evidence(views, split, pairs)
    assert np.isfinite(shown).all()
    assert shown.shape == (len(pairs), len(NAMES))


def test_probabilities_are_calibrated_on_answers() -> None:
    random = np.random.default_rng(0)
    x = random.normal(size=(4000, 3))
    chance = 1 / (1 + np.exp(-(2 * x[:, 0] + x[:, 1] - 1)))
    right = random.random(4000) < chance
    learned = Probable.learned(("a", "b", "c"), x[:2000], right[:2000])
    assert np.abs(learned(x[2000:]) - chance[2000:]).mean() < 0.03
    with pytest.raises(InputError, match="at least 20"):
        Probable.learned(("a",), x[:30, :1], np.zeros(30, dtype=bool))
    assert shipped().names == tuple(NAMES)


def test_pictures_and_captions_that_are_alike() -> None:
    random = np.random.default_rng(0)
    small = Image.fromarray(random.integers(0, 255, (8, 8, 3), dtype=np.uint8))
    picture = small.resize((96, 96), Image.Resampling.BICUBIC)
    other = Image.fromarray(random.integers(0, 255, (96, 96, 3), dtype=np.uint8))
    own, resized, far = (
        perceptual_hash(thumbprint(p)) for p in (picture, picture.resize((50, 50)), other)
    )
    assert (own == resized).mean() > 0.9
    assert (own == far).mean() < 0.7
    like = CaptionLikeness(["two dogs run", "two brown dogs run", "a red car", ""])
    near = like.of(np.array([0, 0, 0, 3]), np.array([0, 1, 2, 0]))
    assert near[0] == pytest.approx(1)
    assert 0.4 < near[1] < 1
    assert near[2] < 0.1
    assert near[3] == 0


def test_the_command_writes_pairs_that_can_be_read(
    small: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dataset = open_dataset(DATA)
    run = train(small(epochs=1, data=DATA), tmp_path / "run", dataset=dataset, quiet=True)
    command((str(run.path),), depth=10, most=200, show=3, device="cpu")
    assert "exact semantics" in capsys.readouterr().out
    found = read_found(run.path / "false-negatives")
    assert len(found) == 200
    chances = [pair.probability for pair in found if pair.probability is not None]
    assert chances == sorted(chances, reverse=True)
    report = build_report([run.path], batches=0, device="cpu")
    assert "false-negatives" in [section.anchor for section in report.sections]
    with pytest.raises(InputError, match="which system"):
        command(())
    np.save(tmp_path / "S.npy", np.zeros((3, 6)))
    with pytest.raises(InputError, match="do not belong"):
        command((str(tmp_path / "S.npy"),), data=DATA, captions_per_image=2)


def test_two_alike_pictures_are_shown_once(capsys: pytest.CaptureFixture[str]) -> None:
    """Each with the other's captions would fill the first rows."""
    split = open_dataset(DATA).split("train")
    first, second = (int(split.captions_of(image)[0]) for image in (0, 1))
    pairs = np.array([(0, second), (1, first), (0, int(split.captions_of(2)[0]))])
    found = Finds(split, pairs, np.array([0.9, 0.8, 0.7]), np.zeros((3, 1)), None, ())  # type: ignore[arg-type]
    _print(found, 20)
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    shown = [words[0] for words in lines if words and words[0].startswith("0.")]
    assert shown == ["0.90", "0.70"]


def test_a_model_that_knows_little_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    split = open_dataset(DATA).split("train")
    random = np.random.default_rng(0)
    images = random.normal(size=(split.num_images, 16))
    good = images[split.image_of_caption] + 0.1 * random.normal(size=(split.num_captions, 16))
    for name, texts in (("good", good), ("bad", random.normal(size=good.shape))):
        np.savez(tmp_path / f"{name}.npz", images=images, texts=texts)
    files = tuple(str(tmp_path / f"{name}.npz") for name in ("good", "bad"))
    command(files, data=DATA, captions_per_image=5, depth=5, most=20, output=tmp_path / "found")
    said = " ".join(capsys.readouterr().out.split())
    assert "bad.npz knows little: its first 5 images" in said
    assert "good.npz knows little" not in said


@pytest.mark.parametrize(
    ("captions", "said"),
    [
        (["ein mann mit einem hund auf der wiese"], "; these captions are German."),
        (["a man with a dog on the grass"], "in English. Take"),
    ],
)
def test_where_probabilities_come_from_is_said(captions: list[str], said: str) -> None:
    split = Split("mine", "train", captions, np.zeros(1, dtype=np.int64), ["a.jpg"])
    nothing = np.zeros((0, 2), dtype=np.int64), np.zeros(0), np.zeros((0, len(NAMES)))
    borrowed = Finds(split, *nothing, shipped(), (1.0,), borrowed=True)
    assert said in borrowed.caveat
    assert "Flickr8k" in borrowed.caveat
    assert Finds(split, *nothing, shipped(), (1.0,)).caveat == ""  # learned from own answers
