"""Stacked and focal attention against loops over pairs, words and regions."""

import pytest
import torch
import torch.nn.functional as F

from simgrad.models.base import Encoded
from simgrad.models.networks import cross_attention as attention
from simgrad.models.networks.cross_attention import CrossAttention, attend, attend_pairs
from tests.models import reference as ref

CASES = [
    CrossAttention(9.0, aggregate="lse", sharpness=6.0),
    CrossAttention(4.0, aggregate="mean"),
    CrossAttention(4.0, aggregate="max"),
    CrossAttention(30.0, aggregate="sum"),
    CrossAttention(20.0, focal="equal"),
    CrossAttention(20.0, focal="prob"),
    *(CrossAttention(9.0, norm) for norm in ("l2norm", "clipped", "softmax", "no_norm")),
]


def sets(n: int, lengths: list[int] | None, size: int, seed: int) -> Encoded:
    tokens = torch.randn(n, size, 8, generator=torch.Generator().manual_seed(seed))
    tokens = F.normalize(tokens, dim=-1)
    if lengths is None:
        return Encoded(tokens=tokens)
    mask = torch.arange(size) < torch.tensor(lengths)[:, None]
    return Encoded(tokens=tokens * mask[:, :, None], mask=mask)


def slowly(context: Encoded, queries: Encoded, how: CrossAttention) -> torch.Tensor:
    result = torch.zeros(len(context), len(queries), dtype=torch.float64)
    for i in range(len(context)):
        for j in range(len(queries)):
            c = ref.array(context.tokens[i][context.real()[i]])
            q = ref.array(queries.tokens[j][queries.real()[j]])
            cosines = ref.attention_cosines(q, c, how.smooth, how.focal, how.norm)
            result[i, j] = ref.aggregate(cosines, how.aggregate, how.sharpness)
    return result


@pytest.mark.parametrize("how", CASES, ids=str)
@pytest.mark.parametrize("grad", [False, True])
def test_every_pair_equals_a_loop(how: CrossAttention, grad: bool) -> None:
    # A single query looks at everything equally, where rounding decides what stands out.
    shortest = 1 if how.focal is None else 2
    regions, words = sets(3, None, 6, 0), sets(4, [5, shortest, 3, 4], 5, 1)
    with torch.set_grad_enabled(grad):
        for context, queries in ((regions, words), (words, regions)):
            found = attend(context, queries, how, memory_mib=64)
            assert torch.allclose(found.double(), slowly(context, queries, how), atol=2e-5)


@pytest.mark.parametrize("norm", attention.RAW_NORMS)
def test_vectors_of_any_length(norm: str) -> None:
    """Without unit length, products may be large: nothing overflows, and cosines are cosines."""
    torch.manual_seed(0)
    how = CrossAttention(30.0, norm, unit=False)
    regions, words = sets(3, None, 6, 0), sets(4, [5, 2, 3, 4], 5, 1)
    for one in (regions, words):
        one.tokens = one.tokens * 4 * torch.rand(one.tokens.shape[:2])[..., None]
    for context, queries in ((regions, words), (words, regions)):
        found = attend(context, queries, how, memory_mib=64)
        assert torch.allclose(found.double(), slowly(context, queries, how), atol=2e-5)
        pairs = attend_pairs(context.select(slice(0, 3)), queries.select(slice(0, 3)), how)
        assert torch.allclose(pairs, found.diagonal()[:3], atol=2e-5)


@pytest.mark.parametrize("how", CASES[:1] + CASES[4:5], ids=str)
def test_blocks_change_nothing(how: CrossAttention, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of every size, an uneven last one too, with and without a gradient."""
    regions, words = sets(7, None, 6, 0), sets(9, [5, 1, 3, 4, 2, 2, 5, 1, 4], 5, 1)
    with torch.no_grad():
        whole = attend(regions, words, how, memory_mib=64)
        monkeypatch.setattr(attention, "_QUERY_BLOCK_CPU", 4)
        monkeypatch.setattr(attention, "_NUMBERS_CPU", 250)
        assert torch.allclose(attend(regions, words, how, memory_mib=64), whole, atol=1e-6)
    gradients = []
    for alive in (10, 2**20 // 4 // (3 * 6 * 5 * 9)):  # one block; blocks of three images
        monkeypatch.setattr(attention, "_ALIVE_TRAINING", alive)
        leaf = regions.tokens.clone().requires_grad_()
        found = attend(Encoded(tokens=leaf), words, how, memory_mib=1)
        assert torch.allclose(found, whole, atol=1e-6)
        (found * torch.linspace(-1, 1, 63).view(7, 9)).sum().backward()
        gradients.append(leaf.grad)
    assert torch.allclose(gradients[0], gradients[1], atol=1e-6)


def test_training_memory_is_bounded() -> None:
    """With a small budget the saved tensors are those of one block, not of all pairs."""
    regions, words = sets(64, None, 12, 0), sets(64, [9] * 64, 9, 1)
    how = CASES[0]
    kept = {}
    for budget in (1, 512):
        sizes: list[int] = []

        def pack(tensor: torch.Tensor, sizes: list[int] = sizes) -> torch.Tensor:
            sizes.append(tensor.numel() * 4)
            return tensor

        leaf = regions.tokens.clone().requires_grad_()
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            attend(Encoded(tokens=leaf), words, how, memory_mib=budget)
        kept[budget] = sum(sizes)
    one_array = 64 * 12 * 9 * 64 * 4
    assert kept[512] > 3 * one_array
    assert kept[1] < one_array


def test_gradients_where_attention_is_flat() -> None:
    """Zero products, single words and padded rows: gradients are numbers all the same."""
    tokens = torch.zeros(2, 3, 4)
    tokens[0, 0, 0] = 1
    tokens.requires_grad_()
    other = torch.zeros(2, 2, 4)
    other[:, 0, 1] = 1
    mask = torch.tensor([[True, False], [True, False]])
    for how in CASES:
        for pair in (
            (Encoded(tokens=tokens), Encoded(tokens=other, mask=mask)),
            (Encoded(tokens=other, mask=mask), Encoded(tokens=tokens)),
        ):
            tokens.grad = None
            attend(*pair, how, memory_mib=8).sum().backward()
            assert tokens.grad is not None
            assert torch.isfinite(tokens.grad).all()
