"""Out again: what another library makes of an exported model is what simgrad makes of it."""

from pathlib import Path
from typing import Any

import pytest
import torch

from simgrad.core.errors import InputError
from simgrad.data.vocabulary import SPECIALS, Vocabulary
from simgrad.models.base import Scale
from tests.models.small import WORDS, captions, images, small
from tests.models.test_pretrained import made, ours, theirs
from tests.models.test_tuning import stepped
from tests.models.tiny import CAPTIONS, FOLDERS, pictures

LORA = ", train_image=lora=2, train_text=lora=2"


@pytest.fixture(scope="module", params=FOLDERS)
def folder(request: Any, tmp_path_factory: Any) -> Path:
    return FOLDERS[request.param](tmp_path_factory.mktemp(request.param))


@pytest.mark.long
@pytest.mark.parametrize("settings", ["", LORA])
def test_transformers_reads_it_back(folder: Path, tmp_path: Path, settings: str) -> None:
    import transformers

    model, tokenizer = made(folder, settings)
    stepped(model, tokenizer)
    model.set_scale(Scale(21.0, -3.0))
    model.export("transformers", tmp_path / "out", tokenizer)
    for mine, other in zip(ours(model, tokenizer), theirs(tmp_path / "out"), strict=True):
        assert (mine - other).abs().max() < 1e-5
    net = transformers.AutoModel.from_pretrained(tmp_path / "out")
    assert net.logit_scale.exp().item() == pytest.approx(21.0)
    again, words = made(tmp_path / "out")
    for mine, other in zip(ours(model, tokenizer), ours(again, words), strict=True):
        assert (mine - other).abs().max() < 1e-5


def test_an_adapter_belongs_to_the_pretrained_model(folder: Path, tmp_path: Path) -> None:
    import transformers
    from peft import PeftModel

    model, tokenizer = made(folder, LORA)
    stepped(model, tokenizer)
    model.export("transformers", tmp_path / "adapter", tokenizer, adapter=True)
    size = (tmp_path / "adapter" / "adapter_model.safetensors").stat().st_size
    assert size < (folder / "model.safetensors").stat().st_size / 2
    net = PeftModel.from_pretrained(
        transformers.AutoModel.from_pretrained(folder), tmp_path / "adapter"
    )
    for mine, other in zip(ours(model, tokenizer), theirs(folder, net.base_model.model.eval()),
                           strict=True):  # fmt: skip
        assert (mine - other).abs().max() < 1e-5
    whole, tokenizer = made(folder)
    with pytest.raises(InputError, match="adapter"):
        whole.export("transformers", tmp_path / "none", tokenizer, adapter=True)


def test_sentence_transformers_reads_it(folder: Path, tmp_path: Path) -> None:
    from sentence_transformers import SentenceTransformer

    model, tokenizer = made(folder)
    stepped(model, tokenizer)
    model.export("sentence-transformers", tmp_path / "out", tokenizer)
    there = SentenceTransformer(str(tmp_path / "out"), device="cpu")
    images, captions = ours(model, tokenizer)
    found = torch.from_numpy(there.encode(CAPTIONS))
    assert (found - captions).abs().max() < 1e-5
    found = torch.from_numpy(there.encode(pictures()))
    assert (found - images).abs().max() < 1e-5


SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in ("vse++ bert", "siglip")]


@pytest.mark.long
@pytest.mark.parametrize("name", ["vse++", "light", "clip", *SLOW])
def test_onnx_gives_the_same_vectors(name: str, tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    model = small(name)
    tokenizer = Vocabulary([*SPECIALS, *(f"w{i}" for i in range(WORDS - len(SPECIALS)))])
    model.export("onnx", tmp_path, tokenizer)
    pictures_, batch = images(model.inputs, 5), captions(7, 9)
    tokens, lengths = batch.tokens, batch.lengths
    if model.inputs.images == "pixels":
        pictures_ = (pictures_ * 255).byte()
    with torch.no_grad():
        expected = (
            model.encode_images(pictures_).vectors,
            model.encode_captions(tokens, lengths).vectors,
        )
    given = ({"images": pictures_.numpy()},
             {"tokens": tokens.numpy(), "lengths": lengths.numpy()})  # fmt: skip
    for file, fed, wanted in zip(("image.onnx", "captions.onnx"), given, expected, strict=True):
        session = onnxruntime.InferenceSession(tmp_path / file)
        (found,) = session.run(None, fed)
        assert (torch.from_numpy(found) - wanted).abs().max() < 1e-5


def test_what_compares_sets_has_no_format() -> None:
    assert small("scan t-i").formats() == ()


@pytest.mark.slow
def test_what_onnx_cannot_hold_is_refused(tmp_path: Path) -> None:
    """Its pooling is written for one number of captions at a time."""
    with pytest.raises(InputError, match="cannot be written as ONNX"):
        small("vse-infinity bigru").export("onnx", tmp_path, None)
