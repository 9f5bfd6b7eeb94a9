"""Checkpoints: whole, or refused with a reason."""

import json
from pathlib import Path

import pytest
import torch

from simgrad.core.errors import InputError
from simgrad.data.vocabulary import Vocabulary
from simgrad.models import load, save, weights_hash
from tests.models.small import SMALL, captions, images, small


def vocabulary() -> Vocabulary:
    words = ["<pad>", "<start>", "<end>", "<unk>", *(f"word{i}" for i in range(19))]
    return Vocabulary(words)


@pytest.mark.parametrize("name", SMALL)
def test_a_model_comes_back_as_it_was(name: str, tmp_path: Path) -> None:
    model = small(name)
    save(tmp_path, model, vocabulary(), {"metrics": {"rsum": 123.5}})
    loaded = load(tmp_path)
    batch = captions()
    with torch.no_grad():
        expected = model(images(model.inputs), batch.tokens, batch.lengths)
        found = loaded.model(images(model.inputs), batch.tokens, batch.lengths)
    assert torch.equal(found, expected)
    assert weights_hash(loaded.model) == weights_hash(model)
    assert str(loaded.model.config) == str(model.config)
    assert loaded.model.inputs == model.inputs
    assert loaded.tokenizer.encode("word3 and") == [1, 7, 3, 2]
    assert loaded.extra == {"metrics": {"rsum": 123.5}}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model.json", "model.safetensors"]


def test_the_hash_is_of_the_weights() -> None:
    model, other = small("vse++"), small("vse++", seed=1)
    assert weights_hash(model) != weights_hash(other)
    other.load_state_dict(model.state_dict())
    assert weights_hash(model) == weights_hash(other)


def break_json(folder: Path, **changes: object) -> None:
    """As a file of the first format, which has no hash of its own."""
    path = folder / "model.json"
    told = {**json.loads(path.read_text()), "format": "simgrad-model-1", **changes}
    path.write_text(json.dumps({k: v for k, v in told.items() if k != "sha256"}))


def cut(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-10])


def swap(folder: Path) -> None:
    """The weights of another training step beside this JSON."""
    save(folder / "other", small("vse++", seed=1), None)
    (folder / "other/model.safetensors").replace(folder / "model.safetensors")


def foreign(folder: Path) -> None:
    from safetensors.torch import save_file

    from simgrad.core.files import sha256

    save_file({"fc.weight": torch.zeros(2)}, folder / "model.safetensors")
    break_json(folder, weights_sha256=sha256(folder / "model.safetensors"))


def garbage(folder: Path) -> None:
    from simgrad.core.files import sha256

    (folder / "model.safetensors").write_bytes(b"\x80\x04garbage" * 20)
    break_json(folder, weights_sha256=sha256(folder / "model.safetensors"))


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda folder: (folder / "model.json").unlink(), "not a finished checkpoint"),
        (lambda folder: (folder / "model.safetensors").unlink(), "no model.safetensors"),
        (lambda folder: (folder / "model.json").write_text("{"), "not JSON"),
        (lambda folder: (folder / "model.json").write_text("[]"), "not a simgrad checkpoint"),
        (lambda folder: break_json(folder, format="x"), "not a simgrad checkpoint"),
        (lambda folder: break_json(folder, model=3), "'model' is missing"),
        (lambda folder: break_json(folder, model="nothing"), "no model 'nothing'"),
        (lambda folder: break_json(folder, inputs={"images": "sounds"}), "inputs.images"),
        (lambda folder: break_json(folder, inputs={"images": "features"}), "cannot be read"),
        (lambda folder: break_json(folder, model="vse++(dimension=8)"), "does not fit"),
        (lambda folder: break_json(folder, tokenizer={"kind": "x"}), "a tokenizer is"),
        (cut, "torn"),
        (swap, "of another"),
        (foreign, "partial; does not fit"),
        # More memory than there is: refused before any is asked for.
        (lambda folder: break_json(folder, model="vse++(dimension=3000000)"), "does not fit"),
        (garbage, "not a safetensors file"),
    ],
)
def test_damage_is_refused_with_a_reason(damage, reason: str, tmp_path: Path) -> None:
    save(tmp_path, small("vse++"), vocabulary())
    damage(tmp_path)
    with pytest.raises(InputError, match=reason):
        load(tmp_path)


def test_the_first_format_is_still_read(tmp_path: Path) -> None:
    model = small("vse++")
    save(tmp_path, model, vocabulary())
    break_json(tmp_path)
    assert weights_hash(load(tmp_path).model) == weights_hash(model)


def test_no_flipped_bit_in_the_description_changes_the_model(tmp_path: Path) -> None:
    model = small("scan t-i")
    save(tmp_path, model, vocabulary(), {"metrics": {"rsum": 123.5}})
    path = tmp_path / "model.json"
    whole = path.read_bytes()
    refused = 0
    for at in torch.randperm(8 * len(whole), generator=torch.Generator().manual_seed(0))[:60]:
        damaged = bytearray(whole)
        damaged[at // 8] ^= 1 << (at % 8)
        path.write_bytes(damaged)
        try:
            loaded = load(tmp_path)
        except InputError as error:
            refused += "model.json" in str(error)
            continue
        assert str(loaded.model.config) == str(model.config)
        assert loaded.tokenizer.words == vocabulary().words
        assert loaded.extra == {"metrics": {"rsum": 123.5}}
    assert refused > 40


def test_no_folder(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such checkpoint"):
        load(tmp_path / "none")


def test_a_failed_save_leaves_the_old_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = small("vse++")
    save(tmp_path, model, None, {"step": 1})

    def fail(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("safetensors.torch.save", fail)
    with pytest.raises(OSError, match="disk full"):
        save(tmp_path, small("vse++", seed=1), None, {"step": 2})
    assert load(tmp_path).extra == {"step": 1}
    assert weights_hash(load(tmp_path).model) == weights_hash(model)
