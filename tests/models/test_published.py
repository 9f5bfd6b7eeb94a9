"""Published checkpoints: recognised, mapped name by name, and never run."""

import argparse
import json
import os
import pickle
from pathlib import Path

import pytest
import torch

from simgrad.cli.program import main
from simgrad.core.errors import InputError
from simgrad.models import load
from simgrad.models.published.checkpoints import convert, read_published_checkpoint, recognise
from tests.models import published_files as files
from tests.models.small import captions, images, small

CASES = [
    ("vse++", "vse++"),
    ("vsrn", "vsrn f30k"),
    ("vsrn", "vsrn"),
    ("scan", "scan t-i"),
    ("bfan", "bfan prob"),
    ("vse-infinity", "vse-infinity"),
    ("vse-infinity", "vse-infinity bigru"),
    ("x-vlm", "x-vlm"),
]


@pytest.mark.parametrize(("kind", "name"), CASES)
@pytest.mark.parametrize("way", ["plain", "parallel", "old format"])
def test_similarities_are_those_of_the_same_weights(
    kind: str, name: str, way: str, tmp_path: Path
) -> None:
    model = small(name)
    # As the published code does: VSRN normalises over regions, VSE++ takes features as they are.
    object.__setattr__(model.config, "published_axis", True)
    object.__setattr__(model.config, "feature_norm", False)
    if hasattr(model, "bert") and model.bert is not None:
        for layer in model.bert.layers:  # published BERTs have a head for every 64 numbers
            for attention in filter(None, (layer.attention, layer.cross)):
                attention.heads = 1
    content = files.checkpoint(kind, model)
    if way == "parallel" and kind != "x-vlm":
        content["model"] = [files.parallel(state) for state in content["model"]]
    path = files.write(tmp_path / "model_best.pth.tar", content, old_format=way == "old format")
    published = read_published_checkpoint(path)
    assert recognise(published) == kind
    imported = convert(published)
    batch, x = captions(), images(model.inputs)
    with torch.no_grad():
        expected = model(x, batch.tokens, batch.lengths)
        found = imported.model(x, batch.tokens, batch.lengths)
    assert torch.allclose(found, expected, atol=1e-6)
    if kind == "x-vlm":
        assert "temperature=0.05" in str(imported.model.config)
        assert "rerank=128" in str(imported.model.config)
    else:
        assert imported.facts["best_rsum"] == 412.25
        assert imported.facts["options"]["margin"] == 0.2


def test_published_two_way_gru_is_read_in_the_right_direction(tmp_path: Path) -> None:
    """Against torch's own two-way GRU with the very weights of the file."""
    model = small("scan t-i")
    content = files.checkpoint("scan", model)
    text = content["model"][1]
    rnn = torch.nn.GRU(8, 16, batch_first=True, bidirectional=True)
    rnn.load_state_dict({k.removeprefix("rnn."): v for k, v in text.items() if "rnn" in k})
    batch = captions()
    packed = torch.nn.utils.rnn.pack_padded_sequence(
        text["embed.weight"][batch.tokens], batch.lengths, batch_first=True, enforce_sorted=False
    )
    states, _ = torch.nn.utils.rnn.pad_packed_sequence(rnn(packed)[0], batch_first=True)
    expected = torch.nn.functional.normalize((states[..., :16] + states[..., 16:]) / 2, dim=-1)
    found = convert(read_published_checkpoint(files.write(tmp_path / "m", content)))
    encoded = found.model.encode_captions(batch.tokens, batch.lengths)
    assert encoded.mask is not None
    assert torch.allclose(encoded.tokens[encoded.mask], expected[encoded.mask], atol=1e-6)


def test_options_tell_scan_from_vsepp(tmp_path: Path) -> None:
    """Both may read words with the same one-way GRU."""
    content = files.checkpoint("vse++", small("vse++"))
    options = {"cross_attn": "i2t", "agg_func": "Mean", "raw_feature_norm": "softmax"}
    content["opt"] = argparse.Namespace(**options)
    found = convert(read_published_checkpoint(files.write(tmp_path / "a", content)))
    assert "scan(" in str(found.model.config)
    assert "text=gru" in str(found.model.config)
    del content["opt"]
    path = files.write(tmp_path / "b", content)
    with pytest.raises(InputError, match=r"give `model=vse\+\+` or `model=scan`"):
        convert(read_published_checkpoint(path))
    told = convert(read_published_checkpoint(path), "vse++(measure=order)")
    assert "measure=order" in str(told.model.config)


