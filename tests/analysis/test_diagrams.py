"""The data of diagrams against formulas, and figures that can be drawn and written."""

import numpy as np
import pytest
import torch

import simgrad
from simgrad.analysis import (
    pair_curves,
    pair_weight_diagram,
    save_figure,
    triplet_diagram,
    triplet_field,
)
from simgrad.analysis.situations import independent, weigh_situations
from simgrad.core.errors import InputError
from simgrad.objectives import Goal, objectives


def test_field_of_known_objectives():
    field = triplet_field("nt-xent(tau=0.1)", 11)
    s_pos, s_neg = np.meshgrid(field.s_pos, field.s_neg)
    expected = 10 / (1 + np.exp(10 * (s_pos - s_neg)))
    np.testing.assert_allclose(field.push, expected, rtol=1e-9)
    assert field.balanced
    assert field.triplet is None
    step = triplet_field("triplet-sh(margin=0.25)", 11)
    far = np.abs(s_pos - s_neg - 0.25) > 1e-6
    np.testing.assert_array_equal(step.push[far], (s_pos - s_neg < 0.25)[far])


def test_field_of_goal_is_triplet_weight_times_pair_weight():
    field = triplet_field("goal(triplet=cir, pair=sig-ms)", 21)
    s_pos, s_neg = np.meshgrid(field.s_pos, field.s_neg)
    T = 1 / (1 + np.exp(s_pos * (2 - s_pos) - s_neg**2))
    np.testing.assert_allclose(field.triplet, T, rtol=1e-9)
    np.testing.assert_allclose(field.pull, T / (1 + np.exp(2 * (s_pos - 0.5))), rtol=1e-6)
    np.testing.assert_allclose(field.push, T / (1 + np.exp(-10 * (s_neg - 0.5))), rtol=1e-6)
    assert not field.balanced


@pytest.mark.parametrize("entry", list(objectives), ids=lambda e: e.name)
def test_situations_at_once_are_what_they_are_one_by_one(entry):
    """Every objective: the rows of a grid do not see each other."""
    objective = entry.factory(**dict(entry.preset))
    torch.manual_seed(0)
    grid = torch.rand(40, 3, dtype=torch.float64)
    together = weigh_situations(objective, grid).weights
    single = torch.cat([weigh_situations(objective, row[None]).weights for row in grid])
    torch.testing.assert_close(together, single, rtol=1e-6, atol=1e-9)
    assert independent(objective)


def test_a_rule_that_sees_the_batch_is_asked_point_by_point():
    @simgrad.objectives.declare("sees-all", description="weighs by the batch's mean positive")
    def sees_all(similarities, positives, batch):
        mean = batch.of_batch.mean()
        return similarities.sum(1), torch.where(positives, -mean, mean)

    rule = simgrad.objective("sees-all")
    assert not independent(rule)
    field = triplet_field(rule, 5)
    np.testing.assert_allclose(field.push, np.tile(field.s_pos, (5, 1)))


def test_pair_curves_of_figure_3():
    sig = pair_curves("goal(pair=sig)", 3)
    assert sig.factors
    np.testing.assert_allclose(sig.pull[0], 1 / (1 + np.exp(2 * (np.array([0, 0.5, 1]) - 0.5))))
    ms = pair_curves("goal(pair=sig-ms)", 3, relative=0.1)
    np.testing.assert_allclose(ms.push[0], 1 / (0.1 + np.exp(-10 * (np.array([0, 0.5, 1]) - 0.5))))
    linear = pair_curves("goal(pair=lin-ms)", 3, relative=0.1)
    np.testing.assert_allclose(linear.pull[0], 0.9 * np.array([1, 0.5, 0]))
    neutral = pair_curves("goal(pair=sig-ms)", 3, relative=None)
    np.testing.assert_allclose(neutral.push, sig.push)
    own = pair_curves(Goal(pair=lambda p, n: (1 - p, n * n)), 3)
    np.testing.assert_allclose(own.push[0], [0, 0.25, 1])
    plain = pair_curves("nt-xent", 3, others=(0.5,))
    assert not plain.factors
    assert plain.pull[0, 1] == pytest.approx(5)


@pytest.fixture
def run_folder(tmp_path):
    rng = np.random.default_rng(0)
    clouds = {n: rng.normal(c, 0.08, (500, 2)) for n, c in (("early", 0.4), ("late", 0.6))}
    np.savez(tmp_path / "triplets.npz", **clouds)
    return tmp_path


def test_figures_are_written(tmp_path, run_folder):
    both = ["goal(triplet=nca, pair=lin)", "triplet-sh"]
    figure = triplet_diagram(both, resolution=21)
    shown = [axis for axis in figure.axes if axis.get_xlabel()]
    assert len(shown) == 4  # T, pull, push; and one for the triplet loss
    png = save_figure(figure, tmp_path / "a.png")
    assert png.read_bytes().startswith(b"\x89PNG")
    svg = save_figure(triplet_diagram(both, run=run_folder, resolution=21), tmp_path / "a.svg")
    assert b"<svg" in svg.read_bytes()
    curves = pair_weight_diagram(["goal(pair=lin)", "smooth-ap"])
    assert save_figure(curves, tmp_path / "b.png").stat().st_size > 1000
    only = triplet_diagram(["goal(triplet=con)", "goal(triplet=nca, tau=10)"], part="triplet")
    titles = [a.get_title() for a in only.axes if a.get_title()]
    assert [title.split("\n")[0] for title in titles] == [
        r"$T^{\mathrm{con}}$",
        r"$T^{\mathrm{nca}}$",
    ]
    assert "tau=10" in titles[1]  # the paper's figure has it, the default is another
    with pytest.raises(InputError, match="png"):
        save_figure(figure, tmp_path / "a.gif")


def test_the_relative_terms_of_a_figure_are_told():
    for pair, told in (("sig-ms", ["relative terms $m_+ = m_-$ = 0.1"]), ("sig", [])):
        figure = pair_weight_diagram([f"goal(triplet=con, pair={pair})"])
        texts = [text.get_text() for text in figure.legends[0].get_texts()]
        assert [text for text in texts if text.startswith("relative")] == told


def test_mistakes_are_named(tmp_path):
    with pytest.raises(InputError, match="at least one objective"):
        triplet_diagram([])
    with pytest.raises(InputError, match="no triplet weight"):
        triplet_diagram("nt-xent", part="triplet")
    with pytest.raises(InputError, match="low < high"):
        triplet_field("nt-xent", low=1.0, high=0.0)
    with pytest.raises(InputError, match=r"triplets\.npz"):
        triplet_diagram("nt-xent", run=tmp_path)
    np.savez(tmp_path / "triplets.npz", early=np.zeros(3))
    with pytest.raises(InputError, match="shape"):
        triplet_diagram("nt-xent", run=tmp_path)
