"""Error rates by simulation: what is there is found, what is not there is not."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import simgrad
from simgrad.core.errors import InputError
from simgrad.evaluation import (
    Ranks,
    against,
    compare,
    compare_many,
    estimates,
    holm,
    intervals,
    metrics_of,
    stand,
)
from simgrad.evaluation.crossed import shares
from simgrad.evaluation.protocols import Protocol
from simgrad.evaluation.uncertainty import _Medians

IMAGES, CAPTIONS = 120, 2
PAIRING = np.repeat(np.arange(IMAGES), CAPTIONS)


def ranks_of(hardness, random, gain=0.0, pairing=PAIRING):
    """Ranks of a system on images of known hardness; a larger gain ranks better."""
    image = hardness[pairing]

    def draw():
        return np.floor(np.exp(image - gain + 0.7 * random.normal(size=len(image)))).astype(int) + 1

    # Captions of one image stand or fall together: the same noise again for half of it.
    turn = np.concatenate([np.arange(n) for n in np.bincount(pairing)])
    caption_rank = 10 * draw() + turn - 9
    i2t = np.full(len(hardness), 10**9)
    np.minimum.at(i2t, pairing, caption_rank)
    return Ranks(
        i2t=i2t,
        t2i=draw(),
        caption_rank=caption_rank,
        image_of_caption=pairing,
        image_ids=tuple(map(str, range(len(hardness)))),
        caption_ids=tuple(map(str, range(len(pairing)))),
        fold=np.zeros(len(hardness), dtype=np.int64),
        i2t_tied=np.zeros(len(hardness), dtype=bool),
        t2i_tied=np.zeros(len(pairing), dtype=bool),
    )


def hardness(random):
    return random.normal(1.0, 1.0, IMAGES)


def test_no_difference_is_found_at_the_stated_rate():
    trials, found = 300, 0
    for trial in range(trials):
        random = np.random.default_rng(trial)
        images = hardness(random)
        pair = [ranks_of(images, random) for _ in range(2)]
        found += compare(*pair)["rsum"].p < 0.05
    # 5% of 300 is 15; beyond 28 or below 4 chance is less than one in a thousand.
    assert 4 <= found <= 28


def test_a_planted_difference_is_found():
    for trial in range(20):
        random = np.random.default_rng(1000 + trial)
        images = hardness(random)
        found = compare(ranks_of(images, random), ranks_of(images, random, gain=0.6))
        assert found["rsum"].p < 0.01
        assert found["rsum"].low > 0
        assert found["t2i_meanr"].difference < 0


def test_intervals_cover_at_the_stated_rate():
    """The population is the images that could have been drawn: its value from very many of them."""
    random = np.random.default_rng(7)
    many = random.normal(1.0, 1.0, 20_000)
    pairing = np.repeat(np.arange(len(many)), CAPTIONS)
    right = metrics_of(ranks_of(many, random, pairing=pairing)).to_dict()
    trials = 200
    covered = dict.fromkeys(("rsum", "t2i_r1", "i2t_mrr", "t2i_medr"), 0)
    for trial in range(trials):
        random = np.random.default_rng(trial)
        bounds = intervals(ranks_of(hardness(random), random), level=0.9, resamples=300, seed=trial)
        for name in covered:
            covered[name] += bounds[name][0] <= right[name] <= bounds[name][1]
    # 90% of 200 is 180; a percentile bootstrap of 120 images is a little short of it.
    for name, times in covered.items():
        assert times >= 165, name
    assert max(covered["rsum"], covered["i2t_mrr"]) <= 194


@pytest.mark.long
@pytest.mark.parametrize("seeds", [2, 5])
def test_seeds_without_a_difference(seeds):
    """Runs of one system differ by seed; that alone must not look like a difference."""
    trials, found = 200, 0
    for trial in range(trials):
        random = np.random.default_rng(trial)
        images = hardness(random)
        groups = [
            [ranks_of(images, random, gain=0.3 * random.normal()) for _ in range(seeds)]
            for _ in range(2)
        ]
        found += compare(*groups)["rsum"].p < 0.05
    # 5% of 200 is 10; two seeds have so few degrees of freedom that it may be less.
    assert found <= 21
    assert found >= (1 if seeds == 5 else 0)


def test_seeds_with_a_difference():
    random = np.random.default_rng(0)
    images = hardness(random)
    first = [ranks_of(images, random, 0.1 * random.normal()) for _ in range(4)]
    second = [ranks_of(images, random, 0.8 + 0.1 * random.normal()) for _ in range(4)]
    found = compare(first, second)["rsum"]
    assert found.p < 0.01
    assert found.low > 0
    assert found.first == pytest.approx(np.mean([metrics_of(r).rsum for r in first]))
    with pytest.raises(InputError, match="two seeds"):
        compare(first[:1], second)


def test_many_systems_with_holm():
    random = np.random.default_rng(0)
    images = hardness(random)
    systems = {f"same {i}": [ranks_of(images, random)] for i in range(4)}
    systems["better"] = [ranks_of(images, random, 0.8)]
    found = compare_many(systems, "same 0")
    assert set(found) == set(systems) - {"same 0"}
    assert found["better"].p_holm < 0.05
    assert all(found[f"same {i}"].p_holm > 0.05 for i in (1, 2, 3))
    assert all(d.p_holm >= d.p for d in found.values())
    with pytest.raises(InputError, match="no metric 'rsums'"):
        compare_many(systems, "same 0", "rsums")
    with pytest.raises(InputError, match="nothing to compare"):
        compare_many(systems, "absent")


def systems_of(gains: dict[str, float], seeds: int) -> dict[str, list[Ranks]]:
    random = np.random.default_rng(3)
    images = hardness(random)
    return {
        name: [ranks_of(images, random, gain + 0.1 * random.normal()) for _ in range(seeds)]
        for name, gain in gains.items()
    }


@pytest.mark.parametrize("seeds", [1, 3])
def test_beside_a_baseline_that_leads_a_page_has_one_interval_and_one_p(seeds):
    systems = systems_of({"low": -0.5, "best": 0.9, "near": 0.7}, seeds)
    found, standing = against(systems, "best"), stand(systems)
    assert standing.leader == "best"
    assert set(found) == {"low", "near"}
    for rival in standing.rivals:
        one = found[rival.label]
        assert (-one.difference, -one.high, -one.low) == (rival.behind, rival.low, rival.high)
        assert one.corrected == rival.p
        assert one.second - one.first == pytest.approx(one.difference)


@pytest.mark.parametrize("seeds", [1, 3])
def test_beside_a_named_baseline_an_interval_leaves_out_0_where_p_is_below_5_percent(seeds):
    systems = systems_of({"base": 0, "a": 0.15, "b": 0.3, "c": 0.6, "d": -0.1}, seeds)
    found, pairs = against(systems, "base"), compare_many(systems, "base")
    every = stand(systems)
    assert every.leader == "c"
    for name, one in found.items():
        assert (one.corrected < 0.05) == (one.low > 0 or one.high < 0)
        assert one.difference == pytest.approx(pairs[name].difference)
        # Wider than of a pair alone; not as wide as where the best of all was looked for.
        assert pairs[name].low > one.low
        assert one.p > pairs[name].p
    of_all = next(rival for rival in every.rivals if rival.label == "base")
    assert of_all.high - of_all.low > found["c"].high - found["c"].low
    alone = against({name: systems[name] for name in ("base", "c")}, "base")["c"]
    assert (alone.low, alone.p) == pytest.approx((pairs["c"].low, pairs["c"].p))


def test_what_cannot_stand_beside_a_baseline_is_refused():
    systems = systems_of({"a": 0, "b": 0}, 2)
    with pytest.raises(InputError, match="nothing to compare with 'absent'"):
        against(systems, "absent")
    with pytest.raises(InputError, match="two seeds or more"):
        against({**systems, "b": systems["b"][:1]}, "a")
    with pytest.raises(InputError, match="no mean over queries"):
        against(systems, "a", metric="i2t_medr")


def test_holm_by_hand():
    # Sorted: 0.01 * 4, 0.02 * 3, 0.03 * 2 (not below the one before), 0.5 * 1.
    assert holm([0.02, 0.5, 0.01, 0.03]) == pytest.approx([0.06, 0.5, 0.04, 0.06])
    assert holm([0.9, 0.8]) == [1.0, 1.0]


def test_a_run_does_not_differ_from_itself():
    random = np.random.default_rng(0)
    one = ranks_of(hardness(random), random)
    found = compare(one, one)["rsum"]
    assert (found.difference, found.low, found.high, found.p) == (0, 0, 0, 1)


def test_shares_add_up_to_the_metrics():
    """With uneven numbers of captions, and over folds."""
    random = np.random.default_rng(0)
    pairing = np.concatenate([np.arange(40), random.integers(0, 40, 60)])
    similarities = random.normal(size=(40, 100))
    for protocol in ("all", Protocol("four", "", folds=4)):
        found = simgrad.evaluate_similarities(similarities, pairing, protocol=protocol)
        for linear in (False, True):
            parts = shares(found.ranks, linear=linear)
            assert len(parts.names) > 20
            for name, total in zip(parts.names, parts.totals, strict=True):
                assert total == pytest.approx(found[name]), name
        bounds = intervals(found.ranks, resamples=200)
        for name in ("rsum", "i2t_medr", "t2i_medr", "t2i_r5", "i2t_map_at_r"):
            assert bounds[name][0] <= found[name] <= bounds[name][1], name


def test_uneven_captions_are_resampled_as_a_mean():
    """A mean over captions, drawn by image: linear shares against drawing outright."""
    random = np.random.default_rng(1)
    pairing = np.sort(np.concatenate([np.arange(60), random.integers(0, 20, 200)]))
    ranks = ranks_of(random.normal(1, 1, 60), random, pairing=pairing)
    low, high = intervals(ranks, resamples=2000)["t2i_mrr"]
    captions_of = [np.flatnonzero(pairing == i) for i in range(60)]
    drawn = []
    for _ in range(2000):
        chosen = np.concatenate([captions_of[i] for i in random.integers(0, 60, 60)])
        drawn.append((1 / ranks.t2i[chosen]).mean())
    outright = np.quantile(drawn, [0.025, 0.975])
    width = outright[1] - outright[0]
    assert [low, high] == pytest.approx(outright, abs=0.15 * width)


def test_medians_by_drawing_outright():
    random = np.random.default_rng(2)
    ranks = ranks_of(random.normal(2, 1, 61), random, pairing=np.repeat(np.arange(61), 2))
    low, high = intervals(ranks, resamples=3000)["i2t_medr"]
    drawn = [np.floor(np.median(ranks.i2t[random.integers(0, 61, 61)])) for _ in range(3000)]
    outright = np.quantile(drawn, [0.025, 0.975])
    assert low == pytest.approx(outright[0], abs=3)
    assert high == pytest.approx(outright[1], rel=0.15)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 30), st.sampled_from([1, 3, 60]))
def test_medians_of_drawn_images_are_exact(seed, images, levels):
    """Whatever the spread of the values: only those near the middle are counted."""
    random = np.random.default_rng(seed)
    owner = np.concatenate([np.arange(images), random.integers(0, images, images)])
    values = random.integers(1, 1 + levels, len(owner)).astype(float)
    weights = random.multinomial(images, np.full(images, 1 / images), size=8).astype(float)
    found = _Medians(values, owner, images).of(weights)
    for times, median in zip(weights.astype(int), found, strict=True):
        assert median == np.floor(np.median(np.repeat(values, times[owner])))


@pytest.mark.long
def test_intervals_of_several_seeds_cover_at_about_the_stated_rate():
    """Both are drawn: the images and the seeds of each system."""
    random = np.random.default_rng(7)
    many = random.normal(1.0, 1.0, 20_000)
    pairing = np.repeat(np.arange(len(many)), CAPTIONS)
    # The mean over seeds of a metric, over the gains that seeds are drawn from.
    gains = stats.norm.ppf((np.arange(20) + 0.5) / 20, scale=0.3)
    right = np.mean([metrics_of(ranks_of(many, random, g, pairing)).rsum for g in gains])
    trials, covered = 100, 0
    for trial in range(trials):
        random = np.random.default_rng(trial)
        images = hardness(random)
        runs = [ranks_of(images, random, 0.3 * random.normal()) for _ in range(3)]
        found = estimates(ranks=runs, level=0.9)["rsum"]
        assert found.mean == pytest.approx(np.mean(found.values))
        covered += found.low <= right <= found.high
    assert 80 <= covered <= 98  # chance leaves that once in a thousand times


def test_estimates_know_what_they_do_not_know():
    random = np.random.default_rng(0)
    runs = [ranks_of(hardness(random), random) for _ in range(2)]
    tables = [
        {**metrics_of(run).to_dict(), "of_a_stranger": float(i)} for i, run in enumerate(runs)
    ]
    one = estimates(tables[:1])
    assert (one["rsum"].low, one["rsum"].deviation) == (None, None)  # no ranks, no seeds
    assert estimates(tables[:1], runs[:1])["of_a_stranger"].low is None
    assert estimates(tables[:1], runs[:1])["rsum"].low == intervals(runs[0])["rsum"][0]
    both = estimates(tables)
    assert both["rsum"].low < both["rsum"].mean < both["rsum"].high  # of seeds alone
    assert both["of_a_stranger"].values == (0.0, 1.0)
    whole = estimates(tables, runs)
    assert whole["i2t_medr"].low <= whole["i2t_medr"].mean <= whole["i2t_medr"].high
    assert whole["i2t_r1"].low >= 0  # a metric ends where it ends
    assert estimates([{"rsum": 1.0}, {}])["rsum"].low is None
    assert estimates([]) == {}


def test_estimates_of_some_metrics_are_those_of_all():
    random = np.random.default_rng(0)
    runs = [ranks_of(hardness(random), random) for _ in range(3)]
    tables = [metrics_of(run).to_dict() for run in runs]
    every = estimates(tables, runs)
    for names in (("rsum", "t2i_medr"), ("i2t_r5",)):
        some = estimates([{name: table[name] for name in names} for table in tables], runs)
        assert some == {name: every[name] for name in names}


def test_other_queries_are_refused():
    random = np.random.default_rng(0)
    one = ranks_of(hardness(random), random)
    other = ranks_of(hardness(random)[:50], random, pairing=PAIRING[:100])
    with pytest.raises(InputError, match="same queries"):
        compare(one, other)
    with pytest.raises(InputError, match="confidence level"):
        intervals(one, level=95)


def test_a_comparison_names_what_it_does_not_have():
    metrics = simgrad.evaluate(np.eye(6), np.eye(6))
    found = simgrad.compare(metrics, metrics)
    for results in (found, metrics):
        with pytest.raises(InputError, match=r"no metric 'r1'.*i2t_r1"):
            results["r1"]
    assert "r1" not in found
    assert found.get("r1") is None
    assert "rsum" in found
    for wrong in ((1, 2), (metrics, None), ([], [])):
        with pytest.raises(InputError, match="compare what"):
            simgrad.compare(*wrong)
    with pytest.raises(InputError, match="a: no such folder"):
        simgrad.compare("a", "b")
