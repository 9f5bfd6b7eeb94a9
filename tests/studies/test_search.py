"""The search of one row: it finds what is known, keeps its journal whole, never overdraws."""

import math
import random
import shutil
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from simgrad.core.errors import InputError
from simgrad.core.spec import Range
from simgrad.report.tuning import best_so_far, expected_best
from simgrad.studies.journal import JOURNAL
from simgrad.studies.search import Search, Trial
from simgrad.studies.tune import CrossedRanges, Space, Tune, around, at_edges
from simgrad.studies.tuned import chosen

pytest.importorskip("optuna")

BOWL: Space = {"lr": Range(1e-4, 1e-1), "objective.tau": Range(0.01, 1.0)}


def bowl(setting: dict[str, Any]) -> float:
    """Best at lr = 0.003, tau = 0.1."""
    away = math.log10(setting["lr"] / 3e-3) ** 2 + math.log10(setting["objective.tau"] / 0.1) ** 2
    return 100 - 30 * away


def searched(
    folder: Path,
    score: Callable[[dict[str, Any]], float] = bowl,
    space: Space = BOWL,
    **options: Any,
) -> tuple[Search, list[Trial]]:
    search = Search(folder, "row", space, Tune(**{"trials": 24, **options}))
    left = [trial for trial in search.trials() if trial.state == "running"]
    while (trial := left.pop() if left else search.ask()) is not None:
        search.tell(trial.number, score(trial.setting))
    return search, search.trials()


@pytest.mark.parametrize("kind", ["tpe", "quasi-random", "grid"])
def test_every_kind_of_search_finds_the_best_of_an_easy_case(kind: str, tmp_path: Path) -> None:
    _, trials = searched(tmp_path, search=kind, trials=25)
    best = chosen([asdict(trial) for trial in trials])
    assert best is not None
    assert abs(math.log10(best["setting"]["lr"] / 3e-3)) < 0.5
    assert abs(math.log10(best["setting"]["objective.tau"] / 0.1)) < 0.5
    assert len(trials) == 25
    assert best["score"] == max(t.score for t in trials if t.score is not None)


def test_what_learns_is_better_than_chance_when_it_has_learned(tmp_path: Path) -> None:
    _, trials = searched(tmp_path, trials=32)
    first = [t.score for t in trials if t.how == "quasi-random" and t.score is not None]
    later = [t.score for t in trials if t.how == "tpe" and t.score is not None]
    assert len(first) == len(later) == 16
    assert sum(later) / 16 > sum(first) / 16


def test_the_end_of_a_range_is_told(tmp_path: Path) -> None:
    _, trials = searched(tmp_path, lambda setting: -math.log(setting["lr"]), trials=32)
    best = chosen([asdict(trial) for trial in trials])
    assert best is not None
    told = at_edges(BOWL, best["setting"])
    assert any("lr" in line and "lower end" in line for line in told)
    assert not at_edges(BOWL, {"lr": 3e-3, "objective.tau": 0.1})
    # A list of numbers has ends too; of two one is always at an end, which says nothing.
    listed: Space = {"lr": (1e-4, 1e-3, 1e-2), "batch": (64, 128), "sampler": ("a", "b", "c")}
    assert not at_edges(listed, {"lr": 1e-3, "batch": 64, "sampler": "a"})
    (told,) = at_edges(listed, {"lr": 1e-4, "batch": 64, "sampler": "a"})
    assert "lower end" in told


def test_choices_and_whole_numbers(tmp_path: Path) -> None:
    space: Space = {"epochs": Range(2, 40), "decay": ("step", "linear")}
    search = Search(tmp_path, "row", space, Tune(trials=8), frozenset({"epochs"}))
    settings = [trial.setting for _ in range(8) if (trial := search.ask()) is not None]
    assert all(type(s["epochs"]) is int and 2 <= s["epochs"] <= 40 for s in settings)
    assert {s["decay"] for s in settings} == {"step", "linear"}


def test_a_search_that_was_stopped_goes_on_as_if_it_had_not(tmp_path: Path) -> None:
    _, whole = searched(tmp_path / "whole", trials=12)
    for number in range(12):  # a new process for each trial
        search = Search(tmp_path / "parts", "row", BOWL, Tune(trials=12))
        trial = search.ask()
        assert trial is not None
        search.tell(trial.number, bowl(trial.setting))
        with open(tmp_path / "parts" / JOURNAL, "ab") as journal:
            if number % 3 == 0:
                journal.write(b'{"row": "row", "trial": 9, "asked": {"l')  # killed while it wrote
    search = Search(tmp_path / "parts", "row", BOWL, Tune(trials=12))
    assert search.ask() is None
    assert search.trials() == whole


