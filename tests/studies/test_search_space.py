"""What a tuned study searches: its schedule, what objectives declare, and spaces of one's own."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from simgrad.cli.study import adapt
from simgrad.core.errors import InputError
from simgrad.core.spec import Range
from simgrad.objectives import declare as objective_rule
from simgrad.objectives import objective, objectives
from simgrad.studies.plan import plan_from_dict
from simgrad.studies.space import apply, base_of, left_out, space_of, told_apart, trial_of
from simgrad.studies.study import Study
from tests.studies.small_study import SMALL, plan

pytest.importorskip("optuna")
pytestmark = pytest.mark.usefixtures("forked_workers")


def test_a_row_searches_its_schedule_and_what_its_objective_declares() -> None:
    spaces = {}
    for spec in (
        "triplet-sh",
        "nt-xent",
        "goal(triplet=con, pair=sig)",
        "goal(triplet=nca, pair=con)",
    ):
        made = plan(grid={"objective": [spec]}, baseline=None)
        assert made.tune is not None
        spaces[spec] = space_of(made.tune, made.recipe(made.rows[0], 0))
    assert list(spaces["triplet-sh"]) == ["lr", "clip", "objective.margin"]
    assert list(spaces["nt-xent"]) == ["lr", "clip", "objective.tau"]
    assert "objective.tau" not in spaces["goal(triplet=con, pair=sig)"]
    assert "objective.lambda" in spaces["goal(triplet=con, pair=sig)"]
    assert list(spaces["goal(triplet=nca, pair=con)"]) == ["lr", "clip", "objective.tau"]
    lr = spaces["nt-xent"]["lr"]
    assert isinstance(lr, Range)
    assert lr.low < 5e-3 < lr.high


@pytest.mark.parametrize("declared", list(objectives), ids=lambda d: d.name)
def test_every_objective_can_be_had_at_the_ends_of_its_ranges(declared: Any) -> None:
    found = objective(declared.name).searched()
    assert 1 <= len(found) <= 2
    for end in ("low", "high"):
        values = ", ".join(f"{name}={getattr(where, end):g}" for name, where in found.items())
        objective(f"{declared.name}({values})")


def test_what_a_spec_or_a_row_fixes_is_not_searched() -> None:
    made = plan(grid={"objective": ["nt-xent(tau=0.05)", "nt-xent(tau=0.1)"]}, baseline=None)
    assert made.tune is not None
    assert list(space_of(made.tune, made.recipe(made.rows[0], 0))) == ["lr", "clip"]
    rates = plan(grid={"objective": ["nt-xent"], "lr": [1e-3, 1e-2]}, baseline=None)
    assert told_apart([rates.recipe(row, 0) for row in rates.rows]) == ["lr"]


def test_what_a_rule_of_ones_own_does_not_search_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objectives, "_declared", dict(objectives._declared))

    @objective_rule("soft-margin", search={"wide": Range(1, 2)})
    def soft(s: Any, p: Any, pairs: Any, margin: float = 0.2, tau: float = 0.1, wide: float = 1.5):  # type: ignore[no-untyped-def]
        own = (pairs.per_query(pairs.similarity) / p.sum(1))[:, None]
        return (margin + s - own).clamp(min=0).masked_fill(p, 0).sum(1) * tau * wide

    def told(*specs: str, **tune: Any) -> list[str]:
        grid = {"objective": list(specs)}
        return left_out(plan(grid=grid, baseline=None, tune={"trials": 4, **tune}))

    both = "soft-margin: margin, tau are not searched (declare search=)."
    assert told("soft-margin", "nt-xent", "goal") == [both]
    assert told("soft-margin(margin=0.1)") == [
        "soft-margin: tau is not searched (declare search=)."
    ]
    space = {"objective.tau": {"low": 0.1, "high": 1}, "objective.margin": [0.1, 0.2]}
    assert told("soft-margin", space=space) == []


def test_a_space_of_one_s_own() -> None:
    space = {"lr": {"low": "1e-4", "high": 1e-2}, "clip": None, "model.dimension": [8, 16],
             "epochs": {"low": 1, "high": 4, "log": False}}  # fmt: skip
    made = plan(tune={"trials": 4, "space": space})
    assert made.tune is not None
    recipe = made.recipe(made.rows[0], 0)
    found = space_of(made.tune, recipe)
    assert set(found) == {"lr", "objective.margin", "model.dimension", "epochs"}
    changed = apply(recipe, {"lr": 0.01, "model.dimension": 8, "objective.margin": 0.3})
    assert objective(changed.objective).settings()[0] == 0.3
    assert "dimension=8" in changed.model
    assert "word_dimension=16" in changed.model


def test_a_row_may_have_a_space_of_its_own(tmp_path: Path) -> None:
    rates = {"low": 1e-4, "high": 1e-3}
    rows = [
        {"label": "a", "set": {"objective": "triplet-sh"}, "space": {"lr": [1e-4, 2e-4]}},
        {"label": "b", "set": {"objective": "nt-xent"}, "space": {"lr": rates, "clip": None}},
        {"label": "c", "set": {"objective": "triplet"}},
    ]
    own: dict[str, Any] = {"grid": {}, "rows": rows, "baseline": None}
    study = Study.create(plan(**own), tmp_path / "study")
    # As it was written and read again.
    searched = [tuning.search.space for tuning in Study(study.path).tunings]
    assert searched[0]["lr"] == (1e-4, 2e-4)
    assert searched[1]["lr"] == Range(1e-4, 1e-3)
    assert "clip" not in searched[1]
    assert searched[2]["lr"] == Range(0.25 * 5e-3, 8 * 5e-3)
    (study.path / "trials").mkdir()
    with pytest.raises(InputError, match="search settings differ"):
        Study.create(plan(**{**own, "rows": [{**rows[0], "space": {}}, *rows[1:]]}), study.path)
    with pytest.raises(InputError, match=r"row 'a': space: it has nothing called 'objective\.tau'"):
        plan(**{**own, "rows": [{**rows[0], "space": {"objective.tau": [0.1, 0.2]}}]})


def test_of_two_rounds_the_second_is_tuned() -> None:
    made = plan(
        grid={"objective": ["triplet-sh"]},
        recipe={**SMALL["recipe"], "second_round": {"objective": "off-quin", "epochs": 4}},
        baseline=None,
    )
    assert made.tune is not None
    base = base_of(made.tune, made.recipe(made.rows[0], 0))
    assert "objective.online" in space_of(made.tune, base)
    trial = trial_of(apply(base, {"lr": 0.01, "objective.online": 0.1}), 7)
    assert (trial.lr, trial.validation_only, trial.seed) == (5e-3, False, 7)
    second = trial.round_two()
    assert (second.lr, second.validation_only, second.epochs) == (0.01, True, 4)
    assert objective(second.objective).settings()[0] == 0.1


@pytest.mark.parametrize(
    ("tune", "words"),
    [
        ({"trials": 0}, "at least 1"),
        ({"trials": 2, "space": {"lerning": {"low": 1, "high": 2}}}, "lerning"),
        ({"trials": 2, "space": {"lr": {"low": 1}}}, "low"),
        ({"trials": 2, "space": {"lr": {"low": 2, "high": 1}}}, "holds nothing"),
        ({"trials": 2, "space": {"batch": {"low": -3, "high": 5, "log": False}}}, "batch"),
        ({"trials": 2, "seed": 1}, "seed 1 is among"),
        ({"trials": 2, "select": "i2t_medr"}, "the lower"),
    ],
)
def test_what_cannot_be_searched_is_said_before_anything_runs(
    tune: dict[str, Any], words: str
) -> None:
    with pytest.raises(InputError, match=words):
        plan(tune=tune)


def test_trials_on_any_study_file() -> None:
    made = plan(tune=None)
    tuned = adapt(made, seeds=3, trials=5)
    assert tuned.tune is not None
    assert (tuned.tune.trials, tuned.seeds) == (5, (0, 1, 2))
    again = plan_from_dict(
        yaml.safe_load(yaml.safe_dump({**SMALL, "tune": tuned.tune.to_dict()})), "x"
    )
    assert again.tune == tuned.tune
