"""results/generalise/analyse.py, on made-up runs with a known answer."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from scipy import stats

SCRIPT = Path(__file__).parents[2] / "results" / "generalise" / "analyse.py"


@pytest.fixture(scope="module")
def analyse() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generalise_analyse", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_one_data_set_alone_is_a_paired_t_test(analyse: ModuleType) -> None:
    runs = analyse.made_up({"nt-xent": 3.0}, seed=5)
    found = analyse.differences(runs, "nt-xent", "triplet-sh")
    alone = analyse.over_data_sets({"flickr8k": found["flickr8k"]})
    oracle = stats.ttest_1samp(found["flickr8k"], 0.0)
    assert alone.p_of_difference() == pytest.approx(oracle.pvalue)
    assert alone.interval() == pytest.approx(tuple(oracle.confidence_interval(0.95)))


def test_both_data_sets_are_a_regression_with_a_fixed_effect(analyse: ModuleType) -> None:
    found = analyse.differences(analyse.made_up({}, seed=2), "nt-xent", "triplet-sh")
    y = np.concatenate([found["flickr8k"], found["coco"]])
    # Effect coding: the intercept is the mean of the two data sets' means.
    x = np.stack([np.ones(13), np.repeat([1.0, -1.0], [8, 5])], axis=1)
    coefficients, residual, *_ = np.linalg.lstsq(x, y, rcond=None)
    error = np.sqrt(residual[0] / 11 * np.linalg.inv(x.T @ x)[0, 0])
    estimate = analyse.over_data_sets(found)
    assert (estimate.difference, estimate.error) == pytest.approx((coefficients[0], error))
    assert estimate.freedom == 11


def test_equal_objectives_are_rarely_told_apart(analyse: ModuleType) -> None:
    """With Holm, any of the four differences in at most 5 % of studies; H5 then mostly holds."""
    told = [analyse.verdicts(analyse.made_up({}, seed=seed)) for seed in range(300)]
    wrong = sum(any(v[name][0] != "open" for name in analyse.AHEAD) for v in told)
    assert 0 < wrong <= 27  # 15 expected at most; 27 has a chance of 0.2 %
    assert sum(v["H5"][0] in ("holds", "suggested") for v in told) > 190


def test_equivalence_at_its_margin_is_rarely_claimed(analyse: ModuleType) -> None:
    truth = {analyse.OURS: analyse.MARGIN}
    told = [analyse.verdicts(analyse.made_up(truth, seed=seed))["H5"][0] for seed in range(300)]
    assert sum(word != "open" for word in told) <= 27


def test_known_gaps_and_the_falsifier(analyse: ModuleType) -> None:
    leads = {analyse.OURS: 12.0, analyse.NCA: 12.0, "triplet-sh": -12.0}
    page = analyse.page(analyse.made_up(leads, seed=1))
    assert "| H1 | focused-deviance > triplet-sh | **holds** |" in page
    assert "coco, 3 needed): passed." in page
    contrary = analyse.page(analyse.made_up({analyse.OURS: -20.0}, seed=1))
    assert "| H1 | focused-deviance > triplet-sh | **the contrary holds** |" in contrary
    assert "FAILED." in contrary


def test_standard_deviations_are_found_again(analyse: ModuleType) -> None:
    found = np.mean(
        [
            analyse.variances(analyse.made_up({}, s, search=9.0, each=4.0), "coco")
            for s in range(40)
        ],
        axis=0,
    )
    assert found[1] == pytest.approx(4.0, rel=0.1)
    # Split (6) and search (9); a photo's 3 is part of what the page takes out of them.
    assert found[0] == pytest.approx(np.sqrt(81 + 36 - 9), rel=0.15)


def test_nothing_is_analysed_before_the_end(analyse: ModuleType) -> None:
    with pytest.raises(SystemExit, match="9 test runs of 10"):
        analyse.page(analyse.made_up({}, seed=0)[:-1])
