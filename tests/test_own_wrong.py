"""Rules of one's own with a mistake in them: a sentence says which, before anything is trained."""

import re
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn.functional import softplus

import simgrad
from simgrad.core.errors import InputError
from simgrad.objectives import objectives
from simgrad.training.trouble import not_finite

torch.manual_seed(0)
X, Y = torch.randn(8, 16), torch.randn(8, 16)
NO_GRADIENT = (
    "no query has a gradient: the value does not depend on the similarities "
    "(comparison, detach, numpy?)"
)


@pytest.fixture(autouse=True)
def forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test declares is gone after it."""
    monkeypatch.setattr(objectives, "_declared", dict(objectives._declared))
    monkeypatch.setattr(objectives, "_examined", set(objectives._examined))


def mean_of_own(p: torch.Tensor, pairs: Any) -> torch.Tensor:
    return pairs.per_query(pairs.similarity) / p.sum(1)


def smooth(s: torch.Tensor, p: torch.Tensor, pairs: Any) -> tuple[torch.Tensor, torch.Tensor]:
    negatives = s.masked_fill(p, -torch.inf) / 0.05
    x = torch.logsumexp(negatives, 1) - mean_of_own(p, pairs) / 0.05
    weights = torch.softmax(negatives, 1) - p / p.sum(1)[:, None]
    return 0.05 * softplus(x), weights * x.sigmoid()[:, None]


def times(factor: float) -> Callable[..., Any]:
    def rule(s: Any, p: Any, pairs: Any) -> Any:
        values, weights = smooth(s, p, pairs)
        return values, factor * weights

    return rule


def first_line(rule: Callable[..., Any]) -> str:
    simgrad.objectives.declare("mine", description="x")(rule)
    found = simgrad.analysis.check("mine", X, Y)
    return str(found).splitlines()[0]


BLIND = {
    "detached": lambda s, p, pairs: softplus(s.detach()).sum(1),
    "compared": lambda s, p, pairs: (s > mean_of_own(p, pairs)[:, None]).sum(1).float(),
    "constant": lambda s, p, pairs: torch.zeros(len(s)),
}


@pytest.mark.parametrize("kind", BLIND)
def test_a_value_without_a_gradient_is_refused(kind: str) -> None:
    assert first_line(BLIND[kind]).startswith(f"mine: WRONG: {NO_GRADIENT}")
    with pytest.raises(InputError, match=re.escape(NO_GRADIENT)):
        simgrad.objective("mine")


def test_weights_that_are_all_nothing_are_told_of_but_not_refused() -> None:
    """They may depend on a parameter."""
    told = "mine: WRONG: no query has a gradient on these embeddings: all weights are 0"
    assert first_line(times(0)) == told
    simgrad.objective("mine")
    objectives._declared.pop("mine")
    assert first_line(lambda s, p, pairs: 0 * smooth(s, p, pairs)[0]) == told


SHAPES = {
    "scalar": (lambda s, p, pairs: softplus(s).sum(), "returned ()"),
    "matrix": (lambda s, p, pairs: softplus(s), "returned (12, 24)"),
    "columns": (lambda s, p, pairs: softplus(s).sum(0), "returned (24,)"),  # not seen on a square
    "none": (lambda s, p, pairs: None, "returned None"),
    "float": (lambda s, p, pairs: 3.0, "returned 3.0"),
    "array": (lambda s, p, pairs: s.sum(1).numpy(), "returned ndarray"),
}
SHAPED = {
    "swapped": (lambda s, p, pairs: smooth(s, p, pairs)[::-1], "returned weights first"),
    "turned": (
        lambda s, p, pairs: (s.sum(1), torch.ones_like(s).T),
        "returned (24, 12); as its weights, (12, 24), queries x candidates, is needed",
    ),
    "four": (lambda s, p, pairs: (s.sum(1),) * 4, "(values, weights), or values, is needed"),
}


@pytest.mark.parametrize("kind", [*SHAPES, *SHAPED])
def test_wrong_shapes_are_named_with_their_place(kind: str) -> None:
    rule, told = {**SHAPES, **SHAPED}[kind]
    said = first_line(rule)
    assert told in said
    assert re.search(r"the rule 'mine' \(tests[/\\]test_own_wrong.py:\d+\) returned", said)
    if kind in SHAPES:
        assert "one value for each of 12 queries is needed" in said
    with pytest.raises(InputError, match="the rule 'mine'"):
        simgrad.objective("mine")


def test_a_shape_that_is_wrong_only_later_is_named_when_it_is_returned() -> None:
    @simgrad.objectives.declare("mine", description="right for fewer than 100 queries")
    def late(s: Any, p: Any, pairs: Any) -> Any:
        return smooth(s, p, pairs)[0][:100]

    objective = simgrad.objective("mine")
    with pytest.raises(InputError, match=r"returned \(100,\); one value for each of 128 queries"):
        objective(torch.randn(128, 4), torch.randn(128, 4))


@pytest.mark.parametrize("several", [tuple, list])
def test_values_and_weights_may_come_in_a_tuple_or_a_list(several: Any) -> None:
    """A comma too many makes a tuple of one."""
    S, found = torch.randn(4, 4), []
    for count in (1, 2):
        objectives._declared.pop("mine", None)
        simgrad.objectives.declare("mine", description="x")(
            lambda s, p, pairs, count=count: several(smooth(s, p, pairs)[:count])
        )
        found.append(simgrad.objective("mine").weigh(S).i2t)
    torch.testing.assert_close(*found)


def test_weights_that_are_missing_only_later_are_told_of() -> None:
    @simgrad.objectives.declare("mine", description="forgets its weights on large batches")
    def forgetful(s: Any, p: Any, pairs: Any) -> Any:
        return smooth(s, p, pairs)[: 1 if len(s) > 100 else 2]

    objective = simgrad.objective("mine")
    with pytest.raises(InputError, match="returned values alone here, and with weights before"):
        objective(torch.randn(128, 4), torch.randn(128, 4))


def test_numbers_that_are_none_are_counted() -> None:
    said = first_line(lambda s, p, pairs: torch.log(mean_of_own(p, pairs) - 5))
    assert "WRONG: returns NaN or infinity for 16 of 16 queries at ordinary similarities" in said


def test_weights_that_are_no_numbers_are_counted() -> None:
    assert "returns weights that are NaN or infinity for 16 of 16" in first_line(times(torch.nan))


@pytest.mark.parametrize(
    ("factor", "told"),
    [
        (-1.0, "points uphill: cosine with the derivative -1.00"),
        (2.0, "(the derivative's direction, 2 times as long)"),
    ],
)
def test_weights_that_disagree_say_how(factor: float, told: str) -> None:
    assert told in first_line(times(factor))


def test_what_is_right_stays_right_and_warns_of_nothing() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert "a loss" in first_line(lambda s, p, pairs: smooth(s, p, pairs)[0])
        simgrad.objective("mine")(X, Y)
    objectives._declared.pop("mine")
    assert "a loss" in first_line(smooth)


@pytest.mark.parametrize("declared", [smooth, type("Mine", (), {})])
def test_a_rule_that_is_declared_without_a_name_is_refused(declared: Any) -> None:
    with pytest.raises(InputError) as refused:
        simgrad.objectives.declare(declared)
    told = f'{declared.__name__} is declared without a name: write @declare("name").'
    assert str(refused.value) == told


def test_looking_at_a_rule_draws_none_of_the_callers_random_numbers() -> None:
    @simgrad.objectives.declare("mine", description="draws")
    def drawing(s: Any, p: Any, pairs: Any) -> Any:
        return (s * torch.rand_like(s)).masked_fill(p, 0).sum(1)

    torch.manual_seed(1)
    expected = torch.rand(1)
    torch.manual_seed(1)
    simgrad.objective("mine")
    assert torch.rand(1) == expected


def test_divergence_suspects_a_rule_of_ones_own_first() -> None:
    @simgrad.objectives.declare("mine", description="x")
    def mine(s: Any, p: Any, pairs: Any) -> Any:
        return torch.log(mean_of_own(p, pairs) - 5)

    def told(*specs: str) -> str:
        return str(not_finite(1, 0, "the loss is nan", map(simgrad.objective, specs)))

    assert re.search(r"Look at the rule 'mine' \(tests.*\) first: .*check\('mine'", told("mine"))
    assert "Lower the learning rate" in told("nt-xent")
    assert "first" not in told("nt-xent")
