"""Dual encoders of transformers: what simgrad makes of pictures and captions is what they make."""

from pathlib import Path
from typing import Any

import pytest
import torch

from simgrad.core.errors import InputError
from simgrad.data.transforms import named
from simgrad.models import Inputs, build, load, models, save
from simgrad.models.networks.layers import l2norm
from tests.models.tiny import CAPTIONS, FOLDERS, pictures


@pytest.fixture(scope="module", params=FOLDERS)
def folder(request: Any, tmp_path_factory: Any) -> Path:
    return FOLDERS[request.param](tmp_path_factory.mktemp(request.param))


def made(folder: Path, settings: str = "") -> tuple[Any, Any]:
    config = models.parse(f"clip(source={folder}{settings})")
    tokenizer = config.tokenizer_needs.tokenizer(list, None, 1)
    torch.manual_seed(1)
    model = build(config, Inputs.of("pixels", (3,), tokenizer))
    return model.eval(), tokenizer.cut(model.longest)


@torch.no_grad()
def ours(model: Any, tokenizer: Any) -> tuple[Any, Any]:
    """Through simgrad's own cutting and tokens."""
    cut = named(model.transform, train=False, size=model.inputs.image_shape[-1])
    pixels = torch.stack([cut(picture, None) for picture in pictures()])
    lists = [tokenizer.encode(caption) for caption in CAPTIONS]
    lengths = torch.tensor([len(ids) for ids in lists])
    tokens = torch.zeros(len(lists), int(lengths.max()), dtype=torch.long)
    for row, ids in enumerate(lists):
        tokens[row, : len(ids)] = torch.tensor(ids)
    return model.encode_images(pixels).vectors, model.encode_captions(tokens, lengths).vectors


@torch.no_grad()
def theirs(folder: Path, net: Any = None) -> tuple[Any, Any]:
    """Through transformers' processor and model."""
    import transformers

    net = net or transformers.AutoModel.from_pretrained(folder).eval()
    processor = transformers.AutoProcessor.from_pretrained(folder)
    fill = "longest" if net.config.model_type == "clip" else "max_length"
    longest = net.config.text_config.max_position_embeddings
    given = processor(
        images=pictures(), text=CAPTIONS, padding=fill, max_length=longest, truncation=True,
        return_tensors="pt", **_patches(processor),
    )  # fmt: skip
    out = net(**given)
    return l2norm(out.image_embeds), l2norm(out.text_embeds)


def _patches(processor: Any) -> dict[str, Any]:
    """Siglip2Processor passes defaults of its own over those of its image processor."""
    most = getattr(processor.image_processor, "max_num_patches", None)
    return {"max_num_patches": most, "patch_size": 8} if most else {}


def test_embeddings_are_those_of_transformers(folder: Path) -> None:
    for mine, other in zip(ours(*made(folder)), theirs(folder), strict=True):
        assert mine.shape == other.shape
        assert (mine - other).abs().max() < 1e-5


def test_a_checkpoint_needs_no_folder(folder: Path, tmp_path: Path) -> None:
    model, tokenizer = made(folder)
    save(tmp_path / "kept", model, tokenizer)
    again = load(tmp_path / "kept")
    assert again.model.transform == model.transform
    for one, other in zip(ours(model, tokenizer), ours(again.model, again.tokenizer), strict=True):
        assert torch.equal(one, other)


def test_its_scale_is_that_of_the_checkpoint(folder: Path) -> None:
    import transformers

    net = transformers.AutoModel.from_pretrained(folder)
    scale = made(folder)[0].pretrained_scale()
    assert scale.scale == pytest.approx(net.logit_scale.exp().item())
    assert scale.bias == pytest.approx(getattr(net, "logit_bias", torch.zeros(1)).item())


def test_weights_that_are_not_whole_are_refused(folder: Path, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    for file in folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    state = load_file(tmp_path / "model.safetensors")
    gone = next(name for name in state if name.endswith("fc1.weight"))
    del state[gone]
    save_file(state, tmp_path / "model.safetensors", {"format": "pt"})
    with pytest.raises(InputError, match="missing"):
        made(tmp_path)
