"""Embeddings and similarities as people keep them: every kind of file, one answer."""

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
import torch
from safetensors.torch import save_file

import simgrad
from simgrad.core.errors import InputError
from tests.evaluation.commands import run

OWNER = np.concatenate([np.repeat(np.arange(12), 2), [3, 3, 7]])


@pytest.fixture
def arrays():
    random = np.random.default_rng(0)
    images = random.normal(size=(12, 6))
    images /= np.linalg.norm(images, axis=1, keepdims=True)
    texts = images[OWNER] + 0.4 * random.normal(size=(len(OWNER), 6))
    return images, texts / np.linalg.norm(texts, axis=1, keepdims=True)


def rows(array, kind=None, size=-1):
    return pyarrow.array(array.tolist(), pyarrow.list_(kind or pyarrow.float64(), size))


def measured(system):
    return system.evaluate().rsum


def test_one_file_of_every_kind(tmp_path, arrays):
    images, texts = arrays
    expected = simgrad.evaluate(images, texts, OWNER).rsum
    named = {"images": images, "texts": texts, "image_of_caption": OWNER}
    np.savez(tmp_path / "a.npz", **named)
    save_file({k: torch.from_numpy(v) for k, v in named.items()}, tmp_path / "a.safetensors")
    for name in ("a.npz", "a.safetensors"):
        assert measured(simgrad.open(tmp_path / name)) == pytest.approx(expected)


def test_a_similarity_matrix_of_every_kind(tmp_path, arrays):
    whole = arrays[0] @ arrays[1].T
    np.save(tmp_path / "s.npy", whole)
    np.savez(tmp_path / "s.npz", similarities=whole, image_of_caption=OWNER)
    save_file({"scores": torch.from_numpy(whole)}, tmp_path / "s.safetensors")
    pyarrow.parquet.write_table(pyarrow.table({"s": rows(whole)}), tmp_path / "s.parquet")
    np.save(tmp_path / "owner.npy", OWNER)
    expected = simgrad.evaluate_similarities(whole, OWNER).rsum
    for name in ("s.npy", "s.npz", "s.safetensors", "s.parquet"):
        system = simgrad.open(tmp_path / name, image_of_caption=tmp_path / "owner.npy")
        assert measured(system) == pytest.approx(expected), name


def test_two_files_of_every_kind(tmp_path, arrays):
    expected = simgrad.evaluate(*arrays, OWNER).rsum
    names = ("images", "texts")
    for name, array in zip(names, arrays, strict=True):
        np.save(tmp_path / f"{name}.npy", array)
        np.savez(tmp_path / f"{name}.npz", whatever=array)
        save_file({name: torch.from_numpy(array)}, tmp_path / f"{name}.safetensors")
        kind = rows(array, size=6) if name == "images" else rows(array)
        table = pyarrow.table({"embedding": kind, "length": [1.0] * len(array)})
        pyarrow.parquet.write_table(table, tmp_path / f"{name}.parquet", row_group_size=5)
    np.save(tmp_path / "owner.npy", OWNER)
    for suffix in ("npy", "npz", "safetensors", "parquet"):
        pair = [tmp_path / f"{name}.{suffix}" for name in names]
        system = simgrad.open(*pair, image_of_caption=tmp_path / "owner.npy")
        assert measured(system) == pytest.approx(expected), suffix


def test_parquet_pairs_by_ids(tmp_path, arrays):
    images, texts = arrays
    names = [f"{i:04}.jpg" for i in range(12)]
    order = np.random.default_rng(1).permutation(len(OWNER))
    pyarrow.parquet.write_table(
        pyarrow.table({"id": names, "embedding": rows(images, pyarrow.float32())}),
        tmp_path / "i.parquet",
    )
    owners = [names[i] for i in OWNER[order]]
    pyarrow.parquet.write_table(
        pyarrow.table({"embedding": rows(texts[order], pyarrow.float32()), "image_id": owners}),
        tmp_path / "t.parquet",
    )
    system = simgrad.open(tmp_path / "i.parquet", tmp_path / "t.parquet")
    assert system.similarities().split.image_names == list(names)
    assert measured(system) == pytest.approx(simgrad.evaluate(images, texts, OWNER).rsum)
    owners[5] = "absent.jpg"
    pyarrow.parquet.write_table(
        pyarrow.table({"embedding": rows(texts), "image_id": owners}), tmp_path / "t.parquet"
    )
    with pytest.raises(InputError, match=r"row 5: there is no image 'absent\.jpg'"):
        simgrad.open(tmp_path / "i.parquet", tmp_path / "t.parquet")


