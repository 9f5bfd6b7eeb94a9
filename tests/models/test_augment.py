"""Size augmentation: what it draws, and that it leaves whole words and at least one thing."""

import torch

from simgrad.models.networks.layers import valid
from simgrad.models.networks.vse_infinity import change_words, keep_cells, keep_regions
from tests.models.small import SETS, captions, images, small

DEVICE = torch.device("cpu")


def test_regions_are_dropped_at_the_rate_and_never_all() -> None:
    torch.manual_seed(0)
    kept = keep_regions(4000, 36, 0.2, DEVICE)
    assert abs(float(kept.float().mean()) - 0.8) < 0.005
    assert keep_regions(1000, 2, 0.95, DEVICE).any(1).all()


def test_cells_are_dropped_at_a_rate_for_each_image() -> None:
    torch.manual_seed(0)
    kept = keep_cells(4000, 256, 0.2, DEVICE).float().mean(1)
    assert abs(float((kept == 1).float().mean()) - 0.2) < 0.05  # u below 0.2: whole
    assert 0.7 < float(kept.min()) < 0.85
    # The mean of 1 - 0.2 u over u in (0.2, 1), and of 1 below.
    assert abs(float(kept.mean()) - (1 - 0.2 * (1 - 0.04) / 2)) < 0.003


def change(tokens: torch.Tensor, lengths: torch.Tensor, rate: float, **options: object):
    settings = {"mask_token": 99, "words": 50, "continues": None, "whole": False, **options}
    return change_words(tokens, lengths, rate=rate, **settings)  # type: ignore[arg-type]  # a dict


def test_words_are_hidden_replaced_and_deleted_as_published() -> None:
    torch.manual_seed(0)
    tokens = torch.full((500, 40), 60)  # no random word is 60
    lengths = torch.full((500,), 40)
    changed, left = change(tokens, lengths, 0.2)
    total = 500 * 40
    assert abs(float(total - left.sum()) / total - 0.08) < 0.01
    assert abs(float((changed == 99).sum()) / total - 0.10) < 0.01
    assert abs(float(((changed > 0) & (changed < 50)).sum()) / total - 0.02) < 0.005
    assert (changed[~valid(left, 40)] == 0).all()
    assert (changed[:, 0] > 0).all()


def test_order_stays_and_ends_stay_whole() -> None:
    torch.manual_seed(0)
    tokens = torch.arange(100, 112).repeat(300, 1)
    lengths = torch.randint(3, 13, (300,))
    changed, left = change(tokens, lengths, 0.9, whole=True)
    for row, n, before in zip(changed, left, lengths, strict=True):
        words = [int(token) for token in row[:n] if token >= 100]
        assert words == sorted(words)
        assert row[0] == 100
        assert row[n - 1] == 100 + before - 1


def test_something_is_always_left() -> None:
    torch.manual_seed(0)
    changed, left = change(torch.full((400, 2), 7), torch.tensor([1, 2] * 200), 1.0)
    assert left.min() == 1
    assert (changed[:, 0] > 0).all()


def test_the_pieces_of_a_word_share_its_fate() -> None:
    torch.manual_seed(0)
    continues = torch.zeros(200, dtype=torch.bool)
    continues[150:] = True
    tokens = torch.tensor([[100, 150, 151, 101, 102, 152]] * 500)
    changed, left = change(tokens, torch.full((500,), 6), 0.4, continues=continues, words=2)
    for row, n in zip(changed.tolist(), left.tolist(), strict=True):
        text = row[:n]
        if n == 1:
            continue  # nothing was left, and the first piece stays
        for word in ([100, 150, 151], [102, 152]):
            assert all(piece in text for piece in word) or not any(piece in text for piece in word)


def test_augmentation_is_for_training_alone() -> None:
    model = small("vse-infinity bigru")
    batch = captions()
    x = images(SETS)
    torch.manual_seed(0)
    with torch.no_grad():
        quiet = [model(x, batch.tokens, batch.lengths) for _ in range(2)]
        model.train()
        loud = [model(x, batch.tokens, batch.lengths) for _ in range(2)]
    assert torch.equal(quiet[0], quiet[1])
    assert not torch.equal(loud[0], loud[1])
