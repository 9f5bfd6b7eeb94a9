"""From a recipe to what a run works with: pictures, tokenizers, frozen networks."""

import json
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from simgrad.core.errors import InputError
from simgrad.data import Vocabulary, WordPieces, open_dataset
from simgrad.data.sampling import in_order
from simgrad.data.subwords import Subwords, read_pieces
from simgrad.data.transforms import named
from simgrad.models import build, load
from simgrad.models.networks import backbone_weights, backbones
from simgrad.models.networks.swin import SwinSettings
from simgrad.models.xvlm import Xvlm
from simgrad.retriever.encoding import encode_source
from simgrad.retriever.prepare import building, prepare, source_of
from simgrad.training import Recipe, train
from simgrad.training.loop import Training

WORLD = "scenes(train=24, val=8, test=8, size=16)"
_XVLM = (
    "x-vlm(dimension=8, size=32, swin_width=8, swin_depths=1-1, swin_heads=1-2, swin_window=4, "
    "bert_hidden=8, bert_heads=2, text_layers=1, fusion_layers=1)"
)
_CLIP = "clip(source=none, dimension=8, width=8, layers=1, heads=2, size=32, patch=16)"
_SMALL = "dimension=8, word_dimension=8, backbone=tiny, weights=random"


def recipe(model: str, **changes: Any) -> Recipe:
    values = {
        "data": WORLD, "model": model, "objective": "triplet", "epochs": 1, "batch": 32,
        "device": "cpu", "workers": 0, "min_count": 1,
    }  # fmt: skip
    return Recipe().replace(**{**values, **changes})


class Tiny(nn.Module):
    """A network with a batch norm that counts the pictures it has seen."""

    dimension = 6
    seen = 0

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 6, 4, 4)
        self.bn1 = nn.BatchNorm2d(6)

    def forward(self, pixels: Tensor) -> Tensor:
        Tiny.seen += len(pixels)
        return self.bn1(self.conv1(pixels))

    def pooled(self, pixels: Tensor) -> Tensor:
        return self(pixels).mean((2, 3))


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    network = backbones.NamedNetwork(Tiny, 20, "vse++", backbone_weights.WeightSource())
    monkeypatch.setitem(backbones.NETWORKS, "tiny", network)
    monkeypatch.setattr(Tiny, "seen", 0)
    monkeypatch.setenv("SIMGRAD_CACHE", str(tmp_path / "cache"))


@pytest.mark.parametrize(
    ("spec", "size", "transform"),
    [
        (_XVLM, 32, "x-vlm"),
        (_CLIP, 32, "crop:32:bicubic"),
        (f"vse++({_SMALL}, finetune=true)", 20, "vse++"),
        (f"vse-infinity({_SMALL}, text=bigru, cells=2, size=24)", 24, "vse-infinity"),
    ],
    ids=["x-vlm", "clip", "vse++", "vse-infinity"],
)
def test_models_that_read_pictures_get_them_in_their_own_size(
    spec: str, size: int, transform: str, tmp_path: Path
) -> None:
    wanted = recipe(spec)
    prepared = prepare(wanted)
    assert prepared.model.inputs.image_shape == (3, size, size)
    assert prepared.model.transform == transform
    batch = prepared.sources["train"].fetch(next(iter(_batches(prepared.sources["train"]))))
    assert batch.images.dtype == torch.uint8
    assert batch.images.shape[1:] == (3, size, size)
    done = train(wanted, tmp_path / "run", quiet=True)
    assert done.finished
    assert load(done.path / "best").model.inputs.image_shape == (3, size, size)


def _batches(source: Any) -> list[Any]:
    return in_order(source.split, 8)


def test_x_vlm_fits_its_pictures_as_it_comes() -> None:
    config = Xvlm()
    SwinSettings(size=config.size, window=config.swin_window)  # refuses what does not fit
    with pytest.raises(InputError, match="a multiple of 384"):
        SwinSettings(size=224, window=config.swin_window)
    SwinSettings(size=224, window=7)


