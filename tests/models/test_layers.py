"""Each model's own layers against numpy, written from the equations."""

from pathlib import Path

import numpy as np
import pytest
import torch

from simgrad.models.base import Encoded
from simgrad.models.networks.layers import BiGru, l2norm, last_state
from simgrad.models.networks.vse_infinity import Gpo
from simgrad.models.networks.vsrn import Captioner
from simgrad.models.published.file import PublishedPart
from simgrad.models.vsepp import order_similarities
from simgrad.models.vsrn import Relations
from tests.models import reference as ref
from tests.models.small import SETS, captions, images, small


@pytest.mark.parametrize("dim", [-1, 1])
def test_unit_length(dim: int) -> None:
    torch.manual_seed(0)
    x = torch.randn(3, 4, 5, dtype=torch.float64)
    x[1] = 0  # stays zero; what comes from above passes
    above = torch.randn(3, 4, 5)
    found, want = (x.float().requires_grad_() for _ in range(2))
    unit, expected = l2norm(found, dim), torch.nn.functional.normalize(want, dim=dim)
    assert torch.equal(unit, expected)
    for y in (unit, expected):
        y.backward(above)
    assert found.grad is not None
    assert want.grad is not None
    assert torch.allclose(found.grad, want.grad, rtol=1e-5, atol=1e-6)


def test_gru_states_do_not_depend_on_the_way_they_are_run() -> None:
    torch.manual_seed(0)
    rnn = torch.nn.GRU(3, 4, batch_first=True)
    x, lengths = torch.randn(5, 7, 3), torch.tensor([7, 1, 3, 6, 2])
    expected = np.stack([ref.gru(ref.array(x[i, :n]), rnn)[-1] for i, n in enumerate(lengths)])
    assert np.allclose(ref.array(last_state(rnn, x, lengths)), expected, atol=1e-6)
    # What a GPU runs: the padded batch, and the state at the last real step.
    picked = rnn(x)[0][torch.arange(5), lengths - 1]
    assert np.allclose(ref.array(picked), expected, atol=1e-6)


def test_two_way_gru_turns_only_the_real_part() -> None:
    torch.manual_seed(0)
    rnn = BiGru(3, 4)
    x, lengths = torch.randn(4, 6, 3), torch.tensor([6, 1, 4, 5])
    states = rnn(x, lengths)
    for i, n in enumerate(lengths):
        expected = ref.two_way_gru(ref.array(x[i, :n]), rnn)
        assert np.allclose(ref.array(states[i, :n]), expected, atol=1e-6)


@pytest.mark.parametrize("layers", [1, 2, 3])
def test_two_way_gru_of_several_layers_is_torch_s(layers: int) -> None:
    torch.manual_seed(0)
    theirs = torch.nn.GRU(3, 4, layers, batch_first=True, bidirectional=True)
    ours = BiGru(3, 4, layers)
    path = Path("file")
    state = {f"rnn.{k}": v for k, v in theirs.state_dict().items()}
    part = PublishedPart(path, state)
    mapped = part.gru("rnn", "x")
    ours.load_state_dict({name.removeprefix("x."): w for name, w in mapped.items()})
    assert part.untaken() == []
    x, lengths = torch.randn(4, 6, 3), torch.tensor([6, 1, 4, 5])
    packed = torch.nn.utils.rnn.pack_padded_sequence(x, lengths, True, enforce_sorted=False)
    states = torch.nn.utils.rnn.pad_packed_sequence(theirs(packed)[0], batch_first=True)[0]
    found = ours(x, lengths)
    for i, n in enumerate(lengths):
        assert torch.allclose(found[i, :n], (states[i, :n, :4] + states[i, :n, 4:]) / 2, atol=1e-6)


def test_order_similarities() -> None:
    generator = torch.Generator().manual_seed(0)
    image = torch.rand(300, 5, generator=generator)
    caption = torch.rand(4, 5, generator=generator).requires_grad_()
    similarities = order_similarities(image, caption)
    for i, j in ((0, 0), (7, 3), (299, 1)):
        above = np.maximum(0, ref.array(caption[j]) - ref.array(image[i]))
        assert float(similarities[i, j].detach()) == pytest.approx(-np.linalg.norm(above), abs=1e-6)
    # A caption that is nowhere above the image: similarity 0, and a gradient that is a number.
    order_similarities(caption.detach() + 1, caption).sum().backward()
    assert caption.grad is not None
    assert torch.isfinite(caption.grad).all()


def test_relation_layer() -> None:
    torch.manual_seed(0)
    layer = Relations(5).eval()
    regions = torch.randn(3, 4, 5)
    assert torch.equal(layer(regions), regions)  # it starts as the identity
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.normal_()
        layer.norm.running_mean.normal_()
        layer.norm.running_var.uniform_(0.5, 2)
    expected = np.stack([ref.relation_layer(ref.array(one), layer) for one in regions])
    assert np.allclose(ref.array(layer(regions)), expected, atol=1e-4)


