"""COCOS against counts by hand and against slow loops straight from the paper's definitions."""

import math
import time

import pytest
import torch

import simgrad
from simgrad.analysis import CocosAccumulator, attention, cocos, published_rows
from simgrad.core.errors import InputError
from simgrad.objectives import Offline, Positives

# Three pairs. Image 0: own 0.9, others 0.8 and 0.1. Image 1: own 0.5, others 0.45 and 0.2.
# Image 2: own 0.7, others 0.0 and 0.3.
S = torch.tensor([[0.9, 0.8, 0.1], [0.45, 0.5, 0.2], [0.0, 0.3, 0.7]])
# Two images with two captions each.
WIDE = torch.tensor([[0.9, 0.6, 0.85, 0.3], [0.1, 0.58, 0.8, 0.7]])
OWNER = torch.tensor([0, 0, 1, 1])


def test_triplet_by_hand():
    counts = cocos("triplet(margin=0.2)", S)
    # i2t: image 0 has 0.8 > 0.7; image 1 has 0.45 > 0.3; image 2 has none above 0.5.
    assert counts.i2t.paper == {"C_q": 1, "C_B": 2, "C_0": 1}
    # t2i: caption 0 (0.9): none above 0.7; caption 1 (0.5): 0.8 > 0.3, 0.3 is not; caption 2: none.
    assert counts.t2i.paper == {"C_q": 1, "C_B": 1, "C_0": 2}
    assert counts.i2t.zero_share == pytest.approx(1 / 3)
    assert counts.t2i.zero_share == pytest.approx(2 / 3)
    assert counts.i2t.contributing == 1


def test_triplet_with_several_positives_by_hand():
    counts = cocos("triplet(margin=0.2)", WIDE, OWNER)
    # Image 0: negatives 0.85, 0.3. Positive 0.9: 0.85 > 0.7. Positive 0.6: 0.85 > 0.4. Two.
    # Image 1: negatives 0.1, 0.58. Positive 0.8: none above 0.6. Positive 0.7: 0.58 > 0.5. One.
    assert counts.i2t.paper == {"C_q": 1.5, "C_B": 3, "C_0": 0}
    # Captions: 0.9 against 0.1, 0.6 against 0.58 (yes), 0.8 against 0.85 (yes), 0.7 against 0.3.
    assert counts.t2i.paper == {"C_q": 1, "C_B": 2, "C_0": 2}


def test_triplet_sh_by_hand():
    counts = cocos("triplet-sh(margin=0.48)", S)
    # All three: 0.8 > 0.42, 0.45 > 0.02, 0.3 > 0.22; the hardest alone counts.
    assert counts.i2t.paper == {"C_q": 1, "C_B": 3, "C_0": 0}
    # Captions: 0.45 > 0.42; 0.8 > 0.02; 0.2 is not above 0.22.
    assert counts.t2i.paper == {"C_q": 1, "C_B": 2, "C_0": 1}
    several = cocos("triplet-sh(margin=0.2)", WIDE, OWNER)
    assert several.i2t.paper == {"C_q": 1, "C_B": 2, "C_0": 0}
    assert several.t2i.paper == {"C_q": 1, "C_B": 2, "C_0": 2}


@pytest.mark.parametrize(("scores", "owner"), [(S, None), (WIDE, OWNER)])
def test_nt_xent_by_hand(scores, owner):
    epsilon, tau = 0.2, 0.5
    counts = cocos(f"nt-xent(tau={tau})", scores, owner, epsilon)
    owner = torch.arange(3) if owner is None else owner
    images, captions = scores.shape
    for direction in ("i2t", "t2i"):
        rows = range(images) if direction == "i2t" else range(captions)
        number = weight = pull = 0.0
        for q in rows:
            line = scores[q] if direction == "i2t" else scores[:, q]
            own = [
                c
                for c in range(len(line))
                if (owner[c] == q if direction == "i2t" else owner[q] == c)
            ]
            total = sum(math.exp(s / tau) for s in line)
            p = [math.exp(s / tau) / total for s in line]
            counted = [p[c] for c in range(len(line)) if c not in own and p[c] > epsilon]
            number += len(counted)
            weight += sum(counted)
            pull += 1 - sum(p[c] for c in own)
        found = getattr(counts, direction).paper
        assert found["C_qv_neg"] == pytest.approx(number / len(rows))
        assert found["W_qv_neg"] == pytest.approx(weight / len(rows), rel=1e-5)
        assert found["W_qv_pos"] == pytest.approx(pull / len(rows), rel=1e-5)


