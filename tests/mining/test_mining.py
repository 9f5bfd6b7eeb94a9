"""Mining: exact lists, own pairs left out, filters, files."""

import dataclasses
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import simgrad
from simgrad.core.errors import InputError
from simgrad.data import candidates, open_dataset
from simgrad.data.candidates import Candidates
from simgrad.data.sampling import Drawn, IndexBatch, OfflineIndex
from simgrad.data.vocabulary import Vocabulary
from simgrad.mining import product as mining_product
from simgrad.mining import rescoring
from simgrad.mining.drawing import Draw
from simgrad.mining.filters import Filters
from simgrad.mining.product import largest
from simgrad.mining.rescoring import score_again
from simgrad.models import Encoded, load
from simgrad.retriever.mining import mine_similarities
from simgrad.retriever.similarities import Similarities
from simgrad.training import train
from simgrad.training.rounds import mine_run
from tests.models.small import small as small_model


@pytest.mark.parametrize(("rows", "count", "keep"), [(7, 50, 5), (3, 5000, 10), (5, 4097, 33)])
def test_largest_is_topk(rows: int, count: int, keep: int) -> None:
    scores = torch.randn(rows, count)
    values, where = largest(scores, keep)
    wanted = scores.topk(keep)
    assert torch.equal(values, wanted.values)
    assert torch.equal(where, wanted.indices)


@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize(("n", "m", "depth"), [(60, 200, 12), (61, 3001, 12), (2003, 2003, 3)])
def test_lists_equal_a_full_sort_without_own_pairs(n: int, m: int, depth: int, half: bool) -> None:
    torch.manual_seed(0)
    images, texts = torch.randn(n, 16), torch.randn(m, 16)
    owner = torch.randint(0, n, (m,))
    found = simgrad.mine(images, texts, owner, depth=depth, half=half)
    S = torch.nn.functional.normalize(images, dim=1) @ torch.nn.functional.normalize(texts, dim=1).T
    S[owner, torch.arange(m)] = -torch.inf
    assert np.array_equal(found.i2t, S.argsort(1, descending=True)[:, :depth])
    assert np.array_equal(found.t2i, S.T.argsort(1, descending=True)[:, :depth])