@pytest.mark.parametrize("published", [False, True])
def test_vsrn_images(published: bool) -> None:
    model = small("vsrn")
    object.__setattr__(model.config, "published_axis", published)
    x = images(SETS)
    expected = []
    for one in x:
        axis = 0 if published else 1
        regions = ref.array(one) @ ref.array(model.fc.weight).T + ref.array(model.fc.bias)
        regions = ref.unit(regions, axis)
        for layer in model.relations:
            regions = ref.relation_layer(regions, layer)
        states = ref.gru(ref.unit(regions, axis), model.region_rnn)
        expected.append(ref.unit(states[-1]))
    assert np.allclose(ref.array(model.encode_images(x).vectors), np.stack(expected), atol=1e-5)


@pytest.mark.parametrize("places", [6, 70])  # weights of all sizes at once; of each set
def test_gpo(places: int) -> None:
    torch.manual_seed(0)
    pool, sets = Gpo(), 8
    features = torch.randn(sets, places, 5)
    lengths = torch.randint(1, places + 1, (sets,))
    # The real values need not come first.
    mask = torch.stack([torch.randperm(places) < n for n in lengths])
    pooled = pool(features, mask)
    for i in range(sets):
        expected = ref.gpo(ref.array(features[i][mask[i]]), pool)
        assert np.allclose(ref.array(pooled[i]), expected, atol=1e-5)
    whole = np.stack([ref.gpo(ref.array(one), pool) for one in features])
    assert np.allclose(ref.array(pool(features)), whole, atol=1e-5)


def test_gpo_weighs_all_sizes_as_each() -> None:
    pool = Gpo()
    for k in (1, 5, 64):
        assert torch.allclose(pool.weights_of_all(k)[1:], pool.weights(torch.arange(1, k + 1), k))


def test_gpo_can_become_the_maximum() -> None:
    pool = Gpo()
    features = torch.randn(2, 4, 3)
    weights = pool.weights(torch.tensor([1, 4]), 4)
    assert torch.allclose(weights.sum(1), torch.ones(2))
    assert weights[0].tolist() == [1.0, 0.0, 0.0, 0.0]
    one = torch.tensor([[True, False, False, False]] * 2)
    assert torch.allclose(pool(features, one), features[:, 0])


def test_sets_of_different_lengths_are_padded_together() -> None:
    first = Encoded(
        tokens=torch.ones(2, 3, 4), mask=torch.tensor([[True] * 3, [True, False, False]])
    )
    second = Encoded(tokens=torch.ones(1, 5, 4))
    both = Encoded.cat([first, second])
    assert both.tokens is not None
    assert both.mask is not None
    assert both.tokens.shape == (3, 5, 4)
    assert both.mask.sum(1).tolist() == [3, 1, 5]
    assert both.tokens[0, 3:].abs().sum() == 0
    assert len(both.select(torch.tensor([2, 0]))) == 2


def test_vsrn_captioner_loss_is_the_mean_over_captions() -> None:
    """A caption's loss depends on nothing but itself, and not on its padding."""
    torch.manual_seed(0)
    captioner = Captioner(10, 23, hidden=8, word_dimension=4, dropout=0.2).eval()
    batch = captions(4)
    regions = torch.randn(4, 6, 10)
    together = captioner(regions, batch.tokens, batch.lengths)
    apart = [
        captioner(regions[i : i + 1], batch.tokens[i : i + 1, :n], batch.lengths[i : i + 1])
        for i, n in enumerate(batch.lengths)
    ]
    assert float(together.detach()) == pytest.approx(float(sum(apart).detach()) / 4, rel=1e-5)


def test_vsrn_captioner_writes_the_caption_and_one_pad() -> None:
    """Step by step for one caption, with all that follows it in the batch left out."""
    torch.manual_seed(0)
    captioner = Captioner(10, 23, hidden=8, word_dimension=4, dropout=0.0).eval()
    regions, caption = torch.randn(1, 6, 10), [1, 7, 9, 2]
    tokens = torch.tensor([[*caption, 0, 5]])  # what stands in the padding is not learnt
    with torch.no_grad():
        found = float(captioner(regions, tokens, torch.tensor([4])))
        read = captioner.reader(captioner.project(regions))[0]
        state, expected = read[:, -1], 0.0
        for word, following in zip(caption, [7, 9, 2, 0], strict=True):
            keys = captioner.of_region(read) + captioner.of_state(state)[:, None]
            seen = (captioner.score(torch.tanh(keys)).softmax(1) * read).sum(1)
            embedded = captioner.embed(torch.tensor([word]))
            state = captioner.writer(torch.cat([embedded, seen], dim=1), state)
            expected -= float(captioner.out(state).log_softmax(1)[0, following])
    assert found == pytest.approx(expected, rel=1e-5)
