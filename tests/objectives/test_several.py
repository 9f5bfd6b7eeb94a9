"""Several batches in one call, each with its own parameters, are each as alone."""

import copy
import warnings
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from simgrad.objectives import NTXent, Objective, Positives
from simgrad.objectives.engine.several import Parameters, form_of, weigh_several

from .cases import everything, names

# Training weighs the others one by one.
EVERYTHING = [o for o in everything() if not (o.needs_offline or any(o.parameters()))]
GROUP, IMAGES, CAPTIONS, WIDTH = 3, 7, 9, 5


def _batch(kind: str) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
    random = torch.Generator().manual_seed(3)
    n = CAPTIONS if kind == "pairs" else IMAGES
    images = torch.randn(GROUP, n, WIDTH, generator=random, dtype=torch.float64)
    texts = torch.randn(GROUP, CAPTIONS, WIDTH, generator=random, dtype=torch.float64)
    if kind == "pairs":
        return images, texts, None, None
    owner = torch.tensor([
        [2, 0, 1, 1, 3, 0, 4, 5, 6],
        [0, 0, 0, 1, 1, 2, 3, 4, 3],  # two images only fill the batch
        [6, 5, 4, 3, 2, 1, 0, 0, 6],
    ])  # fmt: skip
    if kind == "captions":
        owner[1] = torch.tensor([6, 6, 0, 1, 2, 3, 3, 4, 5])
        return images, texts, owner, None
    present = torch.ones(GROUP, IMAGES, dtype=torch.bool)
    present[1, 5:] = False
    return images, texts, owner, present


def _alone(o: Objective, place: int, given: tuple[Tensor | None, ...]) -> list[Tensor]:
    images, texts, owner, present = given
    assert images is not None
    assert texts is not None
    own = [x[place].clone().requires_grad_() for x in (images, texts)]
    positives: Tensor | Positives | None = None
    if owner is not None:
        there = None if present is None else present[place]
        positives = Positives.of_captions(owner[place], IMAGES, there)
    loss = o(own[0], own[1], positives)
    loss.backward()  # type: ignore[no-untyped-call]
    assert own[0].grad is not None
    assert own[1].grad is not None
    return [loss.detach(), own[0].grad, own[1].grad]


@pytest.mark.parametrize("kind", ["pairs", "captions", "padded"])
@pytest.mark.parametrize("mean", [False, True])
@pytest.mark.parametrize("o", EVERYTHING, ids=names(EVERYTHING))
def test_several_batches_in_one_call_are_each_as_alone(o: Objective, mean: bool, kind: str) -> None:
    o = copy.deepcopy(o)
    o.mean = mean
    given = _batch(kind)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "There is a performance drop")  # not one call then
        found = weigh_several(Parameters.of([o] * GROUP, torch.device("cpu")), *given)
    for place in range(GROUP):
        for mine, its in zip(found, _alone(o, place, given), strict=True):
            torch.testing.assert_close(mine[place], its)


def _differing(o: Objective) -> list[Objective]:
    """Objectives whose searched numbers differ, one for each batch."""
    numbers = [k for k, v in o.named_settings().items() if isinstance(v, float)]
    searched = {name.rstrip("_") for name in o.searched()}
    some = [name for name in numbers if name.rstrip("_") in searched]
    if not some:
        pytest.skip("a tuned study varies none of its parameters")
    each = [copy.deepcopy(o) for _ in range(GROUP)]
    for k, one in enumerate(each):
        for name in some:
            setattr(one, name, getattr(o, name) * (1 + 0.3 * k))
    assert len({form_of(one) for one in each}) == 1
    return each


class _Operations(TorchDispatchMode):
    """The names of all that is computed."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.add(func.__name__.split(".")[0].rstrip("_"))
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("kind", ["pairs", "padded"])
@pytest.mark.parametrize("o", EVERYTHING, ids=names(EVERYTHING))
def test_batches_are_not_numbered_on_the_host(o: Objective, kind: str) -> None:
    """torch.vmap does that for some operations, and a captured graph would not notice."""
    if o.name.startswith("test-"):
        pytest.skip("somebody's own: one that does so is weighed alone")
    with _Operations() as seen:
        weigh_several(Parameters.of([o] * GROUP, torch.device("cpu")), *_batch(kind))
    assert not seen.names & {"index", "index_put", "index_add", "index_select", "index_fill"}


@pytest.mark.parametrize("o", EVERYTHING, ids=names(EVERYTHING))
def test_each_batch_has_its_own_parameters(o: Objective) -> None:
    each, given = _differing(o), _batch("padded")
    found = weigh_several(Parameters.of(each, torch.device("cpu")), *given)
    for place, one in enumerate(each):
        for mine, its in zip(found, _alone(one, place, given), strict=True):
            torch.testing.assert_close(mine[place], its)


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
@pytest.mark.parametrize("o", EVERYTHING, ids=names(EVERYTHING))
def test_on_a_gpu_single_precision_stays_single(o: Objective) -> None:
    each, given = _differing(o), _batch("padded")
    single = [x.float().cuda() if x is not None and x.is_floating_point() else x for x in given]
    there = [x if x is None else x.cuda() for x in single]
    parameters = Parameters.of(each, torch.device("cuda"))
    found = weigh_several(parameters, *there)
    again = weigh_several(Parameters.of(each, torch.device("cpu")), *given)
    for mine, its in zip(found, again, strict=True):
        assert mine.dtype == torch.float32
        torch.testing.assert_close(mine.cpu(), its.float(), rtol=1e-4, atol=1e-5)


def test_objectives_of_another_form_are_not_weighed_together() -> None:
    from simgrad import objective

    same = ["goal(triplet=con, pair=sig)", "goal(triplet=con, pair=sig, lambda=0.7, margin=0.1)"]
    assert len({form_of(objective(spec)) for spec in same}) == 1
    other = ["goal(triplet=nca, pair=sig)", "goal", "triplet", "nt-xent", "nt-xent(direction=i2t)"]
    assert len({form_of(objective(spec)) for spec in [*same, *other]}) == 1 + len(other)


def test_an_objective_that_keeps_more_than_its_settings_is_weighed_alone() -> None:
    """What it worked out of a setting when it was made would be another's."""

    class Derived(NTXent):
        def __post_init__(self) -> None:
            super().__post_init__()
            self.inverse = 1 / self.tau

    class Remembering(NTXent):
        def __post_init__(self) -> None:
            super().__post_init__()
            self.register_buffer("seen", torch.zeros(()))

    for kind in (Derived, Remembering):
        assert form_of(kind(tau=0.1)) != form_of(kind(tau=0.1))
    assert form_of(NTXent(tau=0.1)) == form_of(NTXent(tau=0.2))