# Not half precision with a margin: what stands at the margin may fall on either side of it.
@pytest.mark.parametrize(("half", "margin"), [(False, None), (False, 0.4), (True, None)])
@pytest.mark.parametrize("ordered", [False, True])
def test_lists_over_many_blocks(
    half: bool, margin: float | None, ordered: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Images meet their candidates block after block; in the worst order the best come last."""
    monkeypatch.setattr(mining_product, "_BLOCK", {"cpu": 40_000})  # 19 blocks
    torch.manual_seed(0)
    n, m, depth = 400, 1801, 15
    owner = torch.randint(0, n, (m,))
    owner[:n] = torch.arange(n)
    x = torch.nn.functional.normalize(torch.randn(n, 12), dim=1)
    y = x[owner] + 0.2 * torch.randn(m, 12)
    if ordered:  # one direction of the space grows, in images and along the captions
        x[:, 0] += 2
        y[:, 0] += torch.linspace(-3, 3, m)
    x, y = (torch.nn.functional.normalize(e, dim=1) for e in (x, y))
    found = simgrad.mine(x, y, owner, depth=depth, range_min=2, relative_margin=margin, half=half)
    S = x @ y.T
    own = S[owner, torch.arange(m)]
    worst = torch.full((n,), 2.0).scatter_reduce(0, owner, own, "amin")
    S[owner, torch.arange(m)] = -torch.inf
    for lists, scores, bound in ((found.i2t, S, worst), (found.t2i, S.T, own)):
        if margin is not None:
            ceiling = bound - margin * bound.abs()
            scores = scores.masked_fill(scores > ceiling[:, None], -torch.inf)
        wanted = scores.sort(1, descending=True).values[:, 2 : 2 + depth]
        rows = torch.from_numpy(lists).long()
        values = scores.gather(1, rows.clamp(min=0)).masked_fill(rows < 0, -torch.inf)
        assert torch.allclose(values, wanted, rtol=0, atol=1e-6)
        assert all(len(set(row)) == len(row) for row in (r[r >= 0].tolist() for r in rows))


@pytest.mark.parametrize("half", [False, True])
def test_ties_are_kept_once_each(half: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Captions and images that are the same many times: any of them will do, none of them twice."""
    monkeypatch.setattr(mining_product, "_BLOCK", {"cpu": 3000})
    torch.manual_seed(0)
    x, y = torch.randn(7, 8).repeat(12, 1), torch.randn(11, 8).repeat(20, 1)
    owner = torch.arange(len(y)) % len(x)
    found = simgrad.mine(x, y, owner, depth=20, half=half, scores=True)
    x, y = (torch.nn.functional.normalize(e, dim=1) for e in (x, y))
    S = [[float(a @ b) for b in y] for a in x]  # slowly
    sides = (
        (found.i2t, found.i2t_scores, lambda q, c: (q, c)),
        (found.t2i, found.t2i_scores, lambda q, c: (c, q)),
    )
    for lists, scores, pair in sides:
        assert scores is not None
        for query, row in enumerate(lists.tolist()):
            others = len(y) if lists is found.i2t else len(x)
            every = [pair(query, other) for other in range(others)]
            wanted = sorted((S[i][c] for i, c in every if int(owner[c]) != i), reverse=True)[:20]
            assert len(set(row)) == 20
            chosen = [pair(query, other) for other in row]
            assert all(int(owner[c]) != i for i, c in chosen)
            assert [S[i][c] for i, c in chosen] == pytest.approx(wanted, abs=1e-6)
            assert scores[query].tolist() == pytest.approx(wanted, abs=1e-6)


@pytest.mark.skipif(
    os.environ.get("TRITON_INTERPRET") != "1", reason="needs Triton, and TRITON_INTERPRET=1"
)
@pytest.mark.parametrize(("rows", "keep", "size"), [(3, 16, 256), (2, 37, 300), (4, 5, 7)])
def test_the_kernel_scores_as_a_loop_does(
    rows: int, keep: int, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    queries, candidates = torch.randn(rows, size), torch.randn(50, size)
    where = torch.randint(0, 55, (rows, keep))  # some of them padding
    coarse = torch.where(where < 50, 0.0, -torch.inf).half()
    ceiling = torch.full((rows,), 8.0)
    plain = score_again(queries, candidates, coarse, where, ceiling)
    monkeypatch.setattr(rescoring, "INTERPRETED", True)
    values, places = score_again(queries, candidates, coarse, where, ceiling)
    for row in range(rows):
        scores = [float(queries[row] @ candidates[c]) for c in where[row].tolist() if c < 50]
        wanted = sorted((score for score in scores if score <= 8), reverse=True)
        kept = values[row] > -torch.inf
        assert values[row][kept].tolist() == pytest.approx(wanted, abs=1e-4)
        again = candidates[places[row][kept]] @ queries[row]
        assert again.tolist() == pytest.approx(wanted, abs=1e-4)
    assert torch.allclose(values, plain[0], atol=1e-4)


def test_captions_by_topic_need_no_more_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """A topic's captions come in one block, and all of them are near to all of its images."""
    monkeypatch.setattr(mining_product, "_BLOCK", {"cpu": 100_000})  # 5 blocks of 400 captions
    widths: list[int] = []
    merge = mining_product._Columns._merge

    def spied(columns: Any, values: torch.Tensor, where: torch.Tensor) -> None:
        widths.append(values.shape[1])
        merge(columns, values, where)

    monkeypatch.setattr(mining_product._Columns, "_merge", spied)
    torch.manual_seed(0)
    topics = 3 * torch.randn(10, 16)
    owner = torch.arange(2000) // 8
    x = topics[torch.arange(250) // 25] + torch.randn(250, 16)
    y = topics[torch.arange(2000) // 200] + torch.randn(2000, 16)
    found = simgrad.mine(x, y, owner, depth=20)
    x, y = (torch.nn.functional.normalize(e, dim=1) for e in (x, y))
    S = x @ y.T
    S[owner, torch.arange(2000)] = -torch.inf
    wanted = S.topk(20).values
    assert torch.allclose(S.gather(1, torch.from_numpy(found.i2t).long()), wanted, atol=1e-6)
    assert max(widths) <= 5 * 20


def test_filters() -> None:
    torch.manual_seed(0)
    images, texts, owner = torch.randn(30, 8), torch.randn(90, 8), torch.arange(90) % 30
    whole = simgrad.mine(images, texts, owner, depth=20)
    later = simgrad.mine(images, texts, owner, depth=10, range_min=5)
    assert np.array_equal(later.i2t, whole.i2t[:, 5:15])
    strict = simgrad.mine(images, texts, owner, depth=20, relative_margin=0.5)
    x, y = (torch.nn.functional.normalize(e, dim=1) for e in (images, texts))
    S = x @ y.T
    for row in range(30):
        own = S[row][owner == row].min()
        bound = own - 0.5 * own.abs()
        kept = strict.i2t[row][strict.i2t[row] >= 0]
        assert all(S[row, kept] <= bound + 1e-6)


def test_bad_input_is_named() -> None:
    with pytest.raises(InputError, match=r"image_of_caption\[3\] is 3"):
        simgrad.mine(torch.randn(3, 4), torch.randn(5, 4), torch.tensor([0, 1, 2, 3, 0]))
    with pytest.raises(InputError, match="depth"):
        simgrad.mine(torch.randn(3, 4), torch.randn(3, 4), torch.arange(3), depth=0)


def test_a_run_is_mined_once_and_false_negatives_are_exact(
    small: Any, scenes: Any, tmp_path: Path
) -> None:
    run = train(small(epochs=1), tmp_path / "run", dataset=scenes, quiet=True)
    folder = mine_run(run, tmp_path / "lists", 15, dataset=scenes)
    found = Candidates.load(folder)
    split = open_dataset(run.recipe.data).split("train")
    assert split.truth is not None
    matrix = split.truth(np.arange(split.num_images), np.arange(split.num_captions))
    share = matrix[np.arange(split.num_images)[:, None], found.i2t].mean()
    assert found.info["false_negatives"] == pytest.approx(share)
    before = (folder / "i2t.npy").stat().st_mtime_ns
    mine_run(run, folder, 15, dataset=scenes)  # the same weights: kept
    assert (folder / "i2t.npy").stat().st_mtime_ns == before
    clean = Candidates.load(mine_run(run, tmp_path / "clean", 15, dataset=scenes, use_truth=True))
    for image, row in enumerate(clean.i2t):
        assert not matrix[image, row[row >= 0]].any()
    for caption, row in enumerate(clean.t2i):
        assert not matrix[row[row >= 0], caption].any()


def test_two_rounds_in_one_recipe(small: Any, scenes: Any, tmp_path: Path) -> None:
    recipe = small(epochs=1, second_round={"objective": "adap-off-quin", "epochs": 1, "depth": 20})
    run = train(recipe, tmp_path / "run", dataset=scenes, quiet=True)
    assert run.finished
    assert run.recipe.objective == "adap-off-quin"
    assert simgrad.training.Run(tmp_path / "run" / "round1").recipe.objective == recipe.objective
    again = train(recipe, tmp_path / "run", dataset=scenes, quiet=True)
    assert again.test == run.test


def test_nothing_is_drawn_before_it_is_used(
    small: Any, scenes: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An epoch of all negatives first: what was drawn would cost time, and batch norms count it."""
    epochs: list[int] = []
    draw = Draw.epoch

    def noted(own: Draw, plan: Any, epoch: int) -> Any:
        epochs.append(epoch)
        return draw(own, plan, epoch)

    monkeypatch.setattr(Draw, "epoch", noted)
    second = {"objective": "off-tri", "epochs": 3, "depth": 20}
    recipe = small(
        epochs=1, first_objective="triplet", first_epochs=1, second_round={**second, "lr": 1e-4}
    )
    train(recipe, tmp_path / "run", dataset=scenes, quiet=True)
    assert epochs == [1, 2]


def test_a_second_round_with_an_ordinary_objective_goes_on(
    small: Any, scenes: Any, tmp_path: Path
) -> None:
    """The control: the first round, trained for longer."""
    second = {"objective": "triplet-sh", "epochs": 1, "depth": 20, "from_round_one": True}
    recipe = small(epochs=2, second_round={**second, "lr": 1e-12})
    run = train(recipe, tmp_path / "run", dataset=scenes, quiet=True)
    first = simgrad.training.Run(tmp_path / "run" / "round1")
    assert run.history[-1]["val"]["rsum"] == pytest.approx(first.info["best"]["rsum"], abs=1e-3)


def test_a_second_round_that_goes_on_has_the_first_ones_words(
    small: Any, scenes: Any, tmp_path: Path
) -> None:
    """A vocabulary that the recipe names is the first round's; its weights bring it along."""
    words = tmp_path / "vocab.json"
    Vocabulary.build(scenes.split("train").captions).save(words)
    second = {"objective": "off-tri", "epochs": 1, "depth": 20, "from_round_one": True}
    recipe = small(epochs=1, vocabulary=str(words), second_round=second)
    run = train(recipe, tmp_path / "run", dataset=scenes, quiet=True)
    assert run.finished
    assert run.recipe.start_from == str(tmp_path / "run" / "round1" / "best")
    rounds = (run.path / "best", run.path / "round1" / "best")
    second_words, first_words = (load(place).tokenizer for place in rounds)
    assert second_words is not None
    assert first_words is not None
    assert second_words.to_json() == first_words.to_json() == Vocabulary.load(words).to_json()


@pytest.mark.parametrize(
    "wrong", [{"vocabulary": "other.json"}, {"model": "vsrn"}, {"from_round_one": "no"}]
)
def test_what_a_round_that_goes_on_cannot_change_is_told_at_once(
    small: Any, wrong: dict[str, Any]
) -> None:
    second = {"objective": "off-tri", "epochs": 1, "from_round_one": True, **wrong}
    with pytest.raises(InputError, match=f"second_round: {next(iter(wrong))}"):
        small(epochs=1, second_round=second)


def mined(model: Any, split: Any, encoded: Any, depth: int, filters: Any = None) -> Any:
    found = Similarities.of("model", model, split, *encoded)
    return mine_similarities(found, depth, filters, known=split)


def test_sets_are_mined_like_vectors(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that compares sets has no vectors to multiply: same lists, same filters."""
    model = small_model("vse++")
    split = open_dataset("scenes(train=6, val=2, test=2, features=global)").split("train")
    split = dataclasses.replace(split, truth=None)
    torch.manual_seed(0)
    images, texts = torch.randn(6, 8), torch.randn(split.num_captions, 8)
    encoded = [Encoded(torch.nn.functional.normalize(e, dim=1)) for e in (images, texts)]
    for settings in (
        {"depth": 100},
        {"depth": 7, "range_min": 2},
        {"depth": 7, "range_min": 50},
        {"depth": 9, "relative_margin": 0.4},
        {"depth": 9, "absolute_margin": 0.1, "min_score": -0.3, "max_score": 0.3},
        {"depth": 9, "max_score": 0.3, "range_max": 12, "range_min": 1},
    ):
        depth, filters = settings.pop("depth"), Filters(**settings)  # type: ignore[arg-type]
        monkeypatch.setattr(model, "embeds", True)
        wanted = mined(model, split, encoded, depth, filters)
        monkeypatch.setattr(model, "embeds", False)
        found = mined(model, split, encoded, depth, filters)
        assert np.array_equal(found.i2t, wanted.i2t)  # -1 at the end, for own pairs too
        assert np.array_equal(found.t2i, wanted.t2i)
        assert np.allclose(found.i2t_scores, wanted.i2t_scores, atol=1e-6)
        assert found.info.get("relative_margin") == filters.relative_margin


def test_what_is_not_listed_is_not_counted_as_true() -> None:
    """-1 stands for no caption, not for the first one."""
    model = small_model("vse++")
    split = open_dataset("scenes(train=6, val=2, test=2, features=global)").split("train")
    always = dataclasses.replace(split, truth=lambda i, c: np.ones((len(i), len(c)), dtype=bool))
    images, texts = torch.randn(6, 8), torch.randn(split.num_captions, 8)
    found = mined(model, always, (Encoded(images), Encoded(texts)), 100)
    assert (found.i2t < 0).any()
    assert found.info["false_negatives"] == 1.0


def test_lists_that_are_half_written_are_no_lists(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lists = np.zeros((2, 2), dtype=np.int32)
    Candidates(lists, lists, {"weights": "old"}).save(tmp_path)
    real = candidates.write_lists

    def killed(path: Path, lists: Any) -> str:
        if "t2i" in path.name:
            raise KeyboardInterrupt
        return real(path, lists)

    monkeypatch.setattr(candidates, "write_lists", killed)
    with pytest.raises(KeyboardInterrupt):
        Candidates(lists + 1, lists + 1, {"weights": "new"}).save(tmp_path)
    with pytest.raises(InputError, match="no finished candidate lists"):
        Candidates.load(tmp_path)


def test_without_a_pairing_image_i_and_caption_i_belong_together() -> None:
    torch.manual_seed(0)
    images, texts = torch.randn(9, 4), torch.randn(9, 4)
    found, wanted = simgrad.mine(images, texts, depth=3), simgrad.mine(images, texts, range(9), 3)
    assert np.array_equal(found.i2t, wanted.i2t)
    assert np.array_equal(found.t2i, wanted.t2i)
    with pytest.raises(InputError, match="image_of_caption"):
        simgrad.mine(images, texts[:8])


@pytest.mark.parametrize("for_each", [1, 2])
def test_how_much_is_drawn_for_a_pair_does_not_depend_on_what_was_drawn(for_each: int) -> None:
    """Of two images each has the other as its mined negative and as its partner."""
    split = open_dataset("scenes(train=2, val=1, test=1, features=global)").split("train")
    own = split.image_of_caption
    other = np.array([np.flatnonzero(own != image) for image in range(2)], np.int32)
    lists = Candidates(other, (1 - own)[:, None].astype(np.int32), {})
    draw = Draw(split, lists, for_each=for_each, depth=5)
    batch = IndexBatch(np.arange(2), np.arange(len(own)), own)
    index = draw.epoch([batch], 0)[0]
    assert isinstance(index, OfflineIndex)
    drawn = Drawn.of(index, torch.device("cpu"))
    assert torch.equal(drawn.places[1], drawn.places[2])
    assert drawn.images_each == for_each


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_vectors_that_are_no_numbers_are_refused(value: float) -> None:
    """They were everybody's hardest negatives."""
    images, texts = torch.randn(50, 4), torch.randn(50, 4)
    images[7, 1] = value
    with pytest.raises(InputError, match="images, row 7"):
        simgrad.mine(images, texts, depth=3)
    with pytest.raises(InputError, match="texts, row 7"):
        simgrad.mine(texts, images, depth=3)


@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("form", ["index", "mask"])
def test_texts_that_are_nobodys_and_passages_of_two_queries(
    form: str, half: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mining_product, "_BLOCK", {"cpu": 1000})  # several blocks
    torch.manual_seed(0)
    x, y = (torch.nn.functional.normalize(torch.randn(n, 6), dim=1) for n in (20, 90))
    index = torch.randint(-1, 20, (90,))
    index[:30] = -1
    mask = index[None] == torch.arange(20)[:, None]
    if form == "mask":
        mask[3, index == 5] = True  # captions of two images
    given = index if form == "index" else mask
    found = simgrad.mine(x, y, given, depth=8, relative_margin=-0.5, half=half, scores=True)
    S = x @ y.T
    own = S.masked_fill(~mask, 1e4)
    for lists, scores, negatives, bound in (
        (found.i2t, found.i2t_scores, S.masked_fill(mask, -torch.inf), own.amin(1)),
        (found.t2i, found.t2i_scores, S.T.masked_fill(mask.T, -torch.inf), own.amin(0)),
    ):
        ceiling = bound + 0.5 * bound.abs()
        kept = negatives.masked_fill(negatives > ceiling[:, None], -torch.inf)
        wanted = kept.sort(1, descending=True).values[:, :8]
        np.testing.assert_allclose(scores, wanted, atol=1e-6)
        rows = torch.from_numpy(lists).long()
        there = negatives.gather(1, rows.clamp(min=0)).masked_fill(rows < 0, -torch.inf)
        np.testing.assert_allclose(there, wanted, atol=1e-6)


def test_what_mine_is_given_is_checked() -> None:
    x = torch.randn(6, 4)
    plain = simgrad.mine(x, x, depth=2)
    assert np.array_equal(simgrad.mine(x.numpy(), x.numpy(), depth=2).i2t, plain.i2t)
    assert np.array_equal(simgrad.mine(x * 1e-25, x * 1e-30, depth=2).i2t, plain.i2t)
    with pytest.warns(UserWarning, match="the window of ranks"):
        assert simgrad.mine(x, x, depth=5, range_max=3).i2t.shape == (6, 3)
    for call, words in (
        (lambda: simgrad.mine(x, x, depth=2.5), "whole number"),  # type: ignore[arg-type]
        (lambda: simgrad.mine(x, x, depth=True), "whole number"),
        (lambda: simgrad.mine(x[:0], x[:0]), "shape"),
        (lambda: simgrad.mine(x.to("meta"), x), "'meta'"),
        (lambda: simgrad.mine(x, x, [0, 1, 2, 3, 4, -2]), r"image_of_caption\[5\] is -2"),
        (lambda: simgrad.mine(x, x, [0.0, 1, 2, 3, 4, 5]), "whole number"),
        (lambda: simgrad.mine(x, x, torch.eye(5).bool()), r"\(5, 5\)"),
    ):
        with pytest.raises(InputError, match=words):
            call()