def slow_smooth_ap(scores, positives, tau, epsilon, factor):
    """Eq. 13, one triplet at a time; rows are queries."""
    counts = []
    for line, own in zip(scores.tolist(), positives, strict=True):
        count = 0
        for i in own:
            others = [j for j in range(len(line)) if j != i]
            G = {j: 1 / (1 + math.exp(-(line[j] - line[i]) / tau)) for j in others}
            rank = 1 + sum(G.values())
            count += sum(factor * G[j] * (1 - G[j]) / rank**2 > epsilon for j in others)
        counts.append(count / len(own) if own else 0)
    return counts


def test_an_objective_that_the_paper_does_not_count_has_none_of_its_counts():
    """Debiased NT-Xent is built on NT-Xent; its weights are others."""
    assert cocos("debiased-nt-xent(prior=0.3)", S).i2t.paper == {}
    assert cocos("nt-xent", S).i2t.paper


def test_smooth_ap_by_hand():
    # Query 0: own 0.9 beats 0.8 by one tau: G = 1/(1+e) = 0.269, the other G is nothing; R = 1.27;
    # sim/R² = 0.197/0.1/1.61 = 1.22 > 1, one triplet. Query 1: own 0.5 against 0.45 (G 0.378) and
    # 0.2 (G 0.047): R = 1.425; 2.351/2.03 = 1.16 > 1, 0.452/2.03 is not. Query 2: none.
    counts = cocos("smooth-ap(tau=0.1)", S, epsilon=1.0)
    assert counts.i2t.paper == {"C_q": 1, "C_0": 1}


@pytest.mark.parametrize("several", [False, True])
def test_smooth_ap_equals_the_slow_count(several):
    torch.manual_seed(0)
    owner = torch.arange(12) // 3 if several else torch.arange(12)
    images = int(owner.max()) + 1
    scores = torch.rand(images, 12, dtype=torch.float64) * 0.2
    counts = cocos("smooth-ap", scores, owner, epsilon=0.5)
    own = {
        "i2t": [(owner == i).nonzero()[:, 0].tolist() for i in range(images)],
        "t2i": [[o] for o in owner.tolist()],
    }
    for direction, rows in (("i2t", scores), ("t2i", scores.T)):
        slow = slow_smooth_ap(rows, own[direction], 0.01, 0.5, 100)
        some = [c for c in slow if c]
        found = getattr(counts, direction).paper
        assert found["C_0"] == slow.count(0)
        assert found["C_q"] == pytest.approx(sum(some) / len(some))


def test_identities():
    """C_q = C_B / (B - C_0), and for the hardest negative alone C_B + C_0 = B."""
    torch.manual_seed(1)
    scores = torch.rand(64, 64) + 0.6 * torch.eye(64)
    for spec in ("triplet", "triplet-sh"):
        for released in (False, True):
            counts = cocos(spec, scores, released=released)
            for side in (counts.i2t.paper, counts.t2i.paper):
                assert side["C_q"] == pytest.approx(side["C_B"] / (64 - side["C_0"]))
                if spec == "triplet-sh":
                    assert side["C_B"] + side["C_0"] == 64


def test_general_counts_of_the_triplet_loss_are_the_papers():
    torch.manual_seed(2)
    scores = torch.rand(32, 32) + 0.7 * torch.eye(32)
    counts = cocos("triplet", scores)
    for side in (counts.i2t, counts.t2i):
        assert side.contributing == pytest.approx(side.paper["C_q"])
        assert side.effective == pytest.approx(side.paper["C_q"])  # all weigh the same
        assert side.zero_share == pytest.approx(side.paper["C_0"] / 32)


def test_general_counts_from_given_weights():
    @simgrad.objectives.declare("given-weights", description="as the similarities say")
    def given(similarities, positives, batch):
        weights = similarities.masked_fill(positives, -1.0)
        return similarities.sum(1), weights

    scores = torch.tensor([[0.0, 3.0, 1.0, 0.0], [0.0, 0.0, 0.0, 0.0]])
    scores = torch.cat([scores, torch.zeros(2, 4)])
    counts = cocos("given-weights", scores)
    # One query pushes, with 3 and 1: (3+1)²/(9+1) = 1.6 negatives, three quarters on one.
    assert counts.i2t.contributing == 2
    assert counts.i2t.effective == pytest.approx(1.6)
    assert counts.i2t.hardest_share == pytest.approx(0.75)
    assert counts.i2t.zero_share == 0  # every query still pulls its positive
    assert counts.i2t.paper == {}


def test_where_no_query_pushes_there_is_no_mean_over_those_that_do():
    quiet = torch.eye(3)
    counts = cocos("triplet-sh", quiet)
    for name in ("contributing", "effective", "hardest_share"):
        assert math.isnan(getattr(counts.i2t, name))
    assert counts.i2t.zero_share == 1
    noted = attention(simgrad.objective("triplet-sh").weigh(quiet))
    assert noted["i2t"] == {"zero_share": 1, "faint_share": 1}
    gathered = CocosAccumulator()
    for scores in (S, quiet):
        gathered.add(cocos("triplet-sh", scores))
    assert gathered.summary()["i2t"]["hardest_share"] == (1, 0)  # of the batch that pushed


