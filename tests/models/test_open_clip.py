"""open_clip's folders: read, trained, and written back."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from simgrad.core.errors import InputError
from simgrad.models import Inputs, build, load, models, save
from simgrad.models.networks.open_clip import to_open_clip, to_transformers
from simgrad.retriever.opening import open_folder
from tests.models.test_pretrained import ours
from tests.models.tiny import clip_folder, siglip_folder
from tests.torchvision_standin import open_clip_here

CONFIG, WEIGHTS = "open_clip_config.json", "open_clip_model.safetensors"


def made(folder: Path, settings: str = "") -> tuple[Any, Any]:
    config = models.parse(f"clip(source={folder}{settings})")
    tokenizer = config.tokenizer_needs.tokenizer(list, None, 1)
    model = build(config, Inputs.of("pixels", (3,), tokenizer)).eval()
    return model, tokenizer.cut(model.longest)


def squeezing(folder: Path) -> Path:
    """A tiny CLIP whose pictures open_clip can cut too, and with its activation."""
    clip_folder(folder)
    for file in folder.glob("*processor_config.json"):
        told = json.loads(file.read_text())
        inner = told.get("image_processor", told)
        if "size" in inner:
            inner["size"] = {"shortest_edge": inner["crop_size"]["height"]}
        file.write_text(json.dumps(told))
    return folder


@pytest.fixture(scope="module")
def written(tmp_path_factory: Any) -> tuple[Path, Any, Any]:
    """A folder of open_clip's, and the model it came from."""
    place = tmp_path_factory.mktemp("open_clip")
    model, tokenizer = made(squeezing(place / "clip"))
    save(place / "checkpoint", model, tokenizer)
    open_folder(place / "checkpoint", device="cpu").export(place / "out", "open_clip")
    return place / "out", model, tokenizer


def changed(folder: Path, to: Path, **settings: Any) -> Path:
    """A copy with other settings: `vision_cfg__layers=3`."""
    shutil.copytree(folder, to)
    told = json.loads((to / CONFIG).read_text())
    for name, value in settings.items():
        *path, last = ("model_cfg" if "preprocess" not in name else "", *name.split("__"))
        at = told
        for key in filter(None, path):
            at = at[key]
        at[last] = value
    (to / CONFIG).write_text(json.dumps(told))
    return to


def test_it_is_the_layout_that_open_clip_publishes(written: Any) -> None:
    from safetensors.torch import load_file

    folder, model, _ = written
    assert not (folder / "config.json").exists()
    told = json.loads((folder / CONFIG).read_text())
    assert told["model_cfg"]["vision_cfg"]["layers"] == 2
    assert told["model_cfg"]["text_cfg"]["context_length"] == 40
    assert told["preprocess_cfg"]["resize_mode"] == "shortest"
    state = load_file(folder / WEIGHTS)
    width = told["model_cfg"]["vision_cfg"]["width"]
    assert state["visual.proj"].shape == (width, 12)
    assert state["transformer.resblocks.1.attn.in_proj_weight"].shape == (3 * 16, 16)
    assert state["logit_scale"].exp() == pytest.approx(model.pretrained_scale().scale, rel=1e-5)


def test_it_is_read_back_the_same(written: Any, tmp_path: Path) -> None:
    folder, model, tokenizer = written
    back, words = made(folder)
    for one, other in zip(ours(model, tokenizer), ours(back, words), strict=True):
        assert (one - other).abs().max() < 1e-5
    assert back.pretrained_scale().scale == pytest.approx(model.pretrained_scale().scale)
    save(tmp_path / "checkpoint", back, words)  # which needs no folder any more
    again = load(tmp_path / "checkpoint")
    for one, other in zip(ours(back, words), ours(again.model, again.tokenizer), strict=True):
        assert torch.equal(one, other)
    open_folder(tmp_path / "checkpoint", device="cpu").export(tmp_path / "out", "transformers")
    third, words = made(tmp_path / "out")
    for one, other in zip(ours(back, words)[1:], ours(third, words)[1:], strict=True):
        assert (one - other).abs().max() < 1e-5


