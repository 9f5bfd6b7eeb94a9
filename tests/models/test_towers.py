"""BERT and Swin against `transformers`; BERT split in two against BERT whole; X-VLM's matching."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from simgrad.core.errors import InputError
from simgrad.evaluation.rerank import evaluate_reranked
from simgrad.models.base import Encoded
from simgrad.models.networks.bert import BertSettings, bert
from simgrad.models.networks.swin import Swin, SwinSettings, swin
from simgrad.models.xvlm import XvlmModel, hard_draw
from simgrad.retriever.encoding import model_scores
from tests.models.small import CaptionBatch, captions, images, small


def shake(model: torch.nn.Module) -> torch.nn.Module:
    torch.manual_seed(0)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return model.eval()


@pytest.fixture
def bert_folder(tmp_path: Path) -> Path:
    from transformers import BertConfig, BertModel

    config = BertConfig(
        vocab_size=30,
        hidden_size=16,
        num_hidden_layers=4,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=20,
    )
    shake(BertModel(config)).save_pretrained(tmp_path)
    return tmp_path


def test_split_bert_equals_the_unsplit_one(bert_folder: Path) -> None:
    from transformers import BertModel

    whole = BertModel.from_pretrained(bert_folder).eval()
    halves = bert(str(bert_folder), BertSettings(30, layers=4, fusion=2, context=8)).eval()
    tokens = torch.randint(0, 30, (3, 7))
    mask = torch.arange(7) < torch.tensor([7, 4, 2])[:, None]
    expected = whole(tokens, attention_mask=mask.long())
    middle = whole(tokens, attention_mask=mask.long(), output_hidden_states=True).hidden_states[2]
    text = halves.text(tokens, mask)
    assert torch.allclose(text[mask], middle[mask], atol=1e-5)
    fused = halves.fuse(text, mask, None)
    assert torch.allclose(fused[mask], expected.last_hidden_state[mask], atol=1e-5)
    assert torch.equal(halves(tokens, mask), fused)
    seen = halves.fuse(text, mask, torch.randn(3, 5, 8))
    assert not torch.allclose(seen[mask], fused[mask], atol=1e-3)  # an image changes it


def test_bert_of_a_folder_that_lacks_weights(bert_folder: Path) -> None:
    from safetensors.torch import load_file, save_file

    path = bert_folder / "model.safetensors"
    state = {k: v for k, v in load_file(path).items() if "layer.3" not in k}
    save_file(state, path)
    with pytest.raises(InputError, match="not a complete BERT"):
        bert(str(bert_folder), BertSettings(30))
    path.unlink()
    with pytest.raises(InputError, match="neither model"):
        bert(str(bert_folder), BertSettings(30))


def test_bert_says_when_captions_are_too_long() -> None:
    model = bert(None, BertSettings(30, hidden=8, layers=1, heads=2, inner=8, positions=4))
    with pytest.raises(InputError, match="5 word pieces"):
        model(torch.zeros(1, 5, dtype=torch.long), None)


@pytest.mark.parametrize(
    "window", [4, 8]
)  # all windows shift; those of the last stage have no room to
def test_swin_equals_transformers(window: int, tmp_path: Path) -> None:
    from transformers import SwinConfig, SwinModel

    config = SwinConfig(
        image_size=64, embed_dim=8, depths=[2, 2], num_heads=[1, 2], window_size=window
    )
    theirs = shake(SwinModel(config, add_pooling_layer=False))
    theirs.save_pretrained(tmp_path)
    ours = swin(str(tmp_path), SwinSettings(size=64, window=window)).eval()
    pixels = torch.rand(2, 3, 64, 64)
    assert torch.allclose(ours(pixels), theirs(pixels).last_hidden_state, atol=1e-4)
    with pytest.raises(InputError, match="squares of 64"):
        ours(torch.rand(1, 3, 32, 32))


def test_swin_leaves_branches_out_while_training() -> None:
    torch.manual_seed(0)
    model = Swin(SwinSettings(32, 8, (2,), (2,), 4, drop_path=0.9))
    pixels = torch.rand(1, 3, 32, 32)
    assert torch.equal(model.eval()(pixels), model(pixels))
    model.train()
    assert len({float(model(pixels).detach().abs().sum()) for _ in range(8)}) > 1


def test_hard_negatives_are_drawn_by_their_chance_and_never_own() -> None:
    torch.manual_seed(0)
    logits = torch.tensor([[5.0, 0.0, 1.0, 2.0]]).repeat(20000, 1)
    own = torch.tensor([[True, False, False, False]])
    counts = torch.bincount(hard_draw(logits, own), minlength=4) / 20000
    expected = torch.softmax(torch.tensor([0.0, 1.0, 2.0]), 0)
    assert counts[0] == 0
    assert torch.allclose(counts[1:], expected, atol=0.015)


def encode(model: XvlmModel) -> tuple[Encoded, Encoded, CaptionBatch]:
    batch = captions()
    with torch.no_grad():
        found = model.encode_captions(batch.tokens, batch.lengths)
        return model.encode_images(images(model.inputs)), found, batch


def test_matching_loss_is_the_cross_entropy_of_three_kinds_of_pairs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = small("x-vlm")
    assert isinstance(model, XvlmModel)
    image, caption, batch = encode(model)
    draws = iter([(batch.image_of_caption + 1) % 5, (torch.arange(7) + 1) % 7])
    monkeypatch.setattr("simgrad.models.xvlm.hard_draw", lambda *_: next(draws))
    loss = model.auxiliary_loss(image, caption, batch)
    assert loss is not None
    terms = []
    for j in range(7):
        i = int(batch.image_of_caption[j])
        for pair, label in (((i, j), 1), (((i + 1) % 5, j), 0), ((i, (j + 1) % 7), 0)):
            states = caption.tokens[pair[1] : pair[1] + 1]
            mask = caption.mask[pair[1] : pair[1] + 1]
            logits = model.match(image.tokens[pair[0] : pair[0] + 1], states, mask)
            terms.append(-float(logits.log_softmax(1)[0, label].detach()))
    assert float(loss.detach()) == pytest.approx(np.mean(terms), rel=1e-4)


def test_rows_that_fill_up_a_batch_are_no_wrong_images(monkeypatch: pytest.MonkeyPatch) -> None:
    """A captured step repeats the first image: to its captions that is no wrong image."""
    model = small("x-vlm")
    image, caption, batch = encode(model)
    filled = image.select(torch.tensor([0, 1, 2, 3, 4, 0, 0, 0]))
    drawn: list[Tensor] = []

    def draw(logits: Tensor, own: Tensor) -> Tensor:
        drawn.append(hard_draw(logits, own))
        return drawn[-1]

    monkeypatch.setattr("simgrad.models.xvlm.hard_draw", draw)
    for _ in range(30):
        assert model.auxiliary_loss(filled, caption, batch) is not None
    assert all(int(images_drawn.max()) < 5 for images_drawn in drawn[::2])


@pytest.mark.parametrize("pad", [0, 3])
def test_siglip_pads_with_the_token_that_it_learnt_to(pad: int) -> None:
    model, batch, seen = small("siglip"), captions(), []
    model.body.reading = dataclasses.replace(model.body.reading, pad=pad)
    text: Any = model.body.net.text_model
    text.register_forward_pre_hook(lambda _, given: seen.append(given[0]))
    model.encode_captions(batch.tokens, batch.lengths)
    assert (seen[0][-1, 1:] == pad).all()  # a caption of one token


def test_reranking_orders_the_best_candidates_by_their_matching_scores() -> None:
    model = small("x-vlm")
    assert isinstance(model, XvlmModel)
    image, caption, batch = encode(model)
    own = batch.image_of_caption.numpy()
    first = model.similarities(image, caption)
    pairs = torch.cartesian_prod(torch.arange(5), torch.arange(7))
    with torch.no_grad():
        every = model.scores(image, caption, pairs).view(5, 7)
        found = evaluate_reranked(
            model_scores(model, image, caption),
            own,
            lambda pairs: model.scores(image, caption, pairs),
            3,
        )
    for query in range(7):  # captions: the three best images change places by their scores
        best = first[:, query].topk(3).indices.tolist()
        rest = sorted(set(range(5)) - set(best), key=lambda i: -float(first[i, query]))
        order = sorted(best, key=lambda i: -float(every[i, query])) + rest
        assert found.ranks.t2i[query] == 1 + order.index(int(own[query]))