def test_as_typed(tmp_path, arrays, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, array in zip(("X", "Y", "Z"), (*arrays, OWNER), strict=True):
        np.save(f"{name}.npy", array)
    np.save("Y2.npy", arrays[1][:, ::-1])
    one = run(capsys, "--images", "X.npy", "--texts", "Y.npy", "--image-of-caption", "Z.npy")
    assert f"{simgrad.evaluate(*arrays, OWNER).rsum:.1f}" in one
    pair = ("--images", "X.npy", "X.npy", "--texts", "Y.npy", "Y2.npy")
    two = run(capsys, *pair, "--image-of-caption", "Z.npy")
    assert "B - A" in two
    assert "B: X.npy + Y2.npy" in two


def test_as_many_captions_as_images_are_pairs(tmp_path, arrays):
    images = arrays[0]
    np.save(tmp_path / "s.npy", images @ images.T)
    assert measured(simgrad.open(tmp_path / "s.npy")) == 600


def text(path):
    path.write_text("nothing")


def ragged(path):
    pyarrow.parquet.write_table(pyarrow.table({"embedding": [[1.0], [1.0, 2.0]]}), path)


def hollow(path):
    pyarrow.parquet.write_table(pyarrow.table({"embedding": [[1.0], None]}), path)


def words(path):
    pyarrow.parquet.write_table(pyarrow.table({"caption": ["a", "b"]}), path)


@pytest.mark.parametrize(
    ("name", "make", "message"),
    [
        ("x.npy", lambda p: np.save(p, np.zeros(3)), "2 dimensions is needed"),
        ("x.npy", lambda p: np.save(p, np.zeros((2, 0))), "not .2, 0."),
        ("x.npz", lambda p: np.savez(p, a=np.zeros((2, 2)), b=np.zeros((2, 2))), "if there are"),
        ("x.npz", lambda p: np.savez(p, images=np.zeros((2, 2))), "'images' and 'texts'"),
        ("x.npz", text, "not a readable .npz"),
        ("x.safetensors", text, "not a safetensors file"),
        ("x.parquet", text, "not a readable .parquet"),
        ("x.parquet", ragged, "different lengths"),
        ("x.parquet", hollow, "row 1 is empty"),
        ("x.parquet", words, "2 dimensions is needed"),
        ("x.csv", text, ".npy, .npz, .safetensors, .parquet file"),
    ],
)
def test_what_cannot_be_read_is_named(tmp_path, name, make, message):
    make(tmp_path / name)
    with pytest.raises(InputError, match=message) as told:
        simgrad.open(tmp_path / name)
    assert str(tmp_path / name) in str(told.value)


def test_mistakes_of_pairs(tmp_path, arrays, capsys):
    np.save(tmp_path / "x.npy", arrays[0])
    np.save(tmp_path / "y.npy", arrays[1])
    np.save(tmp_path / "z.npy", OWNER[:-1])
    pair = ("--images", tmp_path / "x.npy", "--texts", tmp_path / "y.npy")
    assert "--image-of-caption" in run(capsys, *pair, status=2)
    told = run(capsys, *pair, "--image-of-caption", tmp_path / "z.npy", status=2)
    assert "26 entries for 27 captions" in told
    assert "one of each" in run(capsys, *pair[:2], status=2)
    assert "no such file" in run(capsys, *pair[:3], tmp_path / "none.npy", status=2)


def test_tiny_vectors_have_a_direction() -> None:
    """Squares of numbers below 1e-20 are 0 in float32: every length was."""
    generator = torch.Generator().manual_seed(0)
    images, texts = (torch.randn(30, 8, generator=generator) for _ in range(2))
    wanted = simgrad.evaluate(images, texts, normalise=True)
    for factor in (1e-18, 1e-25, 1e-36):
        found = simgrad.evaluate(images * factor, texts * (factor * 3), normalise=True)
        assert found.ranks.i2t.tolist() == wanted.ranks.i2t.tolist()
        assert found.ranks.t2i.tolist() == wanted.ranks.t2i.tolist()
        assert found.ranks.ties == wanted.ranks.ties == 0


def test_images_of_very_many_captions() -> None:
    """Sorted, not compared pair by pair: the same ranks as a plain count, ties included."""
    generator = torch.Generator().manual_seed(0)
    S = (torch.randn(3, 700, generator=generator) * 20).round() / 20
    owner = torch.arange(700) % 2
    owner[:5] = 2  # few beside many
    found = simgrad.evaluate_similarities(S, owner)
    for j in range(700):
        own = S[owner[j], j]
        rivals = int((S[owner[j]][owner != owner[j]] >= own).sum())
        better = int((S[owner[j]][owner == owner[j]] > own).sum())
        same = (S[owner[j]] == own) & (owner == owner[j])
        low, high = rivals + better + 1, rivals + better + int(same.sum())
        assert low <= found.ranks.caption_rank[j] <= high


def test_a_million_captions_of_two_images() -> None:
    """Minutes, if each caption of an image is compared with all candidates."""
    generator = torch.Generator().manual_seed(0)
    images, texts = (torch.randn(n, 2, generator=generator) for n in (2, 1_000_000))
    metrics = simgrad.evaluate(images, texts, torch.arange(1_000_000) % 2, normalise=True)
    assert metrics.t2i_r5 == 100
    with pytest.raises(InputError, match="'meta'"):
        simgrad.evaluate(images.to("meta"), texts[:2])
