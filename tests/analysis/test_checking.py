"""`check` accepts what is right and finds what is wrong; `compare` finds where two differ."""

import pytest
import torch

import simgrad
from simgrad.analysis import check, compare
from simgrad.core.errors import InputError
from simgrad.objectives import Offline, objectives

torch.manual_seed(0)
X = torch.randn(12, 8)
Y = torch.randn(24, 8) + X.repeat_interleave(2, 0)
OWNER = torch.arange(24) // 2


@pytest.mark.parametrize("entry", list(objectives), ids=lambda e: e.name)
def test_every_objective_is_right(entry):
    objective = entry.factory(**dict(entry.preset))
    offline = Offline(*(0.5 * torch.rand(4, 24))) if objective.needs_offline else None
    found = check(objective, X, Y, OWNER, offline=offline)
    assert found.ok, str(found)
    assert not found.note, str(found)
    assert found.is_loss == getattr(objective, "has_potential", True), str(found)


@pytest.mark.parametrize("seed", range(5))
def test_goal_is_right_whatever_the_embeddings(seed):
    torch.manual_seed(seed)  # its weights are exponentials: beyond cosines they overflow
    assert check("goal", torch.randn(6, 16), torch.randn(30, 16), torch.arange(6).repeat(5)).ok


def test_the_callers_objective_keeps_its_precision():
    objective = simgrad.objective("siglip")
    check(objective, X, Y, OWNER)
    assert next(objective.parameters()).dtype == torch.float32


def wrong(name, rule):
    simgrad.objectives.declare(name, description="wrong on purpose")(rule)
    return check(name, X, Y, OWNER)


def failed(found):
    return {finding.name for finding in found.findings if not finding.ok}


def test_a_wrong_derivative_is_found():
    def half(similarities, positives, batch):
        sign = 1.0 - 2.0 * positives.to(similarities.dtype)
        s = similarities.masked_fill(similarities == -torch.inf, 0)
        return (sign * s.square()).sum(1), sign * s  # the factor 2 is lost

    found = wrong("lost-factor", half)
    assert failed(found) == {"value"}
    assert not found.is_loss
    assert "NOT the derivative" in str(found)
    assert "right" not in str(found).splitlines()[0].split(".")[0]
    assert found.to_dict()["is_loss"] is False


def test_a_rule_that_cannot_ignore_is_found_and_refused_where_it_must():
    def times_nothing(similarities, positives, batch):
        own = (similarities * positives).sum(1)  # -inf times 0
        return 1 - own, -1.0 * positives

    found = wrong("times-nothing", times_nothing)
    assert failed(found) == {"form"}
    objective = simgrad.objective("times-nothing")
    objective(X, Y, OWNER)
    with pytest.raises(InputError, match=r"times-nothing: its rule cannot ignore a pair.*-inf"):
        objective(X, Y, OWNER, ignore=torch.tensor([[0, len(Y) - 1]]))
    with pytest.raises(InputError, match="cannot ignore"):
        objective.weigh(X @ Y.T, OWNER, ignore=torch.tensor([[0, len(Y) - 1]]))


def test_a_rule_that_needs_many_candidates_is_left_alone():
    def five(similarities, positives, batch):
        hard = similarities.masked_fill(positives, -torch.inf).topk(5, 1)
        weights = torch.zeros_like(similarities).scatter_(1, hard.indices, 1.0)
        return hard.values.sum(1), weights

    assert not failed(wrong("five-hardest", five)) - {"form"}


def test_dependence_on_the_order_is_found():
    def first(similarities, positives, batch):
        weights = torch.zeros_like(similarities)
        weights[:, 0] = 1
        return similarities[:, 0].clone(), weights

    found = wrong("favours-the-first", first)
    assert "order" in failed(found)
    assert not found.ok
    told = "WRONG: in another order the same pairs get other weights: find positives by `positives`"
    assert told in str(found).splitlines()[0]


TURNED = {
    "pushes positives apart": lambda s, p, pairs: pairs.per_query(pairs.similarity),
    "pulls negatives together": lambda s, p, pairs: (
        (-s).masked_fill(p | (s == -torch.inf), 0).sum(1)
    ),
}


@pytest.mark.parametrize("kinds", [[0], [1], [0, 1]])
def test_a_sign_that_is_turned_is_asked_about(kinds):
    told = [list(TURNED)[kind] for kind in kinds]
    found = wrong(
        f"turned-{len(told)}-{kinds[0]}",
        lambda s, p, pairs: sum(TURNED[one](s, p, pairs) for one in told),
    )
    assert found.ok
    assert found.is_loss
    assert f"note: on these embeddings it {' and '.join(told)}: is its sign right?" in str(found)
    assert found.to_dict()["note"] == found.note


def test_overflow_is_found():
    def exploding(similarities, positives, batch):
        power = torch.exp(100 * similarities)
        return power.sum(1), 100 * power

    assert "extremes" in failed(wrong("explodes", exploding))


def test_rows_that_need_each_other_are_found():
    def crowded(similarities, positives, batch):
        mean = similarities.mean(0, keepdim=True)
        return (similarities * mean).sum(1), mean.expand_as(similarities).clone()

    assert "blocks" in failed(wrong("crowded", crowded))


def test_compare_finds_the_pair():
    S = torch.tensor([[0.9, 0.5, 0.45], [0.1, 0.8, 0.65], [0.0, 0.2, 0.9]])
    result = compare("triplet-sh", "triplet", S, top=3)
    # Only one triplet of the image queries violates the margin: nothing differs.
    assert result.overlap == pytest.approx({"i2t": 1, "t2i": 0})
    assert all(pair.difference == 0 for pair in result.pairs)
    S[0, 0] = 0.6  # image 0 now has two negatives within the margin, of which one is the hardest
    result = compare("triplet-sh", "triplet", S, top=4)
    assert {(p.direction, p.image, p.caption) for p in result.pairs} >= {("i2t", 0, 2)}
    pair = next(p for p in result.pairs if (p.image, p.caption) == (0, 2))
    assert pair.first == 0
    assert pair.second == pytest.approx(1 / 6)  # one of three triplets, each with pull and push
    assert not pair.positive
    assert result.cosine["i2t"] < 1
    lines = result.table(captions=["a", "b", "c"], images=["x", "y", "z"])
    assert any(line[1] == "x" and line[-1] == "c" for line in lines)
    assert result.to_dict()["pairs"][0]["direction"] in ("i2t", "t2i")


def test_compare_with_itself_is_equal():
    S = torch.rand(6, 12)
    result = compare("nt-xent", "nt-xent", S, torch.arange(12) // 2)
    assert result.overlap == pytest.approx({"i2t": 1, "t2i": 1})
    assert all(pair.difference == 0 for pair in result.pairs)
