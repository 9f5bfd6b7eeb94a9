"""Models: everything is encoded once, in order, and sets compared by attention are ranked too."""

import numpy as np
import pytest
import torch
from torch import nn

import simgrad
from simgrad.data.base import Split
from simgrad.data.batches import Source
from simgrad.evaluation.evaluator import evaluate_scores
from simgrad.models.base import Encoded
from simgrad.retriever.encoding import ModelScores, encode_source, model_scores
from simgrad.retriever.similarities import Similarities


class Rows:
    """Features in memory."""

    header = "test"

    def __init__(self, values):
        self.values = values

    def __len__(self):
        return len(self.values)

    @property
    def shape(self):
        return self.values.shape[1:]

    def rows(self, indices):
        return self.values[indices]


class Words:
    """Each word is its own number."""

    def encode(self, text):
        return [int(word) for word in text.split()]


class Model(nn.Module):
    """Vectors of images and of word counts; `embeds` or sets of words."""

    def __init__(self, embeds):
        super().__init__()
        self.embeds = embeds
        torch.manual_seed(0)
        self.table = nn.Parameter(torch.randn(30, 6))
        self.seen = 0
        self.modes = set()

    def encode_images(self, images):
        self.seen += len(images)
        self.modes.add(self.training)
        return Encoded(nn.functional.normalize(images, dim=1), images[:, None])

    def encode_captions(self, tokens, lengths):
        words = self.table[tokens]
        mask = torch.arange(tokens.shape[1]) < lengths[:, None]
        mean = (words * mask[..., None]).sum(1)
        return Encoded(nn.functional.normalize(mean, dim=1), words, mask)

    def reranker(self, images, captions):
        return None

    def similarities(self, images, captions):
        """The best word of a caption for an image."""
        products = torch.einsum("nd,mld->nml", images.tokens[:, 0], captions.tokens)
        products = products.masked_fill(~captions.mask, -torch.inf)
        return products.amax(dim=2) + products.masked_fill(~captions.mask, 0).sum(dim=2) / 10


@pytest.fixture
def split():
    random = np.random.default_rng(0)
    pairing = random.permutation(np.concatenate([np.arange(23), random.integers(0, 23, 40)]))
    texts = [" ".join(map(str, random.integers(1, 30, random.integers(1, 9)))) for _ in pairing]
    texts[7] = texts[31]  # the same caption twice
    features = Rows(random.normal(size=(23, 6)).astype(np.float32))
    names = [f"{i}.jpg" for i in range(23)]
    return Split("fake", "test", texts, pairing, names, features=features)


def by_hand(model, split):
    images = model.encode_images(torch.from_numpy(split.features.values))
    captions = []
    for text in split.captions:
        tokens = torch.tensor([Words().encode(text)])
        captions.append(model.encode_captions(tokens, torch.tensor([tokens.shape[1]])))
    return images, Encoded.cat(captions)


@pytest.mark.parametrize("batch", [1, 4, 23, 100])
def test_every_item_is_encoded_once_and_in_order(split, batch):
    model = Model(True).train()
    images, captions = encode_source(model, Source(split, Words()), batch=batch)
    assert model.seen == 23
    assert model.modes == {False}
    assert model.training
    expected = by_hand(model, split)
    assert torch.allclose(images.vectors, expected[0].vectors)
    assert torch.allclose(captions.vectors, expected[1].vectors, atol=1e-6)
    assert not captions.vectors.requires_grad


def test_a_model_that_embeds(split):
    model = Model(True)
    encoded = encode_source(model, Source(split, Words()), batch=5)
    found = Similarities.of("model", model, split, *encoded).measure()
    images, captions = by_hand(model, split)
    expected = simgrad.evaluate(images.vectors, captions.vectors, split.image_of_caption)
    assert found.to_dict() == expected.to_dict()
    assert found.ranks.image_ids == tuple(split.image_names)


@pytest.mark.parametrize("rows", [1, 6, None])
def test_a_model_that_compares_sets(split, rows):
    model = Model(False)
    images, captions = encode_source(model, Source(split, Words()))
    whole = model.similarities(images, captions).detach()
    scores = model_scores(model, images, captions)
    found = evaluate_scores(scores, split.image_of_caption, rows=rows)
    expected = simgrad.evaluate_similarities(whole, split.image_of_caption)
    assert found.to_dict() == expected.to_dict()
    assert found.ties >= 1  # the caption that occurs twice


def test_scores_of_sets_select_and_turn(split):
    model = Model(False)
    images, captions = encode_source(model, Source(split, Words()))
    whole = model.similarities(images, captions).detach()
    scores = ModelScores(model, images, captions)
    assert torch.allclose(scores.transposed().compute(3, 9), whole.T[3:9])
    some = scores.transposed().select(torch.tensor([5, 2]), torch.tensor([0, 9, 4]))
    assert torch.allclose(some.compute(0, 2), whole[[0, 9, 4]][:, [5, 2]].T)


def test_nan_in_a_model_is_named(split):
    model = Model(False)
    images, captions = encode_source(model, Source(split, Words()))
    images.tokens[3] = torch.nan
    with pytest.raises(simgrad.core.errors.InputError, match="NaN"):
        Similarities.of("model", model, split, images, captions).measure()