def test_a_frozen_network_sees_each_picture_once(tmp_path: Path) -> None:
    """Its features are kept by the weights' hash; the checkpoint still reads pictures."""
    spec = f"vse++({_SMALL})"
    done = train(recipe(spec, epochs=3), tmp_path / "run", quiet=True)
    assert Tiny.seen == 24 + 8 + 8
    train(recipe(spec, seed=1), tmp_path / "again", quiet=True)
    assert Tiny.seen == 24 + 8 + 8
    loaded = done.load()
    source = source_of(
        open_dataset(WORLD).split("test"),
        loaded.tokenizer,
        loaded.model,
        torch.device("cpu"),
        done.recipe,
    )
    features, _ = encode_source(loaded.model, source)
    pictures = open_dataset(WORLD).split("test").pictures
    cut = named("vse++", train=False, size=20)
    pixels = torch.stack([cut(pictures.picture(i), None) for i in range(8)])
    with torch.no_grad():
        assert torch.allclose(
            loaded.model.encode_images(pixels).vectors, features.vectors, atol=1e-5
        )


def test_without_a_place_for_the_cache_the_network_sees_pictures_each_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("SIMGRAD_CACHE", str(tmp_path / "file" / "no-folder"))
    spec = f"vse++({_SMALL})"
    without = train(recipe(spec, epochs=2), tmp_path / "without", quiet=True)
    assert Tiny.seen > 2 * (24 + 8) + 8
    monkeypatch.setenv("SIMGRAD_CACHE", str(tmp_path / "cache"))
    cached = train(recipe(spec, epochs=2), tmp_path / "cached", quiet=True)
    assert [e["loss"] for e in without.history] == pytest.approx(
        [e["loss"] for e in cached.history], rel=1e-3
    )


def test_other_weights_have_other_features(tmp_path: Path) -> None:
    train(recipe(f"vse++({_SMALL})"), tmp_path / "run", quiet=True)
    seen = Tiny.seen
    network = backbones.backbone("tiny", "random")
    with torch.no_grad():
        network.network.conv1.weight.add_(1)
    torch.save(network.network.state_dict(), tmp_path / "other.pth")
    spec = f"vse++(dimension=8, word_dimension=8, backbone=tiny, weights={tmp_path}/other.pth)"
    train(recipe(spec), tmp_path / "other", quiet=True)
    assert Tiny.seen == 2 * seen


def test_augmented_pictures_go_through_a_frozen_network_each_time(tmp_path: Path) -> None:
    train(recipe(f"vse++({_SMALL})", augment="vse++"), tmp_path / "run", quiet=True)
    assert Tiny.seen >= 24 + 8 + 8
    shown = prepare(recipe(f"vse++({_SMALL})", augment="vse++")).sources["train"]
    first, second = (next(iter(shown.batches(_batches(shown), seed=s))).images for s in (0, 1))
    assert not torch.equal(first, second)