def test_low_rank_changes_are_merged(written: Any, tmp_path: Path) -> None:
    model, tokenizer = made(written[0], ", train_image=lora=2, train_text=lora=2")
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if ".lora_" in name:
                parameter.normal_(generator=torch.Generator().manual_seed(len(name)))
    save(tmp_path / "checkpoint", model, tokenizer)
    open_folder(tmp_path / "checkpoint", device="cpu").export(tmp_path / "out", "open_clip")
    back, words = made(tmp_path / "out")
    for one, other in zip(ours(model, tokenizer), ours(back, words), strict=True):
        assert (one - other).abs().max() < 1e-5


def test_names_go_there_and_back(written: Any) -> None:
    state = written[1].body.net.state_dict()
    back = to_transformers(to_open_clip(state), "here")
    assert back.keys() == state.keys()
    assert all(torch.equal(back[name], state[name]) for name in state)


@pytest.mark.parametrize(
    ("name", "value"),
    [("vision_cfg__timm_model_name", "vit_base"), ("vision_cfg__layers", [3, 4, 6, 3]),
     ("vision_cfg__pool_type", "avg"), ("vision_cfg__attentional_pool", True),
     ("vision_cfg__qk_norm", True), ("text_cfg__hf_model_name", "roberta-base"),
     ("text_cfg__pool_type", "last"), ("text_cfg__no_causal_mask", True), ("custom_text", True),
     ("init_logit_bias", -10), ("multimodal_cfg", {"width": 1}),
     ("preprocess_cfg__resize_mode", "longest"), ("preprocess_cfg__interpolation", "random")],
)  # fmt: skip
def test_what_is_not_covered_is_refused_by_name(
    written: Any, tmp_path: Path, name: str, value: Any
) -> None:
    folder = changed(written[0], tmp_path / "other", **{name: value})
    with pytest.raises(InputError, match=name.replace("__", ".")):
        made(folder)


def test_weights_that_do_not_fit_are_refused(written: Any, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not of its config"):
        made(changed(written[0], tmp_path / "narrow", embed_dim=5))
    with pytest.raises(InputError, match="incomplete weights"):
        made(changed(written[0], tmp_path / "deep", vision_cfg__layers=3))
    (changed(written[0], tmp_path / "none") / WEIGHTS).unlink()
    with pytest.raises(InputError, match="nor open_clip_pytorch_model"):
        made(tmp_path / "none")


def test_what_open_clip_cannot_hold_is_refused(tmp_path: Path) -> None:
    for name, maker, words in (
        ("clip", clip_folder, "one size"),
        ("siglip", siglip_folder, "as open_clip"),
    ):
        model, tokenizer = made(maker(tmp_path / name))
        save(tmp_path / f"{name}-checkpoint", model, tokenizer)
        with pytest.raises(InputError, match=words):
            open_folder(tmp_path / f"{name}-checkpoint", device="cpu").export(
                tmp_path / "out", "open_clip"
            )


@pytest.mark.slow
def test_open_clip_itself_makes_the_same_vectors(written: Any) -> None:
    with open_clip_here() as open_clip:
        same_vectors(open_clip, *written)


def same_vectors(open_clip: Any, folder: Path, model: Any, tokenizer: Any) -> None:
    net = open_clip.create_model(f"local-dir:{folder}").eval()
    pixels = torch.rand(3, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    lists = [tokenizer.encode(text) for text in ("a dog", "the dog runs")]
    lengths = torch.tensor([len(tokens) for tokens in lists])
    padded = torch.zeros(2, model.longest, dtype=torch.long)
    for row, tokens in zip(padded, lists, strict=True):
        row[: len(tokens)] = torch.tensor(tokens)
    with torch.no_grad():
        theirs = net.encode_image(model.body.standardise(pixels), normalize=True)
        mine = model.encode_images(pixels).vectors
        assert (theirs - mine).abs().max() < 1e-5
        theirs = net.encode_text(padded, normalize=True)
        mine = model.encode_captions(padded, lengths).vectors
        assert (theirs - mine).abs().max() < 1e-5