def test_the_size_of_pictures_is_read_or_asked_for(tmp_path: Path) -> None:
    content = files.checkpoint("x-vlm", small("x-vlm"))
    del content["config"]  # the masks of shifted windows still show it
    found = convert(read_published_checkpoint(files.write(tmp_path / "a", content)))
    assert found.model.inputs.image_shape == (3, 32, 32)
    assert found.model.longest == 40
    content["model"] = {k: v for k, v in content["model"].items() if not k.endswith("attn_mask")}
    path = files.write(tmp_path / "b", content)
    with pytest.raises(InputError, match="tells the size of pictures"):
        convert(read_published_checkpoint(path))
    told = convert(read_published_checkpoint(path), "x-vlm(size=32)")
    assert told.model.inputs.image_shape == (3, 32, 32)


def test_heads_of_pretraining_are_left_out_and_said_so(tmp_path: Path) -> None:
    content = files.checkpoint("x-vlm", small("x-vlm"))
    content["model"] |= {"bbox_head.0.weight": torch.zeros(2), "text_encoder.cls.x": torch.ones(1)}
    found = convert(read_published_checkpoint(files.write(tmp_path / "a", content)))
    assert found.left_out is not None
    assert "boxes" in found.left_out


def test_weight_normed_layers_and_image_networks(tmp_path: Path) -> None:
    model = small("bfan prob")
    content = files.checkpoint("bfan", model)
    weight = content["model"][0].pop("fc.weight")
    content["model"][0] |= {"fc.weight_v": weight * 3, "fc.weight_g": weight.norm()}
    imported = convert(read_published_checkpoint(files.write(tmp_path / "a", content)))
    assert torch.allclose(imported.model.state_dict()["fc.weight"], weight, atol=1e-6)

    content = files.checkpoint("vse++", small("vse++"))
    content["model"][0]["cnn.module.conv1.weight"] = torch.zeros(1)
    imported = convert(read_published_checkpoint(files.write(tmp_path / "b", content)))
    assert imported.left_out is not None
    assert "pooled features" in imported.left_out

    content = files.checkpoint("vse-infinity", small("vse-infinity bigru"))
    image = {f"image_encoder.{k}": v for k, v in content["model"][0].items()}
    content["model"][0] = {**image, "backbone.base.0.weight": torch.zeros(1)}
    imported = convert(read_published_checkpoint(files.write(tmp_path / "c", content)))
    assert "image=grid" in str(imported.model.config)
    assert imported.left_out is not None


def without(kind: str, name: str, *keys: str) -> dict:
    content = files.checkpoint(kind, small(name))
    for state in content["model"]:
        for key in keys:
            state.pop(key, None)
    return content


def with_weight(kind: str, name: str, weight: str) -> dict:
    """A weight that no model reads: the file is of another model."""
    content = files.checkpoint(kind, small(name))
    states = content["model"]
    (states if isinstance(states, dict) else states[-1])[weight] = torch.zeros(3)
    return content


def with_option(kind: str, name: str, **options: object) -> dict:
    content = files.checkpoint(kind, small(name))
    vars(content["opt"]).update(options)
    return content


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (lambda: without("vse++", "vse++", "rnn.weight_hh_l0"), "weight 'rnn.weight_hh_l0' is mis"),
        (lambda: without("vse++", "vse++", "fc.weight"), "no 'fc.weight'"),
        (lambda: without("vse++", "vse++", "fc.bias"), "nothing in it for fc.bias"),
        (lambda: without("vsrn", "vsrn", "Rs_GCN_3.g.weight"), "Rs_GCN_3.g.weight"),
        (lambda: without("scan", "scan t-i", "rnn.bias_hh_l0_reverse"), "nothing in it for text"),
        (lambda: with_option("scan", "scan t-i", raw_feature_norm="l1norm"), "raw_feature_norm"),
        (
            lambda: with_option("vse++", "vse++", num_layers=2),
            "a GRU of 2 layers, but weights of 1",
        ),
        (lambda: with_weight("vse++", "vse++", "rnn.weight_xy_l0"), "'rnn.weight_xy_l0' has no pl"),
        (lambda: with_weight("scan", "scan t-i", "attention.weight"), "has no place in scan"),
        (lambda: with_weight("vsrn", "vsrn", "Rs_GCN_1.W.2.weight"), "has no place in vsrn"),
        (lambda: with_weight("vse-infinity", "vse-infinity", "bert.encoder.extra"), "no place"),
        (lambda: with_weight("x-vlm", "x-vlm", "bbox_tower.weight"), "no place in x-vlm"),
        (lambda: with_weight("x-vlm", "x-vlm", "text_encoder.encoder.x"), "no place in x-vlm"),
        (lambda: {"model": [{"fc.weight": torch.zeros(2, 2)}]}, "holds 1 of them"),
        (lambda: {"model": [{}, {}]}, "without weights"),
        (lambda: {"model": [{"a": 3}, {"b": 4}]}, "not a named weight"),
        (lambda: {"state_dict": torch.zeros(3)}, "not a checkpoint of a known model"),
        (lambda: [1, 2], "holds a list"),
        (dict, "not a checkpoint"),
        (
            lambda: {
                "model": files.checkpoint("scan", small("scan t-i"))["model"],
                "opt": argparse.Namespace(),
            },
            "give `model=scan` or `model=bfan`",
        ),
    ],
)
def test_wrong_and_partial_files_say_what_is_missing(content, reason: str, tmp_path: Path) -> None:
    path = files.write(tmp_path / "file.pth", content())
    with pytest.raises(InputError, match=reason) as raised:
        convert(read_published_checkpoint(path))
    assert "file.pth" in str(raised.value)


