"""What does not fit says which row, and what to do."""

import pytest
import torch

from simgrad.core.errors import InputError
from simgrad.objectives import NTXent, Objective, Offline, Positives, objective


def _message(call) -> str:  # type: ignore[no-untyped-def]
    with pytest.raises(InputError) as error:
        call()
    return str(error.value)


def test_errors_name_the_row() -> None:
    o, S = objective("nt-xent"), torch.rand(4, 6)
    index = torch.tensor([0, 1, 2, 3, 0, 1])
    mask = torch.arange(4)[:, None] == index[None]
    no_caption, no_image = mask.clone(), mask.clone()
    no_caption[2], no_image[:, 5] = False, False
    assert "image 2 has no positive" in _message(lambda: o.weigh(S, no_caption))
    assert "caption 5 has no positive" in _message(lambda: o.weigh(S, no_image))
    assert "4 images and 6 captions" in _message(lambda: o.weigh(S))
    assert "torch.bool" in _message(lambda: o.weigh(S, mask.float()))
    assert "(6, 4)" in _message(lambda: o.weigh(S, mask.T))
    assert "(4,)" in _message(lambda: o.weigh(S, index[:4]))
    wrong = index.clone()
    wrong[3] = 7
    assert "caption 3 belongs to image 7" in _message(lambda: o.weigh(S, wrong))
    wrong[3] = -2
    assert "caption 3 belongs to image -2" in _message(lambda: o.weigh(S, wrong))
    wrong[3] = 0
    assert "image 3 has no caption" in _message(lambda: o.weigh(S, wrong))
    assert "list" in _message(lambda: o.weigh(S, [0, 1]))  # type: ignore[arg-type]
    other = Positives.of_captions(index, 5)
    assert "5 images and 6 captions" in _message(lambda: o.weigh(S, other))
    bad = S.clone()
    bad[2, 3] = torch.nan
    assert "row 2 holds nan" in _message(lambda: o.weigh(bad, index))
    assert "(24,)" in _message(lambda: o.weigh(S.flatten()))


def test_errors_about_embeddings() -> None:
    o = objective("triplet")
    images, texts = torch.rand(8, 5), torch.rand(8, 5)
    assert "5 dimensions, texts 4" in _message(lambda: o(images, texts[:, :4]))
    assert "images must be" in _message(lambda: o(images[0], texts))
    assert "texts must be" in _message(lambda: o(images, texts.long()))
    assert "texts is empty" in _message(lambda: o(images, texts[:0]))
    texts[3, 1] = torch.inf
    assert "texts: row 3" in _message(lambda: o(images, texts))
    images[6] = torch.nan
    assert "images: row 6" in _message(lambda: o(images, texts))


def test_a_scale_below_nothing_is_told() -> None:
    class Reversed(NTXent):
        def affine(self):  # type: ignore[no-untyped-def]
            return torch.tensor(-1.0), None

    assert "above 0" in _message(lambda: Reversed()(torch.rand(3, 2), torch.rand(3, 2)))


def test_errors_about_offline_similarities() -> None:
    S, four = torch.rand(3, 3), torch.rand(4, 3)
    assert "offline=" in _message(lambda: objective("off-tri").weigh(S))
    offline = Offline(*four)
    assert "takes no offline" in _message(lambda: objective("triplet").weigh(S, offline=offline))
    short = offline._replace(pair=four[2, :2])
    assert "offline.pair" in _message(lambda: objective("off-quin").weigh(S, offline=short))
    bad = offline._replace(image=torch.tensor([0.1, torch.nan, 0.2]))
    assert "offline.image" in _message(lambda: objective("off-quin").weigh(S, offline=bad))


def test_an_objective_without_a_rule_says_so() -> None:
    with pytest.raises(TypeError, match="has no rule"):
        Objective().weigh(torch.rand(2, 2))


def test_what_is_no_matrix_of_numbers_is_told() -> None:
    o, S = objective("nt-xent"), torch.rand(3, 3)
    for given, words in (
        (S.numpy(), "not ndarray"),
        ([[0.1, 0.2], [0.3, 0.4]], "not list"),
        (None, "not NoneType"),
        (S.long(), "torch.int64"),
        (S > 0, "torch.bool"),
        (S.to(torch.complex64), "torch.complex64"),
        (S.to("meta"), "'meta', which holds no numbers"),
        (S[:0], "empty"),
        (S[:, :0], "empty"),
    ):
        for call in (o.on, o.weigh):
            assert words in _message(lambda: call(given)), words  # noqa: B023
    for given, words in (
        (S.numpy(), "not ndarray"),
        (S.to("meta"), "'meta'"),
        (S[:0], "empty"),
    ):
        assert words in _message(lambda: o(given, given)), words  # noqa: B023


def test_an_assignment_is_checked_like_a_declaration() -> None:
    o = objective("triplet")
    for value, words in ((-5, "at least 0"), ("0.3", "a number"), (float("nan"), "at least 0")):
        assert words in _message(lambda: setattr(o, "margin", value))  # noqa: B023
    assert o.margin == 0.2
    o.margin = 0.4  # a schedule
    assert str(o) == "triplet(margin=0.4)"
    goal = objective("goal")
    assert "con, nca, cir" in _message(lambda: setattr(goal, "triplet", "cri"))
    assert "finite" in _message(lambda: setattr(goal, "lambda_", float("inf")))
    goal.triplet = lambda own, other: other - own
    # What was a start value has been read.
    assert "new objective" in _message(lambda: setattr(objective("siglip"), "scale", 3.0))
    assert "new objective" in _message(
        lambda: setattr(objective("nt-xent(learned=true)"), "tau", 0.2)
    )
    temperature = objective("nt-xent")
    temperature.tau = 0.2
    torch.testing.assert_close(temperature.on(torch.eye(3)), NTXent(tau=0.2).on(torch.eye(3)))


def test_an_objective_has_its_article() -> None:
    assert _message(lambda: objective(5)).startswith("an objective is")  # type: ignore[arg-type]
