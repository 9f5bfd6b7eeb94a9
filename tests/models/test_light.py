"""Light: two heads on vectors that are there already; locked towers are the same model."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from simgrad.core.errors import InputError
from simgrad.data.vocabulary import Vocabulary
from simgrad.models import Inputs, build, load, models, save
from simgrad.models.checkpoint import DESCRIPTION, _content_hash
from simgrad.models.towers import Towers
from simgrad.retriever.fitting import require_same_model
from simgrad.retriever.prepare import prepare
from simgrad.runs.recipe import Recipe
from tests.models.small import FEATURES, WORDS, captions, images
from tests.models.test_pair import made, networks  # noqa: F401  # a fixture

DATA = "scenes(train=24, val=8, test=8, features=global)"


def test_a_caption_is_the_mean_of_its_words_by_hand() -> None:
    torch.manual_seed(0)
    model = build("light(dimension=4, word_dimension=3)", FEATURES).eval()
    table = model.text.words.weight.detach()
    tokens = torch.tensor([[5, 7, 7, 0], [4, 0, 0, 0]])
    lengths = torch.tensor([3, 1])
    for row, words in enumerate(([5, 7, 7], [4])):
        mean = sum(table[word] for word in words) / len(words)
        vector = model.text_projection.weight @ (mean / mean.norm())
        found = model.encode_captions(tokens, lengths).vectors[row]
        assert torch.allclose(found, vector / vector.norm(), atol=1e-6)
    features = images(FEATURES, n=2)
    for row, feature in enumerate(features):
        vector = model.image_projection.weight @ (feature / feature.norm())
        found = model.encode_images(features).vectors[row]
        assert torch.allclose(found, vector / vector.norm(), atol=1e-6)


def test_word_vectors_are_trained_by_the_derivative() -> None:
    torch.manual_seed(0)
    model = build("light(dimension=4, word_dimension=3)", FEATURES).double()
    batch, features = captions(m=4, longest=5), images(FEATURES, n=3).double()
    weight = torch.randn(3, 4, dtype=torch.double)

    def loss() -> torch.Tensor:
        mean = model.text(batch.tokens, batch.lengths)
        return (weight * (features[:, :3] @ mean.T)).sum()

    loss().backward()
    table = model.text.words.weight
    found, step = table.grad.clone(), 1e-6
    for word in range(WORDS):
        for place in range(3):
            with torch.no_grad():
                table[word, place] += step
                above = loss()
                table[word, place] -= 2 * step
                below = loss()
                table[word, place] += step
            assert abs((above - below) / (2 * step) - found[word, place]) < 1e-6


def test_numbers_are_left_out_while_training_alone() -> None:
    model = build("light(dimension=4, word_dimension=3, dropout=0.5)", FEATURES)
    given = torch.full((400, FEATURES.image_dimension), 2.0)
    unit = FEATURES.image_dimension**-0.5
    torch.manual_seed(0)
    seen = model.train().read(given)
    assert torch.equal(seen.unique(), torch.tensor([0.0, 2 * unit]))  # their mean is unchanged
    assert 0.45 < (seen == 0).float().mean() < 0.55
    assert torch.allclose(model.eval().read(given), torch.tensor(unit))


def test_any_language() -> None:
    words = Vocabulary.build(["ein Hund läuft", "狗在跑", "कुत्ता दौड़ता है"], min_count=1)
    model = build("light(dimension=4, word_dimension=3)", Inputs.of("features", (5,), words))
    lists = [torch.tensor(words.encode(text)) for text in ("ein Hund", "狗在跑")]
    tokens = torch.nn.utils.rnn.pad_sequence(lists, batch_first=True)
    found = model.encode_captions(tokens, torch.tensor([len(ids) for ids in lists])).vectors
    assert torch.allclose(found.norm(dim=1), torch.ones(2))


# -- locked towers


@pytest.mark.parametrize("settings", ["", ", hidden=10", ", pooling=mean, dimension=7"])
def test_towers_with_both_networks_locked_are_light(settings: str) -> None:
    locked = models.parse(f"towers(train_text=none{settings})")
    assert locked == models.parse(f"light(text=minilm, dropout=0{settings})")
    assert str(locked).startswith("light(")
    assert Towers(train_text="none").simplest() == models.parse("light(text=minilm, dropout=0)")
    assert models.parse(f"towers(text=minilm{settings})").name == "towers"  # one is trained


def test_both_names_give_the_same_weights_and_vectors(networks: Any) -> None:  # noqa: F811
    old, tokenizer = made(networks, ", pooling=mean, train_text=none")
    image, text = networks
    torch.manual_seed(1)
    new = build(
        f"light(image=transformers:{image}, text={text}, dimension=12, pooling=mean, dropout=0)",
        Inputs.of("pixels", (3,), tokenizer),
    )
    assert type(old) is type(new)
    assert old.state_dict().keys() == new.state_dict().keys()
    assert all(torch.equal(value, new.state_dict()[k]) for k, value in old.state_dict().items())


def test_a_checkpoint_and_a_recipe_of_locked_towers_are_still_read(
    networks: Any,  # noqa: F811
    tmp_path: Path,
) -> None:
    """As versions before `light` wrote them: the spec says towers, the names are the same."""
    model, tokenizer = made(networks, ", pooling=mean, train_text=none")
    names = {name.partition(".")[0] for name in model.state_dict()}
    assert names == {"image", "text", "image_projection", "text_projection"}
    save(tmp_path, model, tokenizer)
    image, text = networks
    spec = f"towers(image=transformers:{image}, text={text}, pooling=mean, dimension=12, "
    spec += "train_text=none)"
    told = json.loads((tmp_path / DESCRIPTION).read_text())
    told["model"] = spec
    del told["sha256"]
    (tmp_path / DESCRIPTION).write_text(json.dumps({**told, "sha256": _content_hash(told)}))
    again = load(tmp_path)
    assert again.model.config == model.config
    assert all(
        torch.equal(value, model.state_dict()[k]) for k, value in again.model.state_dict().items()
    )
    require_same_model(Recipe(model=spec, start_from=str(tmp_path)), again.model.config)


def test_nothing_of_a_locked_network_learns_or_drops_out(networks: Any) -> None:  # noqa: F811
    model, _ = made(networks, ", pooling=mean, train_text=none")
    model.train()
    heads = {"image_projection.weight", "text_projection.weight"}
    assert {name for name, p in model.named_parameters() if p.requires_grad} == heads
    trained = {id(p) for group in model.parameter_groups(1.0) for p in group["params"]}
    assert trained == {id(p) for n, p in model.named_parameters() if n in heads}
    assert not any(part.training for part in model.text.net.modules())
    assert not any(part.training for part in model.image.network.modules())


def test_locked_captions_are_encoded_once(networks: Any) -> None:  # noqa: F811
    _, text = networks
    spec = f"light(text={text}, pooling=mean, dimension=8)"
    begun = prepare(Recipe(model=spec, data=DATA, device="cpu"), None, {})
    batch = begun.sources["train"].fetch(next(iter(_plan(begun))))
    assert batch.tokens.is_floating_point()
    captions_of = begun.dataset.split("train").captions
    lists = [torch.tensor(begun.tokenizer.encode(captions_of[i])) for i in batch.index.captions]
    tokens = torch.nn.utils.rnn.pad_sequence(lists, batch_first=True)
    lengths = torch.tensor([len(ids) for ids in lists])
    model = begun.model.eval()
    one, other = (model.encode_captions(given, lengths).vectors for given in (batch.tokens, tokens))
    assert torch.allclose(one, other, atol=1e-6)


def _plan(begun: Any) -> Any:
    from simgrad.data.batches import in_order

    return in_order(begun.dataset.split("train"), 4)


# -- what means nothing


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("light(pooling=mean)", "pooling is of a text network"),
        ("light(text=minilm, word_dimension=8)", "word_dimension is of word vectors"),
        ("light(text=none)", "text is words, or names"),
        ("towers(train_text=none, layer_decay=0.5)", "both are locked"),
    ],
)
def test_settings_that_mean_nothing_are_refused(spec: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        build(spec, FEATURES)
    with pytest.raises(InputError, match=message):
        _ = models.parse(spec).tokenizer_needs


def test_what_is_not_here_becomes_words() -> None:
    config = models.parse("light(text=nobody/has-this, image=timm:nothing)").without_downloads()
    assert str(config) == "light"
    assert str(models.parse("light(text=nobody/has-this)").narrow()).startswith("light(dimension")
