"""How sure a hit is: right about itself, among few and many, and when there is no answer."""

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from simgrad.core.errors import InputError
from simgrad.retriever.opening import open_folder
from simgrad.retriever.search import Searcher
from simgrad.retriever.sureness import sureness_of
from simgrad.search.calibration import Calibration, calibrate
from simgrad.search.results import Hit, Results, percent

Floats = npt.NDArray[np.float64]


def world(
    queries: int, candidates: int, seed: int
) -> tuple[Floats, npt.NDArray[np.bool_], npt.NDArray[np.int64]]:
    """Similarities of a model that is right often, and knows it a little; whose each query is."""
    random = np.random.default_rng(seed)
    scores = 0.12 * random.normal(size=(queries, candidates)) + 0.1
    own = np.arange(queries) % candidates
    scores[np.arange(queries), own] += 0.3
    right = np.zeros((queries, candidates), dtype=bool)
    right[np.arange(queries), own] = True
    return scores, right, own


def learn(queries: int, candidates: int) -> Calibration:
    return calibrate(*world(queries, candidates, 0), np.arange(candidates))


def first_hits(
    scores: Floats, right: npt.NDArray[np.bool_], found: Calibration
) -> tuple[Floats, Floats]:
    """Probability and outcome of every query's best hit; half of the queries have no answer."""
    told, true = [], []
    for query in range(len(scores)):
        values = np.where(right[query] & (query % 2 == 0), -np.inf, scores[query])
        order = np.argsort(-values)[:6]
        told.append(found.probabilities(values[order], scores.shape[1])[0])
        true.append(float(right[query, order[0]]))
    return np.array(told), np.array(true)


@pytest.mark.parametrize("candidates", [50, 200, 400])
def test_probabilities_come_true(candidates: int) -> None:
    """Learned among 200, asked among fewer, as many and more."""
    found = learn(800, 200)
    told, true = first_hits(*world(3000, candidates, 1)[:2], found)
    for low, high in ((0.0, 0.25), (0.25, 0.5), (0.5, 0.75), (0.75, 1.0)):
        here = (told >= low) & (told < high)
        if here.sum() >= 100:
            assert abs(told[here].mean() - true[here].mean()) < 0.1
    assert np.mean((told - true) ** 2) < 0.8 * np.mean((true.mean() - true) ** 2)


def test_a_clear_winner_is_surer_than_a_crowded_one() -> None:
    found = learn(800, 200)
    clear, crowded, weak = ([0.7, 0.3, 0.2], [0.7, 0.69, 0.68], [0.3, 0.29, 0.28])
    p = [found.probabilities(scores, 200)[0] for scores in (clear, crowded, weak)]
    assert p[0] > p[1] > p[2]
    assert found.probabilities(clear, 200)[0] > found.probabilities(clear, 20_000)[0]
    assert found.probabilities([], 200) == []
    assert len(found.probabilities([0.5], 1)) == 1


def test_too_few_are_not_learned_from() -> None:
    for queries, candidates in ((5, 100), (100, 5)):
        with pytest.raises(InputError, match="too few"):
            learn(queries, candidates)


def test_what_is_kept_comes_back() -> None:
    found = learn(100, 50)
    assert Calibration.from_dict(found.to_dict()) == found
    for damaged in ({"weights": [1, 2]}, {"bias": float("nan")}, {"candidates": 0}):
        with pytest.raises((ValueError, IndexError)):
            Calibration.from_dict({**found.to_dict(), **damaged})


def test_the_cut_off_keeps_what_has_an_answer() -> None:
    found = learn(800, 200)
    scores, right, _ = world(3000, 200, 1)
    best = [[], []]  # of queries with an answer, and of the same without
    for query in range(len(scores)):
        for place, values in enumerate((scores[query], np.where(right[query], -9, scores[query]))):
            best[place].append(found.probabilities(-np.sort(-values)[:3], 200)[0])
    reached = [float(np.mean(np.array(p) >= found.cut_off(200))) for p in best]
    assert reached[0] == pytest.approx(0.95, abs=0.02)
    assert 1 - reached[1] == pytest.approx(found.refused, abs=0.05)
    assert found.refused > 0.07  # more than of those with an answer
    assert found.cut_off(200) > found.cut_off(2000)


def hits(
    *probabilities: float | None, cut_off: float | None = 0.2, refused: float = 0.4
) -> Results:
    found = [Hit(1, 0, 0.5, "a", (), probability=p) for p in probabilities]
    return Results("q", "sentence", found, cut_off=cut_off, refused=refused)


def test_the_verdict() -> None:
    assert "Nothing fits" in hits(0.1, 0.05).verdict()
    assert (
        "is the very picture that is meant with a probability of 10%" in hits(0.1, 0.05).verdict()
    )
    assert "cut-off is 20%" in hits(0.1).verdict()
    assert "60% of those without" in hits(0.1).verdict()
    assert "Nothing fits" not in hits(0.3, 0.1).verdict()
    assert "30%" in hits(0.3, 0.1).verdict()
    assert "Nothing fits" in hits(0.3, 0.1).verdict(0.5)
    assert "cut-off is 50%" in hits(0.3, 0.1).verdict(0.5)
    assert hits(None).verdict() == hits().verdict() == hits(0.1, cut_off=None).verdict(0.5) == ""
    unable = hits(0.1, refused=0.05)  # a model that has learned nothing
    assert "do not tell: on validation, 95%" in unable.verdict()
    assert "Nothing fits" not in unable.verdict()
    assert "Nothing fits" in unable.verdict(0.5)  # somebody's own cut-off counts
    assert [percent(p) for p in (0, 0.001, 0.372, 0.999, 1)] == ["0%", "<1%", "37%", ">99%", "100%"]


def test_the_verdict_in_one_line() -> None:
    told = "The best hit is the very picture that is meant with a probability of 30%; below 20%"
    assert hits(0.3).told() == f"{told} nothing fits."
    assert hits(0.1).told().startswith("Nothing fits: the best hit is the very picture that")
    assert "and 50% is needed" in hits(0.3).told(0.5)
    assert "See for yourself" in hits(0.1, refused=0.05).told()
    assert hits(None).told() == hits().told() == hits(0.1, cut_off=None).told(0.5) == ""


def test_a_run_is_calibrated_once(searcher: Searcher, runs: dict[str, Path]) -> None:
    found = searcher.sentence("a red heart", 3)
    assert all(hit.probability is not None for hit in found.images)
    assert [hit.probability for hit in found.images] == sorted(
        (hit.probability or 0 for hit in found.images), reverse=True
    )
    kept = next(runs["nt"].glob("search/*/sureness-*.json"))
    before = kept.stat().st_mtime_ns
    again = Searcher(open_folder(runs["nt"])).sentence("a red heart", 3)
    assert again.images == found.images
    assert kept.stat().st_mtime_ns == before


def test_without_validation_it_says_so(searcher: Searcher) -> None:
    assert searcher.dataset is not None
    splits = {"test": searcher.dataset.splits["test"]}
    without = type(searcher.dataset)("x", "x", splits, identity="x")
    told = sureness_of(searcher.retriever, without, "0" * 64)
    assert told.sentence is None
    assert "no validation split" in told.why_not
    found = Searcher(searcher.retriever, dataset=without).sentence("a red heart", 2)
    assert found.images[0].probability is None
    assert "no validation split" in found.notes[0]
    assert found.verdict() == ""
