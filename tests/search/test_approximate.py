"""An index of FAISS: what it finds beside a slow loop, what is measured, kept, chosen, refused."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from simgrad.core.errors import InputError
from simgrad.search import approximate
from simgrad.search.approximate import Approximate, available, default_index
from simgrad.search.exact import Exact
from tests.search.test_exact import unit

pytestmark = pytest.mark.skipif(
    not available(), reason="needs the extra: pip install 'simgrad[faiss]'"
)
INDEXES = ("IVF32,Flat", "IVF32,SQ8", "HNSW16", "Flat", "PCA8,IVF16,Flat")


def clustered(count: int, dimension: int = 16) -> Tensor:
    """Vectors around forty centres, as embeddings lie."""
    generator = torch.Generator().manual_seed(3)
    centres = torch.randn(40, dimension, generator=generator)
    mine = centres[torch.arange(count) % 40]
    made = mine + 0.3 * torch.randn(count, dimension, generator=generator)
    return torch.nn.functional.normalize(made, dim=1)


@pytest.mark.parametrize("factory", INDEXES)
def test_recall_is_what_a_slow_loop_counts(tmp_path: Path, factory: str) -> None:
    vectors, queries = clustered(3000), clustered(6000)[3000:3100]
    index = Approximate.open(tmp_path / "x.faiss", vectors, factory, queries)
    hits = 0
    for query in queries:
        scores = [float(vector @ query) for vector in vectors]
        wanted = sorted(range(3000), key=lambda row: -scores[row])[:10]
        found = index.search(query, 10)
        hits += len(set(wanted) & {row for row, _ in found})
        assert [score for _, score in found] == sorted((s for _, s in found), reverse=True)
        for row, score in found:
            assert score == pytest.approx(scores[row], abs=1e-5)
    assert index.built.queries == 100
    assert index.built.recall == pytest.approx(hits / 1000, abs=1e-9)
    assert index.built.recall >= (0.5 if "PCA" in factory else 0.95)
    if factory == "Flat":
        assert index.built.recall == 1


def test_without_queries_a_vector_does_not_find_itself() -> None:
    """Else one in ten would be found for nothing."""
    vectors = clustered(64)
    rows, asked = approximate._asked(vectors, None)
    for own, found in enumerate(approximate._ten_best(Exact(vectors), asked, rows)):
        others = vectors @ vectors[own]
        others[own] = -2
        assert found == set(others.topk(10).indices.tolist())


def test_it_is_kept_and_made_again_where_it_no_longer_fits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    vectors, path = clustered(2000), tmp_path / "x.faiss"
    first = Approximate.open(path, vectors, "IVF16,Flat")
    with monkeypatch.context() as patched:
        patched.setattr(approximate, "build", None)  # nothing is built
        again = Approximate.open(path, vectors, "IVF16,Flat")
    assert again.built == first.built
    assert again.search(vectors[7], 3) == first.search(vectors[7], 3)
    other = Approximate.open(path, vectors.flip(0), "IVF16,Flat")
    assert other.search(vectors[7], 1)[0][0] == 1992
    cut = path.read_bytes()[:-100]
    path.unlink()  # open indexes still read the old one
    path.write_bytes(cut)
    assert Approximate.open(path, vectors.flip(0), "IVF16,Flat").search(vectors[7], 1)[0][0] == 1992


def test_probes_grow_until_enough_is_found(tmp_path: Path) -> None:
    vectors = unit(3000, 16)  # no clusters: the hardest case
    built = Approximate.open(tmp_path / "x.faiss", vectors, "IVF64,Flat").built
    assert built.knob == "nprobe"
    assert 8 < built.value <= 64
    assert built.recall >= 0.95
    assert f"nprobe={built.value} finds {100 * built.recall:.1f}% of the 10 best" in str(built)


def test_the_default_follows_size_and_memory() -> None:
    assert default_index(999_999, 256) == "exact"
    assert default_index(2_000_000, 256, room=8e9) == "IVF4096,Flat"
    assert default_index(2_000_000, 256, room=1.5e9) == "IVF4096,SQfp16"
    assert default_index(2_000_000, 256, room=8e8) == "IVF4096,SQ8"
    assert default_index(2_000_000, 256, room=1e8) == "IVF4096,PQ64x8"
    assert default_index(2_000_000, 250, room=1e8) == "IVF4096,PQ50x8"
    assert default_index(2_000_000, 256).startswith("IVF4096,")


@pytest.mark.parametrize(
    ("factory", "said"),
    [
        ("nonsense", "not a factory string of FAISS for vectors of 16 numbers"),
        ("PQ7", "not a factory string|multiple"),
        ("IVF5000,Flat", "5,000 cells for 100 vectors; take at most 2"),
        ("PQ4x8", "cannot learn from 100 vectors"),
    ],
)
def test_what_cannot_be_built_is_said(tmp_path: Path, factory: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        Approximate.open(tmp_path / "x.faiss", clustered(100), factory)


def test_without_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(approximate, "available", lambda: False)
    assert default_index(5_000_000, 256) == "exact"
    with pytest.raises(InputError, match=r"simgrad\[faiss\]"):
        Approximate.open(tmp_path / "x.faiss", clustered(100), "Flat")


def test_few_vectors_and_more_asked_than_there_are(tmp_path: Path) -> None:
    vectors = clustered(20)
    index = Approximate.open(tmp_path / "x.faiss", vectors, "HNSW8")
    assert len(index.search(vectors[0], 50)) == 20
    assert np.isclose(index.search(vectors[0], 1)[0][1], 1)