def test_false_negatives():
    truth = torch.zeros(3, 3, dtype=torch.bool)
    truth[0, 1] = True
    counts = cocos("triplet(margin=0.2)", S, truth=truth)
    assert counts.i2t.false_share == pytest.approx(1 / 2)  # pushes: (0, 1) and (1, 0)
    assert counts.t2i.false_share == 1  # the only push
    known = torch.zeros(3, 3, dtype=torch.bool)
    known[1, 0] = True
    judged = cocos("triplet(margin=0.2)", S, truth=truth, known=known)
    assert judged.i2t.false_share == 0
    assert math.isnan(judged.t2i.false_share)  # nothing judged there
    assert cocos("triplet", S).i2t.false_share is None


@pytest.mark.parametrize("entry", list(simgrad.objectives.objectives), ids=lambda e: e.name)
def test_every_objective_can_be_counted(entry):
    objective = entry.factory(**dict(entry.preset))
    torch.manual_seed(3)
    scores = torch.rand(4, 8)
    owner = torch.arange(8) // 2
    offline = Offline(*torch.rand(4, 8)) if objective.needs_offline else None
    counts = cocos(objective, scores, owner, offline=offline)
    for side, most in ((counts.i2t, 6), (counts.t2i, 3)):
        assert 1 <= side.effective <= most + 1e-4
        assert 0 < side.hardest_share <= 1 + 1e-6
        assert side.effective >= 1 / side.hardest_share - 1e-4  # as for any weights


def test_attention_is_the_general_count():
    torch.manual_seed(4)
    scores, owner = torch.rand(6, 12), torch.arange(12) // 2
    objective = simgrad.objective("nt-xent")
    cheap = attention(objective.weigh(scores, owner), owner)
    full = cocos(objective, scores, owner)
    for direction in ("i2t", "t2i"):
        for name, value in cheap[direction].items():
            assert value == pytest.approx(getattr(getattr(full, direction), name), rel=1e-5)


def test_rows_that_fill_a_batch_up_are_not_queries():
    scores, owner = torch.rand(4, 6), torch.tensor([0, 0, 1, 1, 2, 2])
    present = torch.tensor([True, True, True, False])
    objective = simgrad.objective("nt-xent")
    padded = Positives.of_captions(owner, 4, present)
    found = attention(objective.weigh(scores, padded), padded)
    alone = attention(objective.weigh(scores[:3], owner), owner)
    for direction in ("i2t", "t2i"):
        assert found[direction] == pytest.approx(alone[direction], rel=1e-5)


def test_accumulator_takes_population_std():
    gathered = CocosAccumulator()
    for scores in (S, torch.eye(3)):
        gathered.add(cocos("triplet", scores, released=True))
    mean, std = gathered.summary()["i2t"]["C_B"]
    assert (mean, std) == (1, 1)  # counts 2 and 0
    assert gathered.summary()["i2t"]["C_q"] == (1, 0)  # 0/0 is left out
    assert len(gathered) == 2
    assert {"direction": "i2t", "figure": "C_B", "mean": 1.0, "std": 1.0} in gathered.rows()


def test_smooth_ap_counts_of_a_published_batch_take_milliseconds():
    torch.manual_seed(5)
    scores = torch.rand(128, 640)
    owner = torch.arange(640) // 5
    cocos("smooth-ap", scores, owner)
    started = time.process_time()
    for _ in range(3):
        cocos("smooth-ap", scores, owner)
    # About 20 ms alone on one core; a loop over queries or a cube per query takes seconds.
    assert (time.process_time() - started) / 3 < 0.5


def test_published_rows_are_read():
    rows = {row.number: row for row in published_rows("SmoothAP")}
    assert rows["1.4"].method == "VSE++"
    assert rows["1.4"].figures["t2i"]["C_0"] == (636.72, 18.72)
    assert len(published_rows("Triplet")) == len(published_rows("NT-Xent")) == 4


def test_to_dict_is_plain():
    import json

    text = json.dumps(cocos("nt-xent", S).to_dict())
    assert '"C_qv_neg"' in text


def test_released_needs_one_image_per_caption():
    mask = torch.ones(2, 4, dtype=torch.bool)
    with pytest.raises(InputError, match="one image"):
        cocos("triplet", WIDE, mask, released=True)
    with pytest.raises(InputError, match="same number of captions"):
        cocos("smooth-ap", WIDE, torch.tensor([0, 1, 1, 1]), released=True)