class Malicious:
    """What a pickle can do when it is loaded without care."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (str(self.target),)


@pytest.mark.parametrize("old_format", [False, True])
@pytest.mark.parametrize("place", ["alone", "options", "epoch"])
def test_a_malicious_pickle_is_refused_and_not_run(
    place: str, old_format: bool, tmp_path: Path
) -> None:
    target = tmp_path / "ran"
    content: object = Malicious(target)
    if place != "alone":
        whole = files.checkpoint("vse++", small("vse++"))
        whole["opt" if place == "options" else "epoch"] = content
        content = whole
    path = files.write(tmp_path / "model_best.pth.tar", content, old_format=old_format)
    with pytest.raises(InputError, match=r"refused.*mkdir"):
        read_published_checkpoint(path)
    assert not target.exists()
    with open(path, "wb") as file:  # a bare pickle, without torch's frame
        pickle.dump(content, file)
    with pytest.raises(InputError, match=r"model_best\.pth\.tar"):
        read_published_checkpoint(path)
    assert not target.exists()


@pytest.mark.parametrize("damage", [b"", b"no checkpoint at all", b"PK\x03\x04torn", b"\x80\x02}"])
def test_torn_and_foreign_files(damage: bytes, tmp_path: Path) -> None:
    path = tmp_path / "file.pth"
    path.write_bytes(damage)
    with pytest.raises(InputError, match=r"file\.pth"):
        read_published_checkpoint(path)


def test_a_file_cut_short(tmp_path: Path) -> None:
    path = files.write(tmp_path / "file.pth", files.checkpoint("vse++", small("vse++")))
    path.write_bytes(path.read_bytes()[:-500])
    with pytest.raises(InputError, match="not a readable checkpoint"):
        read_published_checkpoint(path)


def vocabulary(path: Path, count: int) -> Path:
    names = ["<pad>", "<start>", "<end>", "<unk>", *(f"w{i}" for i in range(count - 4))]
    ids = {word: i for i, word in enumerate(names)}
    back = {str(i): word for word, i in ids.items()}
    path.write_text(json.dumps({"word2idx": ids, "idx2word": back, "idx": count}))
    return path


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = files.write(tmp_path / "model_best.pth.tar", files.checkpoint("vse++", small("vse++")))
    command = ["import", str(path), "--to", str(tmp_path / "out")]
    words = ["--vocabulary", str(vocabulary(tmp_path / "vocab.json", 23))]
    with pytest.raises(SystemExit) as finished:
        main([*command, *words])
    assert finished.value.code == 0
    assert "vse++(dimension=16, word_dimension=8, feature_norm=false)" in capsys.readouterr().out
    loaded = load(tmp_path / "out")
    assert loaded.tokenizer.encode("w2") == [1, 6, 2]
    assert loaded.extra["imported"]["epoch"] == 7

    with pytest.raises(SystemExit) as finished:
        main([*command, "--vocabulary", str(vocabulary(tmp_path / "small.json", 20))])
    assert finished.value.code == 2
    assert "20 words, but the checkpoint was trained with 23" in capsys.readouterr().err

    with pytest.raises(SystemExit):
        main([*command, "--model", "resnet"])
    assert "checkpoints are imported of vse++" in capsys.readouterr().err

    with pytest.raises(SystemExit):
        main(command)
    assert "no vocabulary" in capsys.readouterr().out
    assert load(tmp_path / "out").tokenizer is None
