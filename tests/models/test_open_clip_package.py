"""Models of open_clip by the package itself: the same vectors as open_clip's own calls give.

They run where open_clip_torch is installed, over torchvision or over the stand-in of the tests.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

import simgrad
from simgrad.cli.models import models
from simgrad.core.errors import InputError
from simgrad.models.embedders import open_clip as embedder
from simgrad.models.networks.dual import _empty
from simgrad.models.networks.open_clip import listed, read_config, to_transformers
from tests.torchvision_standin import open_clip_here

VISION = {"image_size": 32, "layers": 2, "width": 16, "head_width": 8, "patch_size": 16}
TEXT = {"context_length": 20, "vocab_size": 49408, "width": 16, "heads": 2, "layers": 2}
POOL = {"attentional_pool": True, "attn_pooler_heads": 2, "output_tokens": True}
AVERAGE = {"no_ln_pre": True, "pool_type": "avg", "final_ln_after_pool": True}
SIGLIP = {"no_causal_mask": True, "proj_bias": True, "pool_type": "last"}


def timm(name: str, pool: str, projection: str | None) -> dict[str, Any]:
    return {"image_size": 32, "timm_model_name": name, "timm_model_pretrained": False,
            "timm_pool": pool, "timm_proj": projection}  # fmt: skip


# One small model of each kind of network in open_clip's list.
KINDS: dict[str, dict[str, Any]] = {
    "plain": {"vision_cfg": VISION, "text_cfg": TEXT},
    "resnet": {
        "vision_cfg": {**VISION, "layers": [1, 1, 1, 1], "width": 8},
        "text_cfg": TEXT,
        "quick_gelu": True,
    },
    "clipa": {
        "vision_cfg": {**VISION, **AVERAGE},
        "text_cfg": {**TEXT, "pool_type": "last", "no_causal_mask": True},
    },
    "layer scale": {"vision_cfg": {**VISION, "ls_init_value": 1e-4}, "text_cfg": TEXT},
    "timm": {"vision_cfg": timm("test_vit", "", "linear"), "text_cfg": TEXT},
    "convnext": {"vision_cfg": timm("test_convnext", "", "mlp"), "text_cfg": TEXT},
    "siglip": {
        "vision_cfg": timm("test_vit", "token", None) | {"image_size": 160},
        "text_cfg": {**TEXT, **SIGLIP},
        "embed_dim": 64,
        "init_logit_bias": -10,
        "custom_text": True,
    },
    "coca": {
        "vision_cfg": {**VISION, **POOL},
        "text_cfg": {**TEXT, "embed_cls": True, "output_tokens": True},
        "multimodal_cfg": {**TEXT, "context_length": 19, "attn_pooler_heads": 2},
        "custom_text": True,
    },
}  # fmt: skip
TEXTS = ["a dog on grass", "two red cars"]


@pytest.fixture(scope="module")
def open_clip() -> Iterator[Any]:
    with open_clip_here() as package:
        yield package
    embedder._load.cache_clear()


def written(open_clip: Any, folder: Path, told: dict[str, Any]) -> Path:
    """An untrained model in a folder as open_clip publishes it, without a tokenizer."""
    from open_clip.factory import CLIP, CoCa, CustomTextCLIP
    from safetensors.torch import save_file

    folder.mkdir()
    settings = {"embed_dim": 8, **told}
    look = {"size": told["vision_cfg"]["image_size"], "mean": [0.5] * 3, "std": [0.25] * 3}
    content = {"model_cfg": settings, "preprocess_cfg": look}
    (folder / "open_clip_config.json").write_text(json.dumps(content))
    inner = {name: value for name, value in settings.items() if name != "custom_text"}
    kind = CoCa if "multimodal_cfg" in told else CustomTextCLIP if "custom_text" in told else CLIP
    torch.manual_seed(0)
    state = kind(**inner).state_dict()
    for value in state.values():
        if value.is_floating_point():  # some begin at zero, and would hide what is left out
            value.add_(0.02 * torch.randn(value.shape))
    save_file({n: v.contiguous().clone() for n, v in state.items()},
              folder / "open_clip_model.safetensors")  # fmt: skip
    return folder


def pictures() -> list[Image.Image]:
    noise = torch.randint(0, 128, (2, 50, 70, 3), generator=torch.Generator().manual_seed(1))
    noise[1] += torch.tensor([0, 60, 120])
    return [Image.fromarray(one.byte().numpy()) for one in noise]


@pytest.mark.parametrize("kind", KINDS)
def test_a_folder_gives_open_clips_own_vectors(open_clip: Any, tmp_path: Path, kind: str) -> None:
    folder = written(open_clip, tmp_path / "model", KINDS[kind])
    net, cut = open_clip.create_model_from_pretrained(f"local-dir:{folder}")
    words = open_clip.get_tokenizer(f"local-dir:{folder}")
    net.eval()
    opened = simgrad.open(folder, device="cpu")
    with torch.no_grad():
        pixels = torch.stack([cut(picture) for picture in pictures()])
        wanted = net.encode_image(pixels, normalize=True), net.encode_text(words(TEXTS), True)
    for theirs, items in zip(wanted, (pictures(), TEXTS), strict=True):
        ours = opened.encode(items).vectors
        assert torch.allclose(ours, theirs, atol=1e-6)
        assert (theirs[0] - theirs[1]).abs().max() > 1e-4  # they tell things apart


def test_a_text_network_of_transformers(open_clip: Any, tmp_path: Path) -> None:
    """As roberta-ViT-B-32: the kind of the text network is read by its name on the hub."""
    from transformers import BertTokenizerFast, RobertaConfig

    small = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    RobertaConfig(vocab_size=30, intermediate_size=16, **small).save_pretrained(tmp_path / "text")
    text = {"hf_model_name": str(tmp_path / "text"), "hf_model_pretrained": False}
    text |= {"hf_tokenizer_name": "here", "hf_pooler_type": "mean_pooler"}
    told = {"vision_cfg": VISION, "text_cfg": text}
    folder = written(open_clip, tmp_path / "model", {**told, "custom_text": True})
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "dog", "on", "grass", "two", "red", "cars"]
    (tmp_path / "vocab.txt").write_text("\n".join(words))
    BertTokenizerFast(str(tmp_path / "vocab.txt")).save_pretrained(folder)
    net = open_clip.create_model(f"local-dir:{folder}").eval()
    with torch.no_grad():
        theirs = net.encode_text(open_clip.get_tokenizer(f"local-dir:{folder}")(TEXTS), True)
    assert torch.allclose(simgrad.open(folder).encode(TEXTS).vectors, theirs, atol=1e-6)
    assert (theirs[0] - theirs[1]).abs().max() > 1e-4


def test_it_is_evaluated_and_known_by_its_content(open_clip: Any, tmp_path: Path) -> None:
    folder = written(open_clip, tmp_path / "model", KINDS["resnet"])
    data = "scenes(train=8, val=4, test=12, features=pixels)"
    opened = simgrad.open(f"open-clip(source={folder})", data=data, device="cpu")
    metrics = opened.evaluate("test")
    assert 0 < metrics.rsum < 600
    assert opened.weights == simgrad.open(folder, device="cpu").weights


def test_a_name_of_the_list_with_a_file(open_clip: Any, tmp_path: Path) -> None:
    """ViT-S-32 and its weights, which are drawn here."""
    torch.manual_seed(0)
    net = open_clip.create_model("ViT-S-32-alt").eval()
    torch.save(net.state_dict(), tmp_path / "weights.pt")
    spec = f"open-clip(source=ViT-S-32-alt, weights={tmp_path / 'weights.pt'})"
    with torch.no_grad():
        wanted = net.encode_text(open_clip.get_tokenizer("ViT-S-32-alt")(TEXTS), normalize=True)
    assert torch.allclose(simgrad.open(spec, device="cpu").encode(TEXTS).vectors, wanted, atol=1e-5)


def test_what_is_missing_is_said(open_clip: Any, tmp_path: Path) -> None:
    def encode(spec: str) -> None:
        simgrad.open(spec, device="cpu").encode(TEXTS)

    with pytest.raises(InputError, match=r"RN50.*its tags: .*openai"):
        encode("open-clip(source=RN50)")
    with pytest.raises(InputError, match="no name of open_clip's list"):
        encode("open-clip(source=nobody/model, weights=openai)")
    folder = written(open_clip, tmp_path / "model", KINDS["plain"])
    (folder / "open_clip_model.safetensors").unlink()
    with pytest.raises(InputError, match="cannot be loaded"):
        encode(f"open-clip(source={folder})")


def test_code_that_a_folder_asks_for_does_not_run(open_clip: Any, tmp_path: Path) -> None:
    """open_clip hands `tokenizer_kwargs` of a folder's settings on to transformers."""
    ran, text = tmp_path / "ran", {"hf_tokenizer_name": "here"}
    asked = {"tokenizer_kwargs": {"trust_remote_code": True}}
    told = KINDS["plain"] | {"text_cfg": {**TEXT, **text, **asked}}
    folder = written(open_clip, tmp_path / "model", told)
    (folder / "evil.py").write_text(
        f"open({str(ran)!r}, 'w').close()\nfrom transformers import CLIPTokenizer as T\n"
    )
    named = {"tokenizer_class": "T", "auto_map": {"AutoTokenizer": ["evil.T", "evil.T"]}}
    (folder / "tokenizer_config.json").write_text(json.dumps(named))
    (folder / "config.json").write_text(json.dumps({"model_type": "clip"}))
    with pytest.raises(InputError, match=r"model: .*comes with code of its own"):
        simgrad.open(f"open-clip(source={folder})", device="cpu").encode(TEXTS)
    assert not ran.exists()


