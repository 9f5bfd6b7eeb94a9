"""Which weights are the gradient of something: known cases, and counterexamples made for it."""

import pytest
import torch

import simgrad
from simgrad.analysis import goal_cells, integrability, potential, verdicts
from simgrad.objectives import Goal

# Everything follows from P+ dT/ds- = -P- dT/ds+ and, for con, P+ = P- on the margin.
GRADIENTS = {("con", "con"), ("nca", "con"), ("cir", "lin")}


@pytest.fixture(scope="module")
def cells():
    return {(goal.triplet, goal.pair): integrability(goal) for goal in goal_cells()}


@pytest.mark.long
def test_three_of_goals_fifteen_cells_are_gradients(cells):
    assert len(cells) == 15
    assert {cell for cell, verdict in cells.items() if verdict.gradient} == GRADIENTS
    for cell, verdict in cells.items():
        assert verdict.value_is_potential == (cell in GRADIENTS)
        assert bool(verdict.reasons) == (cell not in GRADIENTS)


@pytest.mark.long
def test_where_the_others_fail(cells):
    for pair in ("lin", "sig"):  # on either side of the margin a gradient, across it not
        assert cells["con", pair].curl == 0
        assert cells["con", pair].batch == 0
        assert "jump" in cells["con", pair].reasons[0]
    for cell in (("cir", "con"), ("nca", "lin"), ("nca", "sig"), ("cir", "sig")):
        assert "within one triplet" in cells[cell].reasons[0]
    # Circle's own cell, but for the relative sets: only a batch shows it.
    assert cells["cir", "lin-ms"].curl < 1e-6
    assert cells["cir", "lin-ms"].reasons == (
        "weights depend on other pairs, which feel nothing in return",
    )


@pytest.mark.parametrize(
    "spec", ["triplet", "triplet-sh", "nt-xent", "smooth-ap", "siglip", "off-tri", "adap-off-quin"]
)
def test_losses_are_gradients_of_their_values(spec):
    verdict = integrability(spec)
    assert verdict.gradient
    assert verdict.value_is_potential


def test_without_a_margin_separate_pair_weights_are_gradients():
    """The public code of GOAL has no margin: then con, lin and sig integrate."""
    for pair in ("lin", "sig"):
        verdict = integrability(Goal(triplet="con", pair=pair, released=True))
        assert verdict.gradient
        assert not verdict.value_is_potential  # what is logged is s- - s+


def test_rules_of_ones_own():
    swirl = Goal(triplet=lambda p, n: torch.ones_like(p), pair=lambda p, n: (n, p))
    assert integrability(swirl).gradient is False  # -n ds+ + p ds-: a rotation
    saddle = Goal(triplet=lambda p, n: torch.ones_like(p), pair=lambda p, n: (n, -p))
    assert integrability(saddle).gradient  # of -s+ s-


@pytest.mark.long
def test_a_declared_rule_that_looks_at_the_batch():
    @simgrad.objectives.declare("batch-gazing", description="weighs by the batch's mean positive")
    def gazing(similarities, positives, batch):
        mean = batch.of_batch.mean()
        weights = torch.where(positives, -mean, 0.0)
        return -mean * (similarities * positives).sum(1), weights

    verdict = integrability("batch-gazing")
    assert verdict.objective == "batch-gazing"
    assert not verdict.value_is_potential


@pytest.mark.parametrize(
    ("spec", "formula"),
    [
        ("goal(triplet=con, pair=con)", lambda p, n: (0.2 + n - p).clamp(min=0)),
        ("nca(tau=10)", lambda p, n: torch.nn.functional.softplus(10 * (n - p)) / 10),
        (
            "circle(tau=10)",
            lambda p, n: torch.nn.functional.softplus(-10 * (p * (2 - p) - n**2)) / 20,
        ),
        (
            "nt-xent(tau=0.1)",
            lambda p, n: torch.nn.functional.softplus(10 * (n - p)),
        ),
    ],
)
def test_potentials_in_closed_form(spec, formula):
    found = potential(spec, low=-1, high=1)
    s_neg, s_pos = torch.meshgrid(found.s_neg, found.s_pos, indexing="ij")
    expected = formula(s_pos, s_neg)
    expected = expected - expected[0, -1]
    assert found.path_dependence < 0.02
    assert float((found.value - expected).abs().max()) < 0.02


def test_the_potential_of_no_gradient_depends_on_the_path():
    assert potential("goal(triplet=con, pair=lin)").path_dependence > 0.1


def test_verdicts_are_plain_data():
    import json

    text = json.dumps([v.to_dict() for v in verdicts(["nt-xent"])])
    assert '"gradient": true' in text