@pytest.mark.parametrize("stage", [{"finetune_epochs": 1}, {"freeze_epochs": 1, "epochs": 2}])
def test_a_network_is_trained_in_the_second_stage_alone(
    stage: dict[str, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []

    def kept(*arguments: Any) -> Any:
        made.append(prepare(*arguments))
        return made[-1]

    monkeypatch.setattr("simgrad.training.sitting.prepare", kept)
    spec = f"vse++({_SMALL}, finetune=true)"
    start = backbones.backbone("tiny", "random").network.conv1.weight
    train(recipe(spec, freeze_epochs=9), tmp_path / "frozen", quiet=True)
    train(recipe(spec, **stage), tmp_path / "both", quiet=True)
    frozen, both = (m.model.get_parameter("tower.body.network.conv1.weight") for m in made)
    assert torch.equal(frozen, start)
    assert not torch.equal(both, start)


def test_before_it_is_thawed_a_network_sees_each_training_picture_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = f"vse++({_SMALL}, finetune=true)"
    stages = recipe(spec, epochs=3, finetune_epochs=1)
    prepared = prepare(stages)
    shapes = [prepared.sources[name].image_shape for name in ("frozen", "train")]
    assert shapes == [(6,), (3, 20, 20)]
    assert prepared.sources["train"].resident
    assert all(p.requires_grad for p in prepared.model.parameters())  # the optimiser takes them
    done = train(stages, tmp_path / "run", quiet=True)
    seen = Tiny.seen
    monkeypatch.setattr("simgrad.retriever.prepare._frozen", lambda *_: None)
    without = train(stages, tmp_path / "without", quiet=True)
    assert Tiny.seen - seen >= seen + (3 - 1) * 24  # each epoch shows every picture at least once
    assert [e["loss"] for e in without.history] == pytest.approx(
        [e["loss"] for e in done.history], rel=1e-3
    )
    assert "frozen" not in prepare(recipe(spec, finetune_epochs=1, augment="vse++")).sources


def test_features_are_read_where_there_are_any_and_pictures_where_they_are_wanted() -> None:
    both = "scenes(train=8, val=4, test=4, size=16, features=global)"
    assert prepare(recipe(_CLIP, data=both)).model.inputs.images == "pixels"
    assert prepare(recipe(f"vse++({_SMALL})", data=both)).model.inputs.images == "features"
    tuned = f"vse++({_SMALL}, finetune=true)"
    assert prepare(recipe(tuned, data=both)).model.inputs.images == "pixels"


def test_a_transform_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no transform 'vsepp'"):
        prepare(recipe(_CLIP, augment="vsepp"))


# -- side by side in one process


def test_runs_that_start_from_checkpoints_share_what_they_read(tmp_path: Path) -> None:
    data = "scenes(train=12, val=4, test=4, features=global)"
    plain = recipe("vse++(dimension=8, word_dimension=8)", data=data)
    best = train(plain, tmp_path / "run", quiet=True).path / "best"
    shared: dict[Any, Any] = {}
    first = prepare(plain, None, shared)
    held = len(shared)
    for seed in range(3):
        later = prepare(plain.replace(start_from=str(best), seed=seed), None, shared)
        assert later.sources["train"] is first.sources["train"]
        assert later.sources["val"] is first.sources["val"]
    assert len(shared) == held
    # Other words are other tokens.
    other = prepare(plain.replace(min_count=9), None, shared)
    assert other.sources["train"] is not first.sources["train"]


def test_what_a_locked_text_network_made_is_not_read_by_one_that_is_trained() -> None:
    data = "scenes(train=12, val=4, test=4, features=global)"
    spec = "towers(text=none, width=16, layers=1, dimension=8, train_text={})"
    shared: dict[Any, Any] = {}
    locked, trained, again, other = (
        prepare(recipe(spec.format(way), data=data, seed=seed), None, shared)
        for way, seed in (("none", 0), ("full", 0), ("none", 0), ("none", 1))
    )
    for begun, vectors in ((locked, True), (trained, False)):
        batch = next(begun.sources["train"].batches(in_order(begun.dataset.split("train"), 4)))
        assert batch.tokens.is_floating_point() == vectors
    assert again.sources["train"] is locked.sources["train"]  # the same network: made once
    assert (
        other.sources["train"] is not locked.sources["train"]
    )  # another seed, another untrained network


def test_a_run_that_begins_leaves_another_s_initial_weights_alone(tmp_path: Path) -> None:
    """They come from the generator that all threads of a process share."""
    wanted = recipe(
        "vse++(dimension=8, word_dimension=8)",
        data="scenes(train=12, val=4, test=4, features=global)",
    )
    training = Training(wanted, tmp_path, prepare(wanted), True)
    thread = threading.Thread(target=training.go, args=(lambda: True,))
    with building:  # another run is drawing weights
        torch.manual_seed(123)
        before = torch.get_rng_state()
        thread.start()
        thread.join(0.5)
        assert torch.equal(torch.get_rng_state(), before)
    thread.join(20)
    assert not torch.equal(torch.get_rng_state(), before)


# -- tokenizers


def bert_folder(folder: Path, words: int | None = None) -> WordPieces:
    from transformers import BertConfig, BertModel

    captions = list(open_dataset(WORLD).split("train").captions)
    pieces = WordPieces.build(captions, size=90)
    (folder / "tokenizer.json").write_text(json.dumps(pieces.to_json()["tokenizer"]))
    sizes = {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = BertConfig(vocab_size=words or len(pieces), intermediate_size=8, **sizes)
    BertModel(config).save_pretrained(folder)
    return pieces


def test_captions_come_as_the_pretrained_bert_reads_them(tmp_path: Path) -> None:
    pieces = bert_folder(tmp_path)
    infinity = f"vse-infinity(dimension=8, bert={tmp_path})"
    data = "scenes(train=24, val=8, test=8, features=regions)"
    prepared = prepare(recipe(infinity, data=data))
    text = "a small red square left of two dogs"
    assert prepared.tokenizer.encode(text) == pieces.encode(text)
    assert prepared.tokenizer.longest == 512
    assert train(recipe(infinity, data=data), tmp_path / "run", quiet=True).finished


def test_a_vocabulary_that_is_not_the_bert_s_is_refused(tmp_path: Path) -> None:
    bert_folder(tmp_path, words=20)
    wanted = recipe(
        f"vse-infinity(dimension=8, bert={tmp_path})", data=f"{WORLD[:-1]}, features=regions)"
    )
    with pytest.raises(InputError, match="knows 20 word pieces"):
        prepare(wanted)


def clip_folder(folder: Path) -> None:
    """A small CLIP with byte pairs of its own, as the published ones have."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors, trainers
    from transformers import CLIPConfig, CLIPModel

    inner = Tokenizer(models.BPE(unk_token="<|end|>"))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=120, special_tokens=["<|start|>", "<|end|>"], show_progress=False
    )
    inner.train_from_iterator(open_dataset(WORLD).split("train").captions, trainer)
    inner.post_processor = processors.RobertaProcessing(
        ("<|end|>", 1), ("<|start|>", 0), add_prefix_space=False
    )
    inner.save(str(folder / "tokenizer.json"))
    tower = {
        "hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2,
    }  # fmt: skip
    text = {**tower, "vocab_size": inner.get_vocab_size(), "max_position_embeddings": 12}
    vision = {**tower, "image_size": 16, "patch_size": 8}
    config = CLIPConfig(text_config=text, vision_config=vision, projection_dim=8)
    CLIPModel(config).save_pretrained(folder)


def test_a_pretrained_clip_brings_its_tokenizer_and_its_picture_size(tmp_path: Path) -> None:
    clip_folder(tmp_path)
    wanted = recipe(f"clip(source={tmp_path})")
    prepared = prepare(wanted)
    assert isinstance(prepared.tokenizer, Subwords)
    tokens = prepared.tokenizer.encode("a small red square left of a large blue one " * 3)
    assert (tokens[0], tokens[-1], len(tokens)) == (0, 1, 12)  # cut to what it reads
    assert prepared.model.inputs.image_shape == (3, 16, 16)
    done = train(wanted, tmp_path / "run", quiet=True)
    again = load(done.path / "best")
    assert again.tokenizer.encode("a red square") == prepared.tokenizer.encode("a red square")


def test_which_tokenizer_a_folder_holds(tmp_path: Path) -> None:
    (tmp_path / "clip").mkdir()
    (tmp_path / "bert").mkdir()
    clip_folder(tmp_path / "clip")
    bert_folder(tmp_path / "bert")
    assert isinstance(read_pieces(tmp_path / "clip"), Subwords)
    assert isinstance(read_pieces(tmp_path / "bert"), WordPieces)
    (tmp_path / "clip" / "tokenizer.json").write_text('{"model": {"type": "BPE"}}')
    with pytest.raises(InputError, match=r"tokenizer\.json: not a readable tokenizer"):
        read_pieces(tmp_path / "clip")
    (tmp_path / "clip" / "tokenizer.json").unlink()
    with pytest.raises(InputError, match=r"no vocab\.txt or tokenizer\.json"):
        read_pieces(tmp_path / "clip")


def test_what_to_put_where_without_a_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    put = "Put config.json, model.safetensors and tokenizer.json of https://huggingface.co/no/such"
    for spec in ("clip(source=no/such)", "x-vlm(bert=no/such)"):
        with pytest.raises(InputError, match=put):
            prepare(recipe(spec))


def test_words_stay_words() -> None:
    assert isinstance(prepare(recipe(f"vse++({_SMALL}, finetune=true)")).tokenizer, Vocabulary)
    assert isinstance(prepare(recipe(_CLIP)).tokenizer, WordPieces)
    assert isinstance(prepare(recipe(_XVLM)).tokenizer, WordPieces)
    assert build(_CLIP, prepare(recipe(_CLIP)).model.inputs).longest == 77


def test_damaged_data_are_trained_on_without_what_the_skip_list_names(tmp_path: Path) -> None:
    from simgrad.cli.datasets import datasets

    images: list[dict[str, Any]] = [
        {"filename": f"{i}.jpg", "split": split, "sentences": [{"raw": f"picture {i}"}]}
        for i, split in enumerate(["train", "train", "val", "test"])
    ]
    del images[1]["sentences"]
    data, skip = tmp_path / "dataset_flickr30k.json", tmp_path / "skip.json"
    data.write_text(json.dumps({"images": images}))
    bare = Recipe().replace(data=str(data))
    with pytest.raises(InputError, match="no 'sentences'"):
        bare.dataset()
    datasets(str(data), fix=True, output=skip)
    assert list(bare.replace(skip=str(skip)).dataset().split("train").image_names) == ["0.jpg"]