@pytest.mark.slow
def test_every_model_of_the_list(open_clip: Any, tmp_path: Path) -> None:
    """Built by the package without memory; where `clip` reads it, too, every weight has a place."""
    from open_clip.factory import CLIP, CoCa, CustomTextCLIP

    known = listed()
    assert set(known) == set(open_clip.list_models())
    for name, covered in known.items():
        told = open_clip.get_model_config(name)
        if "hf_model_name" in told["text_cfg"]:
            continue  # its settings are on the hub; the kinds are tested above
        custom = told.pop("custom_text", False)
        kind = CoCa if "multimodal_cfg" in told else CustomTextCLIP if custom else CLIP
        with torch.device("meta"):
            state = kind(**told).state_dict()
            if not covered:
                continue
            (tmp_path / "open_clip_config.json").write_text(json.dumps({"model_cfg": told}))
            wanted = _empty(read_config(tmp_path)[0]).state_dict()
            found = to_transformers(state, name)
        shapes = {key: value.shape for key, value in found.items()}
        ids = "position_ids"
        assert shapes == {k: v.shape for k, v in wanted.items() if not k.endswith(ids)}, name


def test_the_command_says_which(open_clip: Any, capsys: pytest.CaptureFixture[str]) -> None:
    models("open-clip")
    told = capsys.readouterr().out
    trained, alone = told.split("are read by open_clip alone:")
    assert [name in trained for name in (" ViT-B-32,", " RN50,")] == [True, False]
    assert [name in alone for name in (" ViT-B-32,", " RN50,")] == [False, True]


def test_without_the_package_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    embedder._load.cache_clear()
    monkeypatch.setitem(sys.modules, "open_clip", None)
    with pytest.raises(InputError, match="pip install open_clip_torch"):
        simgrad.open("open-clip(source=nobody/model)", device="cpu").encode(TEXTS)
