"""Checkpoints that the papers' own programs wrote give what those programs gave."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from simgrad.models import Checkpoint, Encoded, load, save
from simgrad.models.published.checkpoints import convert, read_published_checkpoint

FOLDER = Path(__file__).parents[1] / "fixtures/originals"
CASES = sorted(path.name for path in FOLDER.iterdir() if path.is_dir())
VOCABULARIES = {"vsepp": "pkl", "noopt": "pkl", "xvlm": "txt"}  # the others have JSON
TOLERANCE = 1e-5


def imported(name: str, to: Path) -> tuple[Checkpoint, dict[str, np.ndarray]]:
    """The checkpoint as a model of ours, saved and read back, and the original's answers."""
    file = next((FOLDER / name).glob("checkpoint.*"))
    kind = VOCABULARIES.get(name.split("_")[0], "json")
    made = convert(read_published_checkpoint(file), None, FOLDER / f"vocabulary.{kind}")
    save(to, made.model, made.tokenizer)
    with np.load(FOLDER / name / "golden.npz") as arrays:
        return load(to), dict(arrays)


def encode_captions(loaded: Checkpoint, golden: dict[str, np.ndarray], rows: np.ndarray) -> Encoded:
    """Captions in any order, with more padding than they need."""
    ids = np.pad(golden["ids"], ((0, 0), (0, 3)))[rows]
    tokens, lengths = torch.from_numpy(ids).long(), torch.from_numpy(golden["lengths"][rows]).long()
    return loaded.model.encode_captions(tokens, lengths)


def same(found: Tensor | None, expected: np.ndarray) -> bool:
    assert found is not None
    assert tuple(found.shape) == expected.shape
    return float((found - torch.from_numpy(expected)).abs().max()) < TOLERANCE


@pytest.mark.parametrize("name", CASES)
def test_answers_are_the_original_s(name: str, tmp_path: Path) -> None:
    loaded, golden = imported(name, tmp_path)
    model, rows = loaded.model, np.random.default_rng(0).permutation(len(golden["ids"]))
    with torch.no_grad():
        images = model.encode_images(torch.from_numpy(golden["images"]))
        captions = encode_captions(loaded, golden, rows)
        assert same(model.similarities(images, captions), golden["similarities"][:, rows])
    if "image_vectors" in golden:
        assert same(images.vectors, golden["image_vectors"])
        assert same(captions.vectors, golden["caption_vectors"][rows])
    if "image_regions" in golden:
        assert same(images.tokens, golden["image_regions"])
        ends = np.cumsum(golden["lengths"])
        assert captions.tokens is not None
        for k, row in enumerate(rows):
            n = golden["lengths"][row]
            words = golden["caption_words"][ends[row] - n : ends[row]]
            assert same(captions.tokens[k, :n], words)


@pytest.mark.parametrize("name", CASES)
def test_captions_become_the_original_s_ids(name: str, tmp_path: Path) -> None:
    """X-VLM's cleaning and its 30 words and 40 pieces included."""
    loaded, golden = imported(name, tmp_path)
    for caption, ids, length in zip(
        golden["captions"], golden["ids"], golden["lengths"], strict=True
    ):
        assert loaded.tokenizer.encode(caption.decode()) == ids[:length].tolist()


def test_pairs_match_as_in_the_original(tmp_path: Path) -> None:
    loaded, golden = imported("xvlm_tiny", tmp_path)
    with torch.no_grad():
        images = loaded.model.encode_images(torch.from_numpy(golden["images"]))
        captions = encode_captions(loaded, golden, np.arange(len(golden["ids"])))
        second = loaded.model.reranker(images, captions)
        assert second is not None
        assert second.candidates == 6
        assert same(second.scores(torch.from_numpy(golden["pairs"])), golden["matching"])


def test_the_word_that_hides_others_is_the_checkpoint_s(tmp_path: Path) -> None:
    """VSE-infinity's code adds <mask> to the vocabulary of the file."""
    loaded, _ = imported("vseinf_bigru_basic", tmp_path)
    assert loaded.tokenizer.words[-1] == "<mask>"
    assert loaded.model.inputs.mask_token == len(loaded.tokenizer) - 1
    assert loaded.model.mask_token == len(loaded.tokenizer) - 1
