"""How large a comparison fits into a time: length before breadth."""

import dataclasses

import pytest

from simgrad.choosing.probe import Pace
from simgrad.choosing.sizing import HALF, Fit, every, largest, seconds_of, sizes, usual_length

PACE = Pace(step=0.1, evaluation=1.0, start=5.0)
FIVE = dict.fromkeys("abcde", PACE)


def fits(minutes: float, short: bool = False) -> Fit:
    return largest(FIVE, 100, 2, 60 * minutes, full=30, short=short)


@pytest.mark.parametrize("minutes", [0.3, 1, 10, 30, 60, 90, 120, 200, 400, 1000, 100_000])
def test_no_comparison_is_shorter_than_half_a_training(minutes: float) -> None:
    fit = fits(minutes)
    assert fit.size.share >= HALF or len(fit.names) == 1
    assert fit.seconds <= 60 * minutes
    assert fit.names == tuple("abcde")[: len(fit.names)]  # the last are left out first


def test_objectives_go_first_then_settings_never_the_length() -> None:
    found = [fits(minutes) for minutes in range(1, 400)]
    counts = [len(fit.names) for fit in found]
    assert sorted(set(counts)) == [1, 2, 3, 4, 5]
    assert counts == sorted(counts)  # more time, more objectives
    usual = [fit.size.trials for fit in found if len(fit.names) > 2]
    assert min(usual) == 4  # settings are only given up where two objectives are left
    assert {fit.size.trials for fit in found if len(fit.names) == 2} >= {2, 4}
    assert all(fit.size.replicates >= 3 for fit in found if len(fit.names) > 1)
    assert fits(100_000).size == sizes(100, 30)[-1]


def test_where_not_even_two_fit_one_is_trained_and_two_are_estimated() -> None:
    fit = fits(2)
    assert fit.names == ("a",)
    assert fit.size.runs == 1
    assert 1 <= fit.size.epochs < 30
    least = largest(FIVE, 100, 2, fit.for_two, full=30)
    assert len(least.names) == 2
    assert largest(FIVE, 100, 2, fit.for_two - 1, full=30).names == ("a",)
    assert len(largest(FIVE, 100, 2, fit.for_all, full=30).names) == 5


@pytest.mark.parametrize("crew", [1, 2, 16])
def test_one_alone_takes_no_longer_than_there_is_time(crew: int) -> None:
    """A run has one process: many side by side do not make it quicker."""
    for seconds in range(16, 120):
        fit = largest(FIVE, 100, crew, seconds, full=30)
        run = PACE.start + PACE.seconds(100 * fit.size.epochs, fit.size.epochs)
        assert fit.names == ("a",)
        assert fit.seconds == pytest.approx(run)
        assert run <= seconds
        assert run + 11 > seconds or fit.size.epochs == 30  # another epoch would not fit
    assert largest(FIVE, 100, crew, 15, full=30).seconds == pytest.approx(16)  # not even one


def test_shorter_ones_are_had_for_the_asking() -> None:
    fit = fits(10, short=True)
    assert fit.names == tuple("abcde")
    assert fit.size.share < HALF
    some = [fits(seconds / 60, short=True) for seconds in range(1, 600)]
    assert {len(fit.names) for fit in some} == {1, 2, 3, 4, 5}  # the last go where no length helps
    least = next(fit for fit in some if len(fit.names) == 5)
    assert least.size == sizes(100, 30, short=True)[0]
    assert fits(100_000, short=True).size == fits(100_000).size


@pytest.mark.parametrize("steps", [1, 3, 12, 157, 235, 4400])
def test_small_data_get_as_many_updates_as_they_need(steps: int) -> None:
    full = usual_length(steps)
    assert full >= 30
    assert full * steps >= 2900
    for size in sizes(steps, full):
        assert full / 2 <= size.epochs <= full
        each = every(size.epochs, steps)
        looks = size.epochs if each is None else size.epochs * steps // each
        assert looks <= 60


def test_the_best_settings_of_many_are_repeated_and_their_time_counts() -> None:
    of = {(size.trials, size.finalists) for size in sizes(235, 30)}
    assert of == {(2, 1), (4, 1), (6, 1), (8, 2), (16, 3)}
    size = sizes(235, 30)[-1]
    single = dataclasses.replace(size, finalists=1)
    more = seconds_of(size, {"a": PACE}, 235, 1) - seconds_of(single, {"a": PACE}, 235, 1)
    assert more == pytest.approx(10 * 6 * PACE.seconds(30 * 235, 30))


def test_sizes_grow() -> None:
    known = [seconds_of(size, {"a": PACE}, 235, 2) for size in sizes(235, 30, short=True)]
    assert known == sorted(known)
