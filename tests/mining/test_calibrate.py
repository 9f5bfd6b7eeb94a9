"""`simgrad false-negatives --calibrate`: probabilities learned from answers, and files that do not
fit."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from simgrad.cli.false_negatives import false_negatives as command
from simgrad.core.errors import InputError
from simgrad.data import open_dataset
from simgrad.data.base import Split
from simgrad.data.found import ANSWERS, Pair, caption_names, read_found, write_found

DATA = "scenes(train=60, val=10, test=20, features=global)"


@pytest.fixture(scope="module")
def split() -> Split:
    return open_dataset(DATA).split("train")


@pytest.fixture(scope="module")
def system(split: Split, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Similarities of something that sees what is true, and much noise."""
    assert split.truth is not None
    true = split.truth(np.arange(split.num_images), np.arange(split.num_captions))
    noise = np.random.default_rng(0).normal(size=true.shape)
    path = tmp_path_factory.mktemp("system") / "S.npy"
    np.save(path, (0.5 * true + 0.3 * noise).astype(np.float32))
    return str(path)


def find(system: str, output: Path, calibrate: Path | None = None) -> list[Pair]:
    command(
        (system,), data=DATA, captions_per_image=5, depth=8, most=100_000, show=0,
        calibrate=calibrate, output=output, device="cpu",
    )  # fmt: skip
    return read_found(output)


def rightness(pairs: list[Pair], split: Split) -> Any:
    assert split.truth is not None
    images = {name: row for row, name in enumerate(split.image_names)}
    captions = {name: row for row, name in enumerate(caption_names(split))}
    places = np.array([(images[p.image], captions[p.caption]) for p in pairs])
    return split.truth(np.arange(split.num_images), np.arange(split.num_captions))[*places.T]


def test_probabilities_come_from_the_answers(system: str, split: Split, tmp_path: Path) -> None:
    first = find(system, tmp_path / "first")
    right = rightness(first, split)
    asked = np.random.default_rng(1).random(len(first)) < 0.5
    answers = [
        Pair(pair.image, pair.caption, answer="yes" if right[k] else "no")
        for k, pair in enumerate(first)
        if asked[k]
    ]
    write_found(tmp_path / "first" / ANSWERS, answers)
    again = find(system, tmp_path / "again", calibrate=tmp_path / "first")
    before = {(p.image, p.caption): p.probability or 0.0 for p in first}
    after = {(p.image, p.caption): p.probability or 0.0 for p in again}
    assert before.keys() == after.keys()

    def error(told: dict[tuple[str, str], float]) -> float:
        """How far the probabilities of pairs that nobody answered are from what is true."""
        chances = np.array([told[pair.image, pair.caption] for pair in first])
        return float(((chances - right)[~asked] ** 2).mean())

    assert error(after) < 0.9 * error(before)
    assert np.mean(list(after.values())) == pytest.approx(right.mean(), abs=0.05)
    told = json.loads((tmp_path / "again" / "false-negatives.json").read_text())
    assert told["calibrated_on"] == str(tmp_path / "first")


def test_files_that_do_not_fit_are_refused_by_name(
    system: str, split: Split, tmp_path: Path
) -> None:
    def refused(place: Path, why: str) -> None:
        with pytest.raises(InputError, match=why) as error:
            find(system, tmp_path / "output", calibrate=place)
        assert place.name in str(error.value)
        assert not (tmp_path / "output").exists()

    refused(tmp_path / "nowhere", "no found pairs")
    name, caption = split.image_names[0], f"{split.image_names[1]}#0"
    broken = tmp_path / "broken.jsonl"
    broken.write_text(json.dumps({"image": name, "caption": caption, "answer": "yes"}) + "\n{\n")
    refused(broken, "line 2: damaged: not JSON")
    broken.write_text(json.dumps({"image": name, "caption": caption, "answer": "perhaps"}) + "\n")
    refused(broken, "line 1: an answer is yes, no, unsure")
    few = tmp_path / "few.jsonl"
    write_found(few, [Pair(name, caption, answer="yes")])
    refused(few, "1 yes and 0 no; at least 20")
    other = tmp_path / "other.jsonl"
    write_found(other, [Pair(name, caption, "words of other data", answer="yes")])
    refused(other, "other data")