def test_a_damaged_journal_is_refused_with_its_line(tmp_path: Path) -> None:
    searched(tmp_path, trials=2)
    text = (tmp_path / JOURNAL).read_bytes()
    second = text.index(b"\n") + 1
    (tmp_path / JOURNAL).write_bytes(text[:second] + b"#" + text[second + 1 :])
    with pytest.raises(InputError, match=r"line 2: damaged.*move it away"):
        Search(tmp_path, "row", BOWL, Tune(trials=2)).trials()
    assert (tmp_path / JOURNAL).read_bytes()[:second] == text[:second]  # what is whole is kept


def test_a_journal_that_was_moved_away_is_written_anew(tmp_path: Path) -> None:
    """A setting depends on scores alone, and those are in the trials' folders."""
    search, whole = searched(tmp_path, trials=12)
    lines = (tmp_path / JOURNAL).read_bytes()
    for kept in (0, len(lines) // 2):
        (tmp_path / JOURNAL).write_bytes(lines[:kept])
        assert searched(tmp_path, trials=12)[1] == whole
        assert search.trials() == whole  # who has read more than there is now reads again


def test_a_flipped_bit_of_a_journal_is_named_or_changes_nothing(tmp_path: Path) -> None:
    _, whole = searched(tmp_path, trials=4)
    journal = (tmp_path / JOURNAL).read_bytes()
    named = 0
    # Without its last character, the line's end, a line is one that a kill has left half-written.
    for place in range(0, len(journal) - 1, 3):
        damaged = bytearray(journal)
        damaged[place] ^= 1 << (place % 7)
        (tmp_path / JOURNAL).write_bytes(damaged)
        search = Search(tmp_path, "row", BOWL, Tune(trials=4))
        try:
            found = search.trials()
        except InputError as error:
            named += JOURNAL in str(error) and "move it away" in str(error)
        else:
            assert found == whole
            named += 1
    assert named == len(range(0, len(journal) - 1, 3))


@pytest.mark.parametrize(
    "line",
    [
        "[]", "null", "{}", '{"row": "row"}', '{"op_code": 4}', '{"op_code": 5, "trial_id": 9}',
        '{"op_code": "x"}', '{"row": "row", "trial": 0, "state": "lost"}',
        '{"row": "row", "trial": 0, "asked": {"lr": 1}, "how": "tpe"}',
        '{"row": "row", "trial": 7, "short": 1.0}', '{"row": "row", "trial": 0, "score": 1}',
        '{"row": "row", "trial": 0, "state": "failed", "halved": true}',
        '{"row": "row", "trial": 0, "state": "complete"}',
        '{"row": "row", "trial": 0, "state": []}',
    ],
)  # fmt: skip
def test_a_line_that_no_search_writes_is_named(line: str, tmp_path: Path) -> None:
    (tmp_path / JOURNAL).write_text(line + "\n")
    with pytest.raises(InputError, match=rf"{JOURNAL}"):
        Search(tmp_path, "row", BOWL, Tune(trials=2)).trials()


def test_a_journal_of_optuna_is_still_read_and_gone_on_with(tmp_path: Path) -> None:
    """Versions before 0.2.0 let Optuna write it."""
    space: Space = {**BOWL, "decay": ("step", "linear")}
    shutil.copy(Path("tests/fixtures/journal-of-optuna.log"), tmp_path / JOURNAL)
    plain = Search(tmp_path, "plain", space, Tune(trials=4))
    told = [(t.number, t.how, t.state, t.score and round(t.score, 3)) for t in plain.trials()]
    assert told == [
        (0, "quasi-random", "complete", 84.637),
        (1, "quasi-random", "failed", None),
        (2, "tpe", "complete", 86.673),
        (3, "tpe", "running", None),
    ]
    first = {"decay": "step", "lr": 0.0135, "objective.tau": 0.196}
    assert plain.trials()[0].setting == first
    plain.tell(3, 50.0)
    again = Search(tmp_path, "plain", space, Tune(trials=4))
    assert [t.state for t in again.trials()] == ["complete", "failed", "complete", "complete"]


# -- the same settings, whatever the timing


def by_workers(
    folder: Path, workers: int, chance: random.Random, **options: Any
) -> tuple[list[Trial], int]:
    """A search by so many workers of random speed, some of them killed on the way; and how many
    trials ran at once at most."""
    tune = Tune(**{"trials": 18, **options})
    running: dict[int, Trial] = {}
    most = 0
    while True:
        search = Search(folder, "row", BOWL, tune)  # as a new process would
        while len(running) < workers and (trial := search.ask()) is not None:
            running[trial.number] = trial
        most = max(most, len(running))
        if not running:
            return search.trials(), most
        trial = running.pop(chance.choice(list(running)))
        if chance.random() < 0.2:  # killed, and taken up again
            running[trial.number] = trial
            continue
        if bowl(trial.setting) < 20:
            search.fail(trial.number)
        else:
            search.tell(trial.number, bowl(trial.setting))


@pytest.mark.parametrize("kind", ["tpe", "quasi-random", "grid"])
def test_settings_do_not_depend_on_timing(kind: str, tmp_path: Path) -> None:
    options: dict[str, Any] = {"search": kind}
    expected, _ = by_workers(tmp_path / "one", 1, random.Random(0), **options)
    assert len(expected) == 18 if kind != "grid" else 16
    for workers in (1, 2, 3, 7):
        for seed in range(3):
            folder = tmp_path / f"{workers}-{seed}"
            found, most = by_workers(folder, workers, random.Random(seed), **options)
            assert found == expected
            assert most >= min(workers, 4)  # and it is not done one by one


def test_workers_that_ask_at_once_never_get_the_same_trial(tmp_path: Path) -> None:
    def ask_all(_: int) -> list[int]:
        search, asked = Search(tmp_path, "row", BOWL, Tune(trials=20)), []
        while (trial := search.ask()) is not None:
            asked.append(trial.number)
            search.tell(trial.number, bowl(trial.setting))
        return asked

    # Each opens lock and journal itself, as processes do.
    with ThreadPoolExecutor(3) as crew:
        numbers = [number for asked in crew.map(ask_all, range(3)) for number in asked]
    assert sorted(numbers) == list(range(20))


def test_rows_have_searches_of_their_own(tmp_path: Path) -> None:
    ours, theirs = (Search(tmp_path, name, BOWL, Tune(trials=2)) for name in ("a", "b"))
    first, second = ours.ask(), theirs.ask()
    assert first is not None
    assert second is not None
    assert first.setting == second.setting  # the same quasi-random points for all
    ours.tell(0, 1.0)
    assert [t.state for t in theirs.trials()] == ["running"]


def test_a_score_told_twice_counts_once_and_a_failure_stays(tmp_path: Path) -> None:
    search = Search(tmp_path, "row", BOWL, Tune(trials=2))
    search.ask()
    search.tell(0, 1.0)
    search.tell(0, 2.0)
    search.ask()
    search.fail(1)
    search.tell(1, 9.0)
    assert [(t.state, t.score) for t in search.trials()] == [("complete", 1.0), ("failed", None)]


def test_what_mattered(tmp_path: Path) -> None:
    search, _ = searched(
        tmp_path, lambda s: -(math.log10(s["lr"] / 3e-3) ** 2), search="quasi-random", trials=40
    )
    shares = search.importance()
    assert shares["lr"] > 0.7
    assert sum(shares.values()) == pytest.approx(1, abs=1e-3)


def test_expected_best_is_the_mean_over_all_draws() -> None:
    scores = [3.0, 1.0, 2.0]
    # With replacement: nine ordered pairs, whose best are 1 once, 2 three times, 3 five times.
    assert expected_best(scores)[:2] == pytest.approx([2.0, (1 + 2 * 3 + 3 * 5) / 9])
    assert expected_best([]) == best_so_far([]) == []
    assert best_so_far(scores) == [3.0, 3.0, 3.0]
    assert best_so_far([1.0, 3.0, 2.0]) == [1.0, 3.0, 3.0]


def test_a_range_that_holds_nothing_is_refused() -> None:
    with pytest.raises(InputError, match="holds nothing"):
        Range(2, 1)
    with pytest.raises(InputError, match="log: false"):
        Range(0, 1)


# -- crossed values, and ranges that are extended


def test_every_point_is_tried_with_every_crossed_value(tmp_path: Path) -> None:
    space: Space = {**BOWL, "first_epochs": CrossedRanges((0, 1))}
    _, crossed = searched(tmp_path / "crossed", space=space, trials=12, search="quasi-random")
    _, plain = searched(tmp_path / "plain", trials=6, search="quasi-random")
    for place, trial in enumerate(plain):
        for value in (0, 1):
            expected = {**trial.setting, "first_epochs": value}
            assert crossed[2 * place + value].setting == expected
    start = {"lr": 0.01, "objective.tau": 0.5, "first_epochs": 1}
    search = Search(
        tmp_path / "start", "row", space, Tune(trials=4, search="quasi-random"), start=start
    )
    tried = [trial for _ in range(4) if (trial := search.ask()) is not None]
    assert [t.setting for t in tried[:2]] == [{**start, "first_epochs": one} for one in (0, 1)]
    assert [t.how for t in tried] == ["start", "start", "quasi-random", "quasi-random"]
    assert tried[2].setting == {**tried[3].setting, "first_epochs": 0}


def test_equal_scrambles_offer_equal_values_to_what_means_the_same(tmp_path: Path) -> None:
    ends = Range(0.3, 0.9, log=False)
    first = {"objective.lambda": ends, "lr": Range(5e-4, 1.2e-2), "objective.beta": Range(1, 9)}
    other = {"objective.tau": ends, "clip": (1.0, 2.0), "lr": Range(5e-4, 1.2e-2)}
    _, a = searched(tmp_path / "a", lambda _: 0.0, first, trials=6, search="quasi-random")
    _, b = searched(tmp_path / "b", lambda _: 0.0, other, trials=6, search="quasi-random")
    assert [t.setting["lr"] for t in a] == [t.setting["lr"] for t in b]
    assert [t.setting["objective.lambda"] for t in a] == [t.setting["objective.tau"] for t in b]


@pytest.mark.parametrize("kind", ["tpe", "quasi-random", "grid"])
def test_a_winner_at_the_end_of_its_range_extends_it_once(kind: str, tmp_path: Path) -> None:
    space: Space = {"lr": Range(1e-4, 1e-2), "objective.tau": Range(0.01, 1.0)}
    wider = {("lr", "upper"): around(space["lr"], "upper")}  # type: ignore[arg-type, dict-item]
    tune = Tune(trials=32, extend=True, search=kind)  # type: ignore[arg-type]
    search = Search(tmp_path, "row", space, tune, extensions=wider)  # type: ignore[arg-type]
    asked = []
    while (trial := search.ask()) is not None:
        asked.append(trial)
        assert bool(search.extended(search.trials())) == (len(asked) > search.first)
        search.tell(trial.number, trial.setting["lr"])
    first = search.first
    assert first == (25 if kind == "grid" else 32)
    assert [trial.how for trial in asked[first:]] == ["extended"] * 8
    rates = [trial.setting["lr"] for trial in asked]
    assert all(1e-4 <= rate <= 1e-2 for rate in rates[:first])
    assert all(1e-3 <= rate <= 0.1 for rate in rates[first:])
    assert any(rate > 1e-2 for rate in rates[first:])
    whole = search.whole_space(search.trials())["lr"]
    assert isinstance(whole, Range)
    assert (whole.low, whole.high) == pytest.approx((1e-4, 0.1))
    assert search.importance().keys() == space.keys()


def test_nothing_is_extended_where_the_best_lies_inside_or_nobody_asked(tmp_path: Path) -> None:
    inside = Search(tmp_path / "a", "row", BOWL, Tune(trials=16, extend=True), extensions={})
    for folder, score in (("b", bowl), ("c", lambda setting: setting["lr"])):
        search, trials = searched(tmp_path / folder, score, trials=16, search="quasi-random")
        assert len(trials) == search.count(trials) == 16
    assert inside.count([]) == 16


def test_an_extended_search_that_is_stopped_and_shared_is_the_same(tmp_path: Path) -> None:
    """Further trials know the first ones alone, and wait for the last of these."""
    wider = {("lr", "upper"): around(Range(1e-4, 1e-1), "upper")}
    found = []
    for workers, folder in ((1, "one"), (3, "three")):
        tune = Tune(trials=32, extend=True, search="quasi-random")
        running: list[Trial] = []
        chance = random.Random(workers)
        while True:
            search = Search(tmp_path / folder, "row", BOWL, tune, extensions=wider)  # type: ignore[arg-type]
            trial = search.ask() if len(running) < workers else None
            if trial is not None:
                running.append(trial)
                continue
            if not running:
                break
            over = running.pop(chance.randrange(len(running)))
            search.tell(over.number, over.setting["lr"])
        found.append(search.trials())
    assert found[0] == found[1]
    assert len(found[0]) == 40


def test_only_a_search_that_learns_needs_optuna(monkeypatch: pytest.MonkeyPatch) -> None:
    from types import SimpleNamespace

    from simgrad.studies.engine import require_search

    monkeypatch.setitem(sys.modules, "optuna", None)
    drawn, learning = (
        SimpleNamespace(tunings=[SimpleNamespace(tune=SimpleNamespace(search=kind))])
        for kind in ("quasi-random", "tpe")
    )
    require_search(drawn)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="search: quasi-random"):
        require_search(learning)  # type: ignore[arg-type]
